"""Our walk over a tree lists the files that `rg` lists, whatever the ignore files say."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from wieldy.files.search.patterns import (
    VERSION_CONTROL,
    compile_globs,
    load_parent_rules,
    walk_files,
)
from wieldy.files.search.ripgrep import Ripgrep

pytestmark = pytest.mark.peer

NAMES = [
    "a", "b", "src", "main.py", "x.txt", "Übung.md", "two words.py", "line\nbreak.txt", ".hidden", ".git", "~", "-e",
]  # fmt: skip
RULE_FILES = [
    ".gitignore",
    ".ignore",
    ".rgignore",
    "a/.gitignore",
    "src/.gitignore",
    "a/b/.ignore",
    ".git/info/exclude",
]
RULES = [
    "*.py", "!main.py", "src/", "/a", "a/b", "**/b", "b/**", "!src", "x.*", "[ab]", "[!a]", "*", "!*/", "!*.txt",
    "#c", "\\#c", "", "  ", "*.txt ", "a/*.py", "src/**/x.txt", "/*", "?", "{a,b}", "!.hidden", "two words.py",
    "\\!a", "/", "**",
]  # fmt: skip
PATHS = st.lists(st.sampled_from(NAMES), min_size=1, max_size=3).map("/".join)
RULE_TEXTS = st.lists(st.sampled_from(RULES), max_size=4).map("\n".join)


def write_tree(root: Path, files: dict[str, str]) -> None:
    for name, content in files.items():
        path = root / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
        except OSError:
            continue  # a name that is a file here and a folder there


@settings(max_examples=60, deadline=None, phases=(Phase.generate, Phase.reuse, Phase.shrink))
@given(st.lists(PATHS, max_size=10), st.dictionaries(st.sampled_from(RULE_FILES), RULE_TEXTS, max_size=3))
def test_the_walk_lists_what_rg_lists(paths, rules):
    with tempfile.TemporaryDirectory() as folder:
        root = Path(os.path.realpath(folder), "root")
        root.mkdir()
        write_tree(root, {**dict.fromkeys(paths, "x"), **rules})
        env = {"PATH": os.environ["PATH"], "HOME": folder}
        argv = Ripgrep.installed(env).list_command(str(root))
        printed = subprocess.run(
            argv, cwd=root, env=env, stdin=subprocess.DEVNULL, capture_output=True, timeout=60
        ).stdout
        in_force = load_parent_rules(str(root), env)
        walked = walk_files(str(root), in_force, compile_globs(VERSION_CONTROL))
        assert {os.path.relpath(entry.path, root) for entry in walked} == {
            os.fsdecode(name[2:]) for name in printed.split(b"\0") if name
        }
