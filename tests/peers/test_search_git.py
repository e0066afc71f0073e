"""Glob and LS list what git would, and Grep finds what rg and git grep find."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from wieldy.files.search.glob import find_files
from wieldy.files.search.grep import GrepQuery, grep
from wieldy.files.search.ripgrep import Ripgrep, find_ripgrep
from wieldy.files.search.tree import list_tree

pytestmark = [pytest.mark.peer, pytest.mark.skipif(shutil.which("git") is None, reason="no git here")]

IGNORES = {
    ".gitignore": "*.log\n/build/\n!keep.log\n**/tmp/\ndoc/*.pdf\n*~\n\\#odd\nspace\\ \n",
    "sub/.gitignore": "*.gen\n!/important.log\n",
    "sub/deep/.gitignore": "*\n!.gitignore\n!*.keep\n",
    ".git/info/exclude": "private.*\n",
}
FILES = [
    "a.py", "a.log", "keep.log", "build/out", "sub/build/out", "sub/x.gen", "sub/important.log", "sub/deep/a", "sub/deep/b.keep",
    "sub/deep/more/c.keep", "tmp/x", "sub/tmp/y", "doc/a.pdf", "doc/b/a.pdf", "old~", "#odd", "space ",
    "private.key", "sub/private.x",
    "größe.txt", "two words.txt", "line\nbreak.txt", "quo\"te'.txt", "-n", ".hidden/file", ".env", "sub/.gitkeep", "tab\tname",
]  # fmt: skip


def git(root: Path, *argv: str) -> bytes:
    env = {"PATH": os.environ["PATH"], "HOME": str(root), "GIT_CONFIG_NOSYSTEM": "1"}
    return subprocess.run(["git", *argv], cwd=root, env=env, capture_output=True, check=True).stdout


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    root = tmp_path / "repo"
    root.mkdir()
    git(root, "init", "-q")
    for name in FILES:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(f"needle in {name}\n")
    for name, text in IGNORES.items():
        (root / name).write_text(text)
    return root


def engine_at(home: Path) -> Ripgrep:
    return Ripgrep.installed({"PATH": os.environ["PATH"], "HOME": str(home)})


def listed_by_git(root: Path) -> set[str]:
    names = git(root, "ls-files", "-z", "-co", "--exclude-standard").split(b"\0")
    return {os.fsdecode(name) for name in names if name}


def test_glob_lists_what_git_would(repository):
    found = asyncio.run(find_files("**/*", str(repository), engine_at(repository), limit=0))
    assert {os.path.relpath(path, repository) for path in found.files} == listed_by_git(repository)


def test_glob_in_a_folder_lists_what_git_would_there(repository):
    expected = {name for name in listed_by_git(repository) if name.startswith("sub/")}
    found = asyncio.run(find_files("sub/**", str(repository), engine_at(repository), limit=0))
    assert {os.path.relpath(path, repository) for path in found.files} == expected


def test_grep_searches_what_git_would(repository):
    names = git(repository, "grep", "-lz", "--untracked", "needle").split(b"\0")
    expected = {os.fsdecode(name) for name in names if name}
    found = asyncio.run(grep(GrepQuery("needle", str(repository), limit=0), engine_at(repository)))
    assert {os.path.relpath(file.path, repository) for file in found.files} == expected


def test_ls_lists_what_git_would_but_hidden_entries(repository):
    expected = {name for name in listed_by_git(repository) if not any(p.startswith(".") for p in name.split("/"))}
    tree = list_tree(str(repository))
    assert {name for name in tree.names() if not name.endswith("/")} == expected
    assert tree.complete


def test_ls_lists_what_rg_does(repository):
    ripgrep = find_ripgrep()
    argv = [ripgrep.path, "--no-config", "--files", "-0"]
    listed = subprocess.run(argv, cwd=repository, stdin=subprocess.DEVNULL, capture_output=True, check=True).stdout
    names = {os.fsdecode(name) for name in listed.split(b"\0") if name and not name.endswith(b".gitignore")}
    assert {name for name in list_tree(str(repository)).names() if not name.endswith("/")} == names


def test_lines_and_numbers_are_those_of_git_grep(repository):
    (repository / "code.c").write_text("int a;\n  foo(a);\nfoo();\r\n\n// foo, no(line end)")
    printed = git(repository, "grep", "-n", "--no-color", "--untracked", "foo", "--", "code.c").decode()
    found = asyncio.run(grep(GrepQuery("foo", str(repository / "code.c"), mode="content"), engine_at(repository)))
    ours = [f"code.c:{line.number}:{line.text}" for _, line in found.lines]
    assert ours == [line.rstrip("\r") for line in printed.split("\n") if line]
