"""Imports only go down. Read from the source, so that a lazy import counts too."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "wieldy"

# From the ground up; a package may import those on lower lines, and itself.
LAYERS = [
    {"schema"},
    {"core"},
    {"text"},
    {
        "reading",
        "edit",
        "shell",
        "search",
        "pool",
        "notebook",
        "skills",
        "agents",
        "memory",
        "diagnostics",
        "web",
        "browser",
    },
    {"journal", "permissions", "hooks"},
    {"engine"},
    {"mcp"},
    {"tools", "providers"},
    {"settings", "approval", "toolbox", "session"},
    {"cli", "headless", "terminal", "__main__", "__init__", "demo", "testing", "mcp_server"},
]
# Within a line: who may lean on whom. Everything else sideways is an upward import in disguise.
SIDEWAYS = {
    ("reading", "search"),
    ("reading", "edit"),
    ("edit", "search"),
    ("web", "reading"),
    ("browser", "web"),
    ("browser", "shell"),
    ("browser", "reading"),
    ("notebook", "edit"),
    ("notebook", "reading"),
    ("diagnostics", "shell"),
    ("agents", "skills"),
    ("toolbox", "settings"),
    ("toolbox", "approval"),
    ("approval", "settings"),
    ("hooks", "permissions"),
    ("session", "toolbox"),
    ("session", "approval"),
    ("session", "settings"),
    ("cli", "headless"),
    ("__main__", "cli"),
    ("cli", "demo"),
    ("cli", "terminal"),
    ("demo", "terminal"),
    ("cli", "mcp_server"),
    ("__main__", "__init__"),
    ("cli", "__init__"),
}
HEIGHT = {package: height for height, layer in enumerate(LAYERS) for package in layer}
MODULES = sorted(path for path in SOURCE.rglob("*.py") if "sample" not in path.parts)


def package_of(path: Path) -> str:
    first, *rest = path.relative_to(SOURCE).parts
    if first == "mcp" and rest[0].startswith("server") and rest[0] != "servers.py":
        return "mcp_server"  # one protocol, two sides: the client is an adapter, the server a face
    return first.removesuffix(".py")


def imported(tree: ast.AST) -> set[str]:
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("wieldy"):
            parts = node.module.split(".")
            if parts[1:2] == ["mcp"] and len(parts) > 2 and parts[2].startswith("server") and parts[2] != "servers":
                names.add("mcp_server")
            else:
                names |= {parts[1]} if len(parts) > 1 else {alias.name for alias in node.names}
        elif isinstance(node, ast.Import):
            names |= {alias.name.split(".")[1] for alias in node.names if alias.name.startswith("wieldy.")}
    return names


def test_every_package_has_a_layer():
    assert {package_of(path) for path in MODULES} <= set(HEIGHT)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_no_module_imports_upward(path: Path):
    here = package_of(path)
    if here == "__init__":
        return  # the front door names everything, and loads nothing
    upward = {
        there
        for there in imported(ast.parse(path.read_text(encoding="utf-8")))
        if there in HEIGHT
        and there != here
        and (HEIGHT[there] > HEIGHT[here] or (HEIGHT[there] == HEIGHT[here] and (here, there) not in SIDEWAYS))
    }
    assert not upward, f"{here} must not import {', '.join(sorted(upward))}"


def test_a_tool_imports_core_and_craft_only():
    craft = {"core", "schema", "text", "reading", "edit", "shell", "search", "journal", "pool", "mcp", "web", "browser"}
    craft |= {"notebook", "skills", "agents", "memory"}
    for path in (SOURCE / "tools").glob("*.py"):
        strangers = imported(ast.parse(path.read_text(encoding="utf-8"))) - craft - {"tools"}
        assert not strangers, f"{path.name} imports {strangers}"
