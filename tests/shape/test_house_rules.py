"""The rules of AGENTS.md that a machine can read."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "wieldy"
MODULES = sorted(path for path in SOURCE.rglob("*.py") if "sample" not in path.parts)
BANNED = re.compile(r"(^|_)(utils?|helpers?|manager|common|misc|base)(_|$)")
MOST_LINES = 400


def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_modules_are_small_named_for_the_domain_and_say_what_they_are_for(path: Path):
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= MOST_LINES, "look for the missing noun"
    assert not BANNED.search(path.stem), "name it after what it is"
    assert ast.get_docstring(parsed(path)), "say in a sentence what it is for"


def test_no_task_is_made_without_an_owner():
    """`create_task` stands only where the owner of the task awaits it."""
    owners = {"engine/eager.py", "engine/leash.py", "engine/turn.py", "engine/events.py"}
    found = {
        str(path.relative_to(SOURCE))
        for path in MODULES
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Call) and _called(node) in {"create_task", "ensure_future"}
    }
    assert found <= owners | OWNED_ELSEWHERE


# Each of these holds its task in an attribute and awaits it in `aclose`, in `__aexit__` or in a `finally`.
OWNED_ELSEWHERE = {
    "agents/roster.py",
    "mcp/server_news.py",
    "mcp/servers.py",
    "providers/http.py",
    "session/foresight.py",
    "session/session.py",
    "shell/background.py",
}


def _called(node: ast.Call) -> str:
    function = node.func
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def test_the_fields_of_records_are_made_by_the_module_that_makes_records():
    """`dataclasses.field` would be taken for the default itself."""
    for path in MODULES:
        text = path.read_text(encoding="utf-8")
        if re.search(r"^@(record|mutable)\b", text, re.MULTILINE) and "@dataclass" not in text:
            assert not re.search(r"from dataclasses import .*\bfield\b", text), path


def test_no_process_is_started_in_a_way_that_turns_vfork_off():
    for path in MODULES:
        assert "preexec_fn" not in path.read_text(encoding="utf-8"), path


def test_every_tool_has_its_words_beside_it():
    for path in (SOURCE / "tools").glob("*.py"):
        if not path.stem.startswith("__"):
            assert path.with_suffix(".md").exists(), f"{path.name} has no .md"


def test_the_map_is_short():
    assert len((ROOT / "AGENTS.md").read_text(encoding="utf-8").splitlines()) < 120
