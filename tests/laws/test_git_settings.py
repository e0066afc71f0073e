"""Settings files of a repository mean to the permissions what they mean to git."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from wieldy.policy.permissions.repository_links import outside_reads, parse_settings
from wieldy.shell.effects.sweeps import UncertainNames

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="no git here")

BLANKS = st.sampled_from(["", "", " ", "\t", "  ", " \t "])
ENDS = st.sampled_from(["\n", "\n", "\r\n", "\n\n", " \n", ""])
SECTIONS = st.sampled_from(
    [
        "[a]",
        "[A-b.c]",
        '[a "b"]',
        '[a "]"]',
        '[a\t"\\"x\\\\"]',
        '[a "#"]',
        '[a "é"]',
        "[a] ",
        '[a "b" ]',
        '[ "x"]',
        '[."x"]',
        '[a\\n"x"]',
        "[a b]",
        "[a",
        '[a "b\\',
    ]
)
KEYS = st.sampled_from(["path", "Path", "excludesFile", "x-1", "a", "é", "1", "-"])
PIECES = st.sampled_from(
    [
        *(
            "x",
            "/a b",
            " ",
            "\t",
            "\r",
            "\f",
            "\v",
            "\x85",
            "\xa0",
            "é",
            "=",
            "[s]",
            "'",
            "~",
            "\0",
            "\x1c",
            "\ufeff",
            '"',
        ),
        *(
            '""',
            '" "',
            '"x#"',
            '"\t"',
            "#c",
            ";c",
            "\\",
            '\\"',
            "\\\\",
            "\\t",
            "\\n",
            "\\b",
            "\\x",
            "\\\n",
            "\\\r\n",
            '"a\\\nb"',
        ),
    ]
)
VALUES = st.lists(PIECES, max_size=6).map("".join)
ENTRIES = st.builds(
    "".join, st.tuples(BLANKS, KEYS, BLANKS, st.sampled_from(["=", "=", "=", "", "=="]), BLANKS, VALUES, BLANKS, ENDS)
)
OTHERS = st.sampled_from(["# c\n", ";c", "#c\\\n", "\n", "\r", "\r\n", "\f", "x", "="])
FILES = st.lists(st.one_of(SECTIONS, ENTRIES, ENTRIES, ENTRIES, OTHERS), max_size=6).map("".join)


def git(folder: str, *words: str) -> subprocess.CompletedProcess[bytes]:
    env = {"PATH": os.environ["PATH"], "HOME": folder, "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": "/dev/null"}
    return subprocess.run(["git", *words], cwd=folder, env=env, capture_output=True, check=False)


@pytest.fixture(scope="module")
def folder() -> object:
    with tempfile.TemporaryDirectory() as path:
        yield os.path.realpath(path)


@given(text=st.tuples(st.sampled_from(["", "", "", "\ufeff"]), st.sampled_from(["[a]\n", ""]), FILES).map("".join))
@example(text='[core]\nexcludesFile = " link "\n')
@example(text="[core]\nexcludesFile = a\\tb\n")
@example(text="[core]\nexcludesFile = secret\0.txt\n")
@example(text="[core]\nexcludesFile = a\xa0\n")
@example(text="[core]\nexcludesFile = a \t b\n")
@example(text='[a]\npath="\n')
@settings(max_examples=300, deadline=None)
def test_every_setting_has_the_value_that_git_reads(folder: str, text: str) -> None:
    file = Path(folder, "settings")
    file.write_bytes(text.encode())
    printed = git(folder, "config", "--file", str(file), "--list", "--null")
    try:
        ours = list(parse_settings(text, str(file)))
    except UncertainNames:
        assert printed.returncode != 0
        return
    assert printed.returncode == 0, printed.stderr
    entries = [entry.decode().partition("\n") for entry in printed.stdout.split(b"\0")[:-1]]
    theirs = [(name.rpartition(".")[2], value) for name, separator, value in entries if separator]
    assert [key for key, _ in ours] == [key for key, _ in theirs]
    assert all(value in values for (_, values), (_, value) in zip(ours, theirs, strict=True)), (ours, theirs)


NAMES = st.sampled_from(["a", " b", "c ", "d#e", "f;", 'g"h', "i\\j", "k\tl", "m\nn", "é", "sub/o", "~p", "x=y"])


def quoted(name: str, style: int) -> str:
    """One of the ways to write a value."""
    escaped = name.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    if style == 1:
        escaped = escaped.replace("\t", "\\t")
    middle = len(escaped) // 2
    if style == 2 and escaped[middle - 1] != "\\":
        return f'"{escaped[:middle]}\\\n{escaped[middle:]}"  # comment'
    return f'"{escaped}"'


INCLUDES = st.tuples(NAMES, st.integers(0, 3), st.integers(0, 2), st.booleans())


@given(includes=st.lists(INCLUDES, min_size=1, max_size=5, unique_by=lambda include: include[0]))
@settings(max_examples=60, deadline=None)
def test_every_file_that_git_includes_is_known(includes: list[tuple[str, int, int, bool]]) -> None:
    with tempfile.TemporaryDirectory() as made:
        base = os.path.realpath(made)
        root, outside = f"{base}/root", f"{base}/outside"
        for name in (f"{root}/.git/objects", f"{root}/.git/refs", f"{outside}/sub"):
            os.makedirs(name)
        Path(root, ".git/HEAD").write_text("ref: refs/heads/main\n")
        texts = {f"{root}/.git/config": "[core]\nrepositoryformatversion = 0\n"}
        for number, (name, parent, style, is_relative) in enumerate(includes):
            including = list(texts)[min(parent, number, len(texts) - 1)]
            included = f"{outside}/{name}"
            written = f"./{os.path.relpath(included, os.path.dirname(including))}" if is_relative else included
            section = "[include]" if style else f'[includeIf "gitdir:{root}/"]'
            texts[including] += f"{section} PATH\t= {quoted(written, style)}\n"
            texts.setdefault(included, "[found]\nhere = 1\n")
        for path, text in texts.items():
            Path(path).write_text(text)
        printed = git(root, "config", "--list", "--show-origin", "--null")
        assert printed.returncode == 0, printed.stderr
        origins = [origin.decode() for origin in printed.stdout.split(b"\0")[:-1:2]]
        read = {os.path.realpath(os.path.join(root, origin.removeprefix("file:"))) for origin in origins}
        assert f"{root}/.git/config" in read
        assert read - {f"{root}/.git/config"} == set(outside_reads(root))
