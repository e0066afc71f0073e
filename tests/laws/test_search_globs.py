"""File globs put together at random mean the same to us and to `rg`."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wieldy.files.search.patterns import BadGlob, compile_glob
from wieldy.files.search.ripgrep import find_ripgrep

RG = find_ripgrep()
pytestmark = pytest.mark.peer


def by_rg(argv: list[str], folder: Path) -> tuple[int, bytes]:
    ran = subprocess.run([RG.path, *argv], cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, timeout=60)
    return ran.returncode, ran.stdout


NAMES = [
    "a", "b.py", "a.py", "ab.txt", "x/a", "x/b.py", "x/y/a.py", "x/y/z/c.txt", "[a].py", "{a}.py", "a-b", ".hid/a.py",
    "*.py", "y/x/a",
]  # fmt: skip
GLOB_PIECES = [
    "a", "b", "x", "y", ".py", ".txt", "*", "?", "[ab]", "[!a]", "[a-c]", "{a,b}", "{py,txt}", "/", "/", "**", "**/", "/**",
    r"\*", r"\[", "-", ".", "{x,y}/", "[", "{", "}",
    "[/", "[/a]", "[+-0]",
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
