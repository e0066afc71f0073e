"""Imports only go down one total order of packages. Read from the source, so that a lazy import counts too."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "wieldy"

# From the bottom up, a line for each room: a package imports those before it, and itself.
ROOMS = {
    "core": ["core.text", "core.schema", "core"],
    "files": ["files.search", "files.working_copies", "files"],
    "shell": ["shell", "shell.backends", "shell.diagnostics"],
    "web": ["web"],
    "models": ["models"],
    "tools": ["tools.skills", "tools.subagent_copies", "tools.subagents", "tools.toolset", "tools"],
    "policy": ["policy.permissions", "policy.hooks", "policy.settings", "policy"],
    "mcp": ["mcp"],
    "engine": ["engine"],
    "agent": ["agent"],
    "faces": ["faces.mcp_server", "faces.terminal", "faces.headless", "faces.adapters", "faces.batch", "faces"],
    "cli": ["cli"],
}
LOOSE = {"__init__.py", "__main__.py", "events.py", "effects.py", "backends.py", "testing.py"}
"""Beside the rooms: the program and the public doors, which import and hold nothing."""
ORDER = [package for packages in ROOMS.values() for package in packages]
HEIGHT = {package: height for height, package in enumerate(ORDER)}
MODULES = sorted(path for path in SOURCE.rglob("*.py") if "sample" not in path.parts)
TYPE_ONLY = {"core/effects.py": "shell", "core/workspace.py": "engine"}
"""A workspace holds its services, and a command its analysis, without knowing them: they name the type and import nothing."""


def package_of(parts: tuple[str, ...]) -> str:
    below = f"{parts[0]}.{parts[1]}" if len(parts) > 1 else ""
    return below if below in HEIGHT else parts[0]


def imported(tree: ast.AST) -> set[str]:
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("wieldy."):
            names.add(package_of(tuple(node.module.split(".")[1:])))
        elif isinstance(node, ast.Import):
            names |= {
                package_of(tuple(alias.name.split(".")[1:])) for alias in node.names if alias.name.startswith("wieldy.")
            }
    return names


def test_the_folders_are_the_rooms():
    folders = {path.name for path in SOURCE.iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert folders == set(ROOMS)
    assert {path.name for path in SOURCE.glob("*.py")} == LOOSE


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_says_what_lives_there(room: str):
    tree = ast.parse((SOURCE / room / "__init__.py").read_text(encoding="utf-8"))
    assert "import" in (ast.get_docstring(tree) or ""), "what lives here, what others use, what it may import"


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_no_module_imports_upward(path: Path):
    relative = path.relative_to(SOURCE)
    if str(relative) in LOOSE:
        return
    here = package_of(relative.with_suffix("").parts)
    tree = ast.parse(path.read_text(encoding="utf-8"))
    if (type_only := TYPE_ONLY.get(str(relative))) is not None:
        [block] = [each for each in tree.body if isinstance(each, ast.If) and ast.unparse(each.test) == "TYPE_CHECKING"]
        assert imported(block) - {"core"} == {type_only}
        tree.body.remove(block)
    upward = {there for there in imported(tree) if HEIGHT[there] > HEIGHT[here]}
    assert not upward, f"{here} must not import {', '.join(sorted(upward))}"


@pytest.mark.parametrize("face", [package for package in ROOMS["faces"] if package != "faces"])
def test_a_face_imports_no_other_face(face: str):
    for path in (SOURCE / face.replace(".", "/")).rglob("*.py"):
        others = {name for name in imported(ast.parse(path.read_text(encoding="utf-8"))) if name.startswith("faces.")}
        assert others <= {face}, path


def test_a_tool_imports_no_policy_and_no_model():
    above = {"policy.permissions", "policy.settings", "models"}
    for path in (SOURCE / "tools").glob("*.py"):
        strangers = imported(ast.parse(path.read_text(encoding="utf-8"))) & above
        assert not strangers, f"{path.name} imports {strangers}"
