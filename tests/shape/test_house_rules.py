"""Rules of AGENTS.md that can be read from the source."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "wieldy"
MODULES = sorted(path for path in SOURCE.rglob("*.py") if "sample" not in path.parts)


def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def test_no_process_is_started_in_a_way_that_turns_vfork_off():
    for path in MODULES:
        assert "preexec_fn" not in path.read_text(encoding="utf-8"), path


def test_every_tool_has_its_prompt_beside_it():
    for path in (SOURCE / "tools").glob("*.py"):
        if not path.stem.startswith("__"):
            assert path.with_suffix(".md").exists(), f"{path.name} has no .md"


def test_no_public_class_name_is_defined_twice():
    places: dict[str, list[str]] = defaultdict(list)
    for path in MODULES:
        for node in parsed(path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(str(path.relative_to(SOURCE)))
    assert {name: where for name, where in places.items() if len(where) > 1} == {}


def test_threads_are_made_in_one_place():
    """Others are one for a connection, for the contents of a journal; or they are in processes of their own."""
    others = {
        "backends/channel.py",
        "backends/checks.py",
        "files/journal/journal.py",
        "shell/sandbox/bridge.py",
    }
    makers = {str(path.relative_to(SOURCE)) for path in MODULES if makes_threads(parsed(path))}
    assert makers - others == {"core/threads.py"}
    assert others <= makers


def makes_threads(module: ast.Module) -> bool:
    calls = [node.func for node in ast.walk(module) if isinstance(node, ast.Call)]
    names = {getattr(call, "attr", getattr(call, "id", "")) for call in calls}
    return not names.isdisjoint({"Thread", "ThreadPoolExecutor", "to_thread", "run_in_executor"})


def test_our_own_python_is_started_in_one_place():
    """Started otherwise it could import modules from a project, with our environment. The others only name its path."""
    others = {"cli/doctor.py", "demo/show.py", "search/ripgrep.py", "diagnostics/checkers.py"}
    users = {
        str(path.relative_to(SOURCE))
        for path in MODULES
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Attribute) and node.attr == "executable" and getattr(node.value, "id", "") == "sys"
    }
    assert users == {"core/own_python.py", *others}
    for path in MODULES:
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.List | ast.Tuple | ast.Call):
                items = node.args if isinstance(node, ast.Call) else node.elts
                words = [ast.unparse(item) for item in items]
                assert ["sys.executable", "'-m'"] not in [words[at : at + 2] for at in range(len(words))], path
