"""awk and sed: a small grammar is accepted, and whatever could be read in two ways is asked about."""

from __future__ import annotations

import shlex

import pytest
from tests.unit.shell.effects.rule_matching import analysis_of

AWK_REFUSED = [
    'BEGIN { if (1) /"/; system("touch x") #"/\n}',
    '{ switch (x) { case /"/: system("touch x") } } #"/',
    '/[[:alpha:]/"]/ { system("touch x") } #"/',
    '/[/"]/ { system("touch x") } #"/',
    '{ x = (1) / 2 / "a" }',
    "function f() { print } { f() }",
    "{ f() }",
    '{ print > "f" }',
    '{ print a,\n b > "f" }',
    '{ print | "sh" }',
    '{ "id" | getline }',
    '{ getline x < "f" }',
    '@load "filefuncs"; { print }',
    'BEGIN { f = "system"; @f("id") }',
    '# a comment \\\n{ system("id") }',
    'BEGIN { ARGV[1] = "/etc/passwd" }',
    "{ x++ /y/ }",
    "{ print length /x/ }",
]
AWK_ACCEPTED = [
    "{ print $1 / $2, x / 2, a[1] / 3 }",
    "/[[:space:]]+#/ && !/[^a-z ]/ { n++ } END { print n }",
    '$1 ~ /a\\/b/ { sub(/x/, "/"); print }',
    "NR % 2 == 0 # even lines",
    'BEGIN { FS = "\\t" }\n/a/, /b/ { printf "%s\\n", $2; next }\n{ s += $1 } END { print s / NR }',
    "{ for (i = 1; i <= NF; i++) if ($i > 3) print $i }",
    'length($0) > 80 { print FILENAME ":" FNR }',
]
SED_REFUSED = [
    "a text\\\\\nw out",
    "a text\\\nw out",
    "b #x;w out",
    "ba}a x;w out",
    "ba}#x;w out",
    "p # a comment",
    "s/[/]/b/;w out\n]//",
    "s/[[:alpha:]/]/w out/",
    "s/[\\]/]x/w out/",
    "w out",
    "r /etc/passwd",
    "1e id",
    "s/a/b/w out",
    "s/a/b/e",
    "s\\a\\b\\",
    "saxayaw out",
    "y/a/b/w out",
    "1,2,3p",
    "i\\\ntext",
]
SED_ACCEPTED = [
    ":a;N;$!ba;s/\\n/ /g",
    "s/[[:space:]]*$//; s|[^/]*$||",
    "/^#/!{s/a/b/2p;q}",
    "1i some text; not a command }",
    "$a the end",
    "/a/,+3d",
    "0~4p",
    "1!G;h;$!d",
    "s/\\[\\(.*\\)\\]/\\1/",
    "\\|/x|I,$p",
]


def verdict(program: str, script: str) -> str:
    return analysis_of(f"{program} {shlex.quote(script)} file").verdict


@pytest.mark.parametrize("script", AWK_REFUSED)
def test_an_awk_program_outside_the_grammar_is_asked_about(script: str) -> None:
    assert verdict("awk", script) == "unknown"


@pytest.mark.parametrize("script", AWK_ACCEPTED)
def test_an_everyday_awk_program_is_read_only(script: str) -> None:
    assert verdict("awk", script) == "read_only"


@pytest.mark.parametrize("script", SED_REFUSED)
def test_a_sed_script_outside_the_grammar_is_asked_about(script: str) -> None:
    assert verdict("sed", script) == "unknown"


@pytest.mark.parametrize("script", SED_ACCEPTED)
def test_an_everyday_sed_script_is_read_only(script: str) -> None:
    assert verdict("sed", script) == "read_only"


def test_awk_does_not_open_connections() -> None:
    assert analysis_of("awk 1 /inet/tcp/0/host/80").verdict == "unknown"
