"""Beside bash itself: what bash accepts, what bash runs."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from tests.peers.shell_scripts import STUBS, Scripts
from tests.peers.shfmt_outline import shfmt_outline

from wieldy.shell.effects.analysis import Analysis, analyze
from wieldy.shell.parsing.cross_check import outline, parsers_agree
from wieldy.shell.parsing.parser import parse
from wieldy.shell.parsing.syntax import Unparsable

pytestmark = pytest.mark.peer
BASH = shutil.which("bash") or "bash"
CORPORA = Path(__file__).parents[1] / "corpora" / "shell"
REAL = ("bash", "sh", "env", "timeout", "nice", "nohup", "stdbuf", "xargs", "cat")
# One write for one record, so that the stages of a pipeline cannot mix theirs.
STUB = """#!/bin/sh
record="${0##*/}"
for argument; do record="$record\036$argument"; done
printf '%s\035' "$record" >> "$TRACE"
"""


def accepted_by_bash(folder: Path, texts: list[str]) -> list[bool]:
    """Whether `bash -n` accepts each text, asked in one process."""
    for index, text in enumerate(texts):
        (folder / f"{index}.sh").write_text(text, encoding="utf-8")
    loop = f"for ((i = 0; i < {len(texts)}; i++)); do if bash -n $i.sh 2>/dev/null; then echo 1; else echo 0; fi; done"
    done = subprocess.run([BASH, "-c", loop], cwd=folder, capture_output=True, text=True, timeout=90, check=True)
    return [line == "1" for line in done.stdout.split()]


def understood(text: str) -> bool:
    try:
        parse(text)
    except Unparsable:
        return False
    return True


def corpus_lines() -> list[str]:
    return [
        line
        for name in ("read_only.txt", "not_read_only.txt")
        for line in (CORPORA / name).read_text(encoding="utf-8").splitlines()
        if line and not line.startswith("#")
    ]


def test_what_we_understand_bash_accepts(tmp_path: Path) -> None:
    texts = [Scripts(seed).script() for seed in range(250)] + corpus_lines()[::3] + broken_scripts(250)
    verdicts = accepted_by_bash(tmp_path, texts)
    assert [text for text, accepted in zip(texts, verdicts, strict=True) if understood(text) and not accepted] == []


def broken_scripts(count: int) -> list[str]:
    """Scripts with something cut out, doubled or inserted."""
    found = []
    for seed in range(count):
        scripts = Scripts(seed)
        text, random = scripts.script(2), scripts.random
        at = random.randrange(len(text))
        found.append(
            random.choice(
                [
                    text[:at] + text[at + 1 :],
                    text[:at] + random.choice(";&|()<>\"'`$\\{}#!\n") + text[at:],
                    text[:at],
                    text[:at] + random.choice(["fi", "done", "}", ")", ";;", "then ", "do "]) + text[at:],
                ]
            )
        )
    return found


def test_every_generated_script_is_understood() -> None:
    assert [seed for seed in range(400) if not understood(Scripts(seed).script())] == []


def test_shfmt_reads_generated_scripts_as_we_do() -> None:
    """A sample only: each one starts a process."""
    scripts = [Scripts(seed).script() for seed in range(120)]
    differing = [text for text in scripts if shfmt_outline(text) != outline(text, parse(text))]
    # A backslash inside backticks moves the text, so positions cannot be compared; nothing else may differ.
    assert [text for text in differing if "`" not in text] == []


def test_tree_sitter_reads_most_generated_scripts_as_we_do() -> None:
    scripts = [Scripts(seed).script() for seed in range(300)]
    assert sum(parsers_agree(text, parse(text)) for text in scripts) > 0.7 * len(scripts)


@pytest.fixture
def stubs(tmp_path: Path) -> Path:
    """A folder that is the whole PATH: stubs that note how they were called, and the wrappers round them."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in STUBS:
        (folder / name).write_text(STUB)
        (folder / name).chmod(0o755)
    for name in REAL:
        if found := shutil.which(name):
            (folder / name).symlink_to(os.path.realpath(found))
    return folder


def ran(text: str, stubs: Path, place: Path) -> list[list[str]]:
    """The stubs that bash ran for this text, each with its arguments."""
    trace = place.with_suffix(".trace")
    place.mkdir()
    (place / "one.txt").touch()
    (place / "two.txt").touch()
    environment = {"PATH": str(stubs), "HOME": "/home/me", "TRACE": str(trace), "LC_ALL": "C.UTF-8"}
    try:
        subprocess.run(
            [BASH, "--norc", "-c", text],
            cwd=place,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=20,
        )
    except subprocess.TimeoutExpired:
        pytest.fail(f"a generated script did not end: {text}")
    if not trace.exists():
        return []
    return [record.split("\036") for record in trace.read_text(encoding="utf-8").split("\035") if record]


def foreseen(argv: list[str], analysis: Analysis) -> bool:
    """Whether some part is this call: the same program, and the same arguments where they could be known."""
    for part in analysis.parts:
        if part.program == argv[0]:
            known = [word.text for word in part.argv]
            if (
                not all(word.kind == "literal" for word in part.argv)
                or any("/dev/fd/" in text for text in known)
                or known == argv
            ):
                return True
    return False


@pytest.mark.parametrize("block", range(6))
def test_whatever_bash_runs_was_foreseen(block: int, stubs: Path, tmp_path: Path) -> None:
    calls = 0
    for seed in range(1000 + block * 30, 1000 + block * 30 + 30):
        text = Scripts(seed).script()
        place = tmp_path / str(seed)
        analysis = analyze(text, cwd=str(place), home="/home/me", root=str(place))
        for argv in ran(text, stubs, place):
            calls += 1
            assert foreseen(argv, analysis), (argv, text)
    assert calls > 50
