"""The history of this project replayed: every change of every file, made by edits, gives the bytes git has."""

from __future__ import annotations

import random
import shutil
import subprocess
from collections.abc import Iterator
from difflib import SequenceMatcher
from pathlib import Path

import pytest

from wieldy.files.editing.document import Document, apply_splices
from wieldy.files.editing.matching import Replacement, find_text

pytestmark = pytest.mark.peer
ROOT = Path(__file__).parents[2]
VERSIONS = 60
LARGEST = 60_000


def git(*args: str) -> bytes:
    return subprocess.run(["git", "-C", str(ROOT), *args], capture_output=True, check=True).stdout


def history() -> Iterator[tuple[bytes, bytes]]:
    """Pairs of contents, before and after, of files that commits changed."""
    log = git("log", "--no-merges", "--raw", "--no-abbrev", "--diff-filter=M", "--format=", "-n", "400").decode()
    for line in [line for line in log.splitlines() if line.startswith(":")][:VERSIONS]:
        _, _, old, new, *_ = line.split()
        before, after = git("cat-file", "blob", old), git("cat-file", "blob", new)
        if b"\0" not in before and max(len(before), len(after)) < LARGEST:
            yield before, after


def invented(seed: int) -> tuple[bytes, bytes]:
    """A content and another that came of it by changes here and there, in some encoding with some line ends."""
    chance = random.Random(seed)
    lines = [f"{'    ' * chance.randrange(3)}item {chance.randrange(40)} = äöü “{n % 7}”" for n in range(80)]
    changed = list(lines)
    for _ in range(chance.randrange(1, 7)):
        at = chance.randrange(len(changed))
        new = [f"new {chance.randrange(99)} – ’"] * chance.randrange(3)
        changed[at : at + chance.randrange(3)] = new
    codec = chance.choice(["utf-8", "utf-8-sig", "utf-16", "cp1252"])
    end = chance.choice(["\n", "\r\n"])
    last = chance.choice(["", end])
    return (end.join(lines) + last).encode(codec), (end.join(changed) + last).encode(codec)


def edits(before: str, after: str) -> Iterator[Replacement]:
    """Each change as a model would send it, from the end of the file to its start: its lines, with as many around them
    as make the place unique in the file as it is by then."""
    lines, new = before.splitlines(keepends=True), after.splitlines(keepends=True)
    codes = SequenceMatcher(None, lines, new, autojunk=False).get_opcodes()
    for tag, i, j, k, m in reversed(codes):
        if tag == "equal":
            continue
        text, around = "".join(lines), 0
        while text.count(wanted := "".join(lines[max(i - around, 0) : j + around])) != 1 or not wanted:
            around += 1
        head, tail = "".join(lines[max(i - around, 0) : i]), "".join(lines[j : j + around])
        yield Replacement(wanted, head + "".join(new[k:m]) + tail)
        lines[i:j] = new[k:m]


def replayed(before: bytes, after: bytes) -> bytes:
    """The changes made one by one."""
    document = Document.of(before)
    wanted = document.codec.decode(after[document.body :]).replace("\r\n", "\n")
    data = before
    for edit in edits(document.text, wanted):
        data = apply_splices(data, find_text(Document(data, document.encoding), edit, ("exact",)).splices)
    return data


@pytest.mark.parametrize("seed", range(40))
def test_invented_changes_are_replayed_to_the_byte(seed: int) -> None:
    before, after = invented(seed)
    assert replayed(before, after) == after


@pytest.mark.skipif(shutil.which("git") is None or not (ROOT / ".git").exists(), reason="there is no history here")
def test_the_history_of_this_project_is_replayed_to_the_byte() -> None:
    pairs = list(history())
    if not pairs:
        pytest.skip("no commit here changed a file")
    for before, after in pairs:
        assert replayed(before, after) == after
