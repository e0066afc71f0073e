"""What a program does is said in `shell/effects/programs` alone: nothing else decides by the name of one."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from wieldy.shell.effects.programs.profiles import PROFILES
from wieldy.shell.effects.programs.registry import TABLES
from wieldy.shell.effects.programs.wrappers import WRAPPERS

SOURCE = Path(__file__).parents[2] / "src" / "wieldy"
NAMES = {*PROFILES, *WRAPPERS, *(name for table in TABLES for name in table)}
# Fields of calls and of settings, and characters, that are also names of programs.
WORDS = {"command", "read", "file", "local", "head", ":", "[", "time", "true", "false", "test"}
# The names of folders and files that they protect.
PATHS = {"protected.py", "protected_scan.py", "protected_watch.py"}
MODULES = [
    path
    for room in ("policy/permissions", "shell/effects")
    for path in sorted((SOURCE / room).glob("*.py"))
    if path.name not in PATHS
] + [SOURCE / "shell" / "running" / "exit_notes.py", SOURCE / "shell" / "sandbox" / "sandbox.py"]


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_no_program_is_known_by_name_outside_its_room(path: Path) -> None:
    texts = [
        node.value
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    named = {word for text in texts if all(word in NAMES for word in text.split()) for word in text.split()} - WORDS
    assert not named, "say in shell/effects/programs what is true of it"


def test_there_are_names_to_look_for() -> None:
    assert {"git", "rm", "xargs", "cargo"} <= NAMES and len(MODULES) > 15
