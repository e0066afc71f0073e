"""Patterns put together at random mean the same to us and to `rg`: regular expressions and file globs."""

from __future__ import annotations

import io
import re
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wieldy.search.builtin import BuiltinSearch, read_options
from wieldy.search.dialect import BadPattern
from wieldy.search.ignore import BadGlob, compile_glob
from wieldy.search.ripgrep import Line, LineReader, find_ripgrep

RG = find_ripgrep()
pytestmark = [pytest.mark.peer, pytest.mark.skipif(RG is None, reason="no rg to compare with")]

TEXT = "\n".join(
    [
        "abc",
        "aabb",
        "a.b",
        "ABC",
        "a b c",
        "x1y22",
        "  lead",
        "trail  ",
        "",
        "foo(bar)",
        "[x]{y}",
        "größe Ä",
        "a-b_c",
        "aaa",
        "end",
    ]
)
ATOMS = [
    "a", "b", "c", ".", "x", r"\d", r"\w", r"\s", r"\S", r"\W", "[abc]", "[^a]", "[a-c]", r"[\d_]", "[[:upper:]]", r"\.", r"\(",
    r"\{", "ö", "(?:ab)", "(b|c)", "(?i:A)", r"\b", "^", "$", r"\x61",
]  # fmt: skip
QUANTIFIERS = ["", "", "", "", "*", "+", "?", "{2}", "{1,2}", "{2,}", "*?", "+?", "??"]
PIECES = st.builds(str.__add__, st.sampled_from(ATOMS), st.sampled_from(QUANTIFIERS))
BRANCHES = st.lists(PIECES, min_size=1, max_size=4).map("".join)
PATTERNS = st.builds(
    lambda flags, branches: flags + "|".join(branches),
    st.sampled_from(["", "", "", "(?i)", "(?U)"]),
    st.lists(BRANCHES, min_size=1, max_size=3),
)
LAYOUT = [
    "--no-config", "--color=never", "--null", "--crlf", "--no-heading", "--with-filename", "--line-number", "--column",
    "--field-match-separator=\\x00", "--field-context-separator=\\x01",
]  # fmt: skip


def parsed(printed: bytes) -> list[tuple[int, str]]:
    lines: list[Line] = []

    def take(line: Line) -> bool:
        lines.append(line)
        return False

    LineReader(take).feed(printed)
    return [(line.number, line.text) for line in lines]


def by_rg(argv: list[str], folder: Path) -> tuple[int, bytes]:
    assert RG is not None
    ran = subprocess.run([RG.path, *argv], cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, timeout=60)
    return ran.returncode, ran.stdout


def by_us(argv: list[str]) -> tuple[int, bytes]:
    out = io.BytesIO()
    try:
        return BuiltinSearch(read_options(argv), out).run(), out.getvalue()
    except BadPattern:
        return 2, b""


@pytest.fixture(scope="module")
def text_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path: Path = tmp_path_factory.mktemp("dialects") / "text"
    path.write_text(TEXT + "\n")
    return path


@settings(max_examples=250, deadline=None)
@given(pattern=PATTERNS)
def test_a_regular_expression_matches_the_same_lines(text_file, pattern):
    argv = [*LAYOUT, f"--regexp={pattern}", "--", str(text_file)]
    code, printed = by_rg(argv, text_file.parent)
    our_code, ours = by_us(argv)
    assert (our_code, parsed(ours)) == (code, parsed(printed))


# No alternatives here: Rust factors out what they begin with, which changes the one it prefers (`a*\b|a*a`).
@settings(max_examples=100, deadline=None)
@given(pattern=BRANCHES)
def test_a_regular_expression_matches_the_same_parts_of_lines(text_file, pattern):
    argv = [*LAYOUT, "--only-matching", f"--regexp={pattern}", "--", str(text_file)]
    code, printed = by_rg(argv, text_file.parent)
    our_code, ours = by_us(argv)
    assert (our_code == 2) == (code == 2)
    assert parsed(ours) == [(number, text) for number, text in parsed(printed) if text]


NAMES = [
    "a", "b.py", "a.py", "ab.txt", "x/a", "x/b.py", "x/y/a.py", "x/y/z/c.txt", "[a].py", "{a}.py", "a-b", ".hid/a.py",
    "*.py", "y/x/a",
]  # fmt: skip
GLOB_PIECES = [
    "a", "b", "x", "y", ".py", ".txt", "*", "?", "[ab]", "[!a]", "[a-c]", "{a,b}", "{py,txt}", "/", "/", "**", "**/", "/**",
    r"\*", r"\[", "-", ".", "{x,y}/", "[", "{", "}",
]  # fmt: skip
ODD = re.compile(r"//|\*{3}")
GLOBS = st.lists(st.sampled_from(GLOB_PIECES), min_size=1, max_size=5).map("".join)


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root: Path = tmp_path_factory.mktemp("globs")
    for name in NAMES:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return root


@settings(max_examples=250, deadline=None)
@given(glob=GLOBS.filter(lambda glob: not glob.startswith("./") and not glob.endswith("/") and not ODD.search(glob)))
def test_a_glob_matches_the_same_files(tree, glob):
    argv = ["--no-config", "--files", "--hidden", "--no-ignore", "--null", f"--glob={glob}", "--", "./"]
    code, printed = by_rg(argv, tree)
    try:
        matches = compile_glob(glob)
    except BadGlob:
        assert code == 2
        return
    assert code != 2
    theirs = {name.decode()[2:] for name in printed.split(b"\0") if name}
    # To rg `[!a]` may be a slash; to git and to us it is a character of a name.
    compared = [name for name in NAMES if "[!" not in glob or "/" not in name]
    assert {name for name in compared if matches(name)} == theirs & set(compared)
