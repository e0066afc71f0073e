"""Imports only go down one total order of packages. Read from the source, so that a lazy import counts too."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "wieldy"

# From the bottom up: a package imports those before it, and itself. The exceptions are for types, in TYPE_ONLY below.
ORDER = [
    # vocabulary
    "schema",
    "core",
    # the way to the terminal
    "console",
    # mechanism: one call, through protocols of core
    "engine",
    # domains: know nothing of models
    "search",
    "files",
    "web",
    "shell",
    "working_copies",
    "backends",
    "browser",
    "diagnostics",
    "memory",
    "skills",
    "subagents",
    # policy
    "permissions",
    "hooks",
    "toolset",
    "settings",
    # adapters
    "mcp.client",
    "tools",
    "providers",
    # assembly
    "workspace_services",
    "approval",
    "wiring",
    "toolbox_options",
    "turn",
    "framework_adapters",
    "toolbox_access",
    "toolbox",
    "agent",
    # faces
    "mcp.server",
    "testing",
    "terminal",
    "headless",
    "adapters",
    "batch",
    "demo",
    "cli",
    "__main__",
]
HEIGHT = {package: height for height, package in enumerate(ORDER)}
MODULES = sorted(path for path in SOURCE.rglob("*.py") if "sample" not in path.parts)
FRONT_DOORS = {"__init__.py", "mcp/__init__.py"}
"""Name their contents lazily, or nothing."""
TYPE_ONLY = {"core/effects.py": "shell", "core/workspace.py": "workspace_services"}
"""A workspace holds its services, and a command its analysis, without knowing them: they name the type and import nothing."""


def package_of(parts: tuple[str, ...]) -> str:
    first = parts[0].removesuffix(".py")
    return f"mcp.{parts[1].removesuffix('.py')}" if first == "mcp" and len(parts) > 1 else first


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


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_no_module_imports_upward(path: Path):
    relative = path.relative_to(SOURCE)
    if str(relative) in FRONT_DOORS:
        return
    here = package_of(relative.parts)
    assert here in HEIGHT, "give the package a place in ORDER"
    tree = ast.parse(path.read_text(encoding="utf-8"))
    if (type_only := TYPE_ONLY.get(str(relative))) is not None:
        [block] = [each for each in tree.body if isinstance(each, ast.If) and ast.unparse(each.test) == "TYPE_CHECKING"]
        assert imported(block) - {"core"} == {type_only}
        tree.body.remove(block)
    upward = {there for there in imported(tree) if HEIGHT[there] > HEIGHT[here]}
    assert not upward, f"{here} must not import {', '.join(sorted(upward))}"


@pytest.mark.parametrize("domain", ORDER[ORDER.index("engine") + 1 : ORDER.index("permissions")])
def test_a_domain_knows_nothing_of_the_engine(domain: str):
    for path in (SOURCE / domain).rglob("*.py"):
        assert "engine" not in imported(ast.parse(path.read_text(encoding="utf-8"))), path


def test_a_tool_imports_domains_only():
    above = {"permissions", "hooks", "settings", "providers", "approval", "toolbox", "agent", "engine"}
    for path in (SOURCE / "tools").glob("*.py"):
        strangers = imported(ast.parse(path.read_text(encoding="utf-8"))) & above
        assert not strangers, f"{path.name} imports {strangers}"
