"""The real checkers, each where it is installed; those that come with our own development tools always are."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from wieldy.shell.diagnostics.checkers import Diagnostic, checkers_for, new_diagnostics
from wieldy.shell.diagnostics.review import EditedFile

pytestmark = pytest.mark.asyncio

OURS = os.path.dirname(sys.executable)


def only(tmp_path: Path, *names: str) -> dict[str, str]:
    """An environment in which only these programs are installed."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in names:
        found = shutil.which(name, path=f"{OURS}:{os.environ['PATH']}")
        if found is None:
            pytest.skip(f"NOT TESTED: diagnostics by {name}: it is not installed")
        (folder / name).symlink_to(found)
    return {"PATH": str(folder), "HOME": str(tmp_path)}


async def new_diagnostics_in(
    tmp_path: Path, env: dict[str, str], name: str, before: str, after: str, seconds: float = 60
) -> list[Diagnostic]:
    root = tmp_path / "root"
    root.mkdir(exist_ok=True)
    (root / "ruff.toml").write_text('lint.select = ["F"]\n')
    (root / name).write_text(after)
    edited = EditedFile(str(root / name), before.encode(), after.encode(), str(root), str(tmp_path / "cache"), env)
    return await edited.new_diagnostics(seconds)


async def test_ruff_tells_only_what_is_new(tmp_path: Path) -> None:
    env = only(tmp_path, "ruff")
    found = await new_diagnostics_in(
        tmp_path, env, "a.py", "import os\n", "# moved down\nimport os\nimport sys\nprint(zz)\n"
    )
    assert [(p.line, p.rule, p.checker) for p in found] == [(3, "F401", "ruff"), (4, "F821", "ruff")]
    assert await new_diagnostics_in(tmp_path, env, "a.py", "import os\n", "\n\nimport os\n") == []


async def test_mypy_sees_the_project_around_a_content_that_is_not_on_disk(tmp_path: Path) -> None:
    env = only(tmp_path, "mypy")
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "other.py").write_text("def twice(n: int) -> int:\n    return n * 2\n")
    before = "from other import twice\n\nx: str = 1\n"
    found = await new_diagnostics_in(tmp_path, env, "a.py", before, before + "twice('a')\n")
    assert [(p.line, p.rule) for p in found] == [(4, "arg-type")]
    assert not (tmp_path / "root" / ".mypy_cache").exists()


async def test_without_any_checker_python_itself_reads_the_file(tmp_path: Path) -> None:
    found = await new_diagnostics_in(tmp_path, {"PATH": str(tmp_path)}, "a.py", "x = 1\n", "x = 1\ny = (\n")
    assert [(p.line, p.checker) for p in found] == [(2, "python")]
    assert await new_diagnostics_in(tmp_path, {"PATH": str(tmp_path)}, "a.py", "x = 1\n", "x = 2\n") == []
    assert not (tmp_path / "root" / "__pycache__").exists()


async def test_node_reads_javascript(tmp_path: Path) -> None:
    env = only(tmp_path, "node")
    found = await new_diagnostics_in(tmp_path, env, "a.js", "let a = 1;\n", "let a = 1;\nlet b = ;\n")
    assert [(p.line, p.message) for p in found] == [(2, "SyntaxError: Unexpected token ';'")]
    assert await new_diagnostics_in(tmp_path, env, "a.js", "let a = 1;\n", "let a = 2;\n") == []


async def test_tsc_reads_typescript_and_does_not_mind_modules_it_cannot_see(tmp_path: Path) -> None:
    env = only(tmp_path, "tsc", "node")
    after = "import x from 'elsewhere';\nlet a: number = 'x';\nlet b: number = 'y';\n"
    found = await new_diagnostics_in(tmp_path, env, "a.ts", "let a: number = 'x';\n", after)
    assert [(p.line, p.rule) for p in found] == [(3, "TS2322")]


async def test_pyright_reads_python(tmp_path: Path) -> None:
    env = only(tmp_path, "pyright", "node")
    found = await new_diagnostics_in(tmp_path, env, "a.py", "x: int = 'a'\n", "\nx: int = 'a'\nprint(zz)\n")
    assert [(p.line, p.rule) for p in found] == [(3, "reportUndefinedVariable")]


async def test_go_vet_sees_the_package_around_the_file(tmp_path: Path) -> None:
    env = only(tmp_path, "go") | {"GOCACHE": str(tmp_path / "go"), "GOTELEMETRY": "off"}
    if "-C dir" not in subprocess.run(["go", "help", "build"], capture_output=True, text=True, env=env).stdout:
        pytest.skip("NOT TESTED: diagnostics by go: it is older than 1.20")
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "go.mod").write_text("module x\n\ngo 1.20\n")
    (tmp_path / "root" / "b.go").write_text("package p\n\nfunc B() int { return 1 }\n")
    found = await new_diagnostics_in(tmp_path, env, "a.go", "package p\n\nvar A = B()\n", "package p\n\nvar A = C()\n")
    assert [(p.line, p.message) for p in found] == [(3, "undefined: C")]


@pytest.fixture
def slow(tmp_path: Path) -> Iterator[tuple[dict[str, str], Path]]:
    """A `ruff` that writes down its number and then sleeps, with a child that does the same."""
    folder, numbers = tmp_path / "slow", tmp_path / "numbers"
    folder.mkdir()
    program = folder / "ruff"
    program.write_text(f"#!/bin/sh\necho $$ >> {numbers}\nsh -c 'echo $$ >> {numbers}; sleep 600' &\nsleep 600\n")
    program.chmod(0o755)
    yield {"PATH": f"{folder}:/usr/bin:/bin"}, numbers


async def test_a_checker_that_takes_too_long_is_ended_with_its_children(
    tmp_path: Path, slow: tuple[dict[str, str], Path]
) -> None:
    env, numbers = slow
    assert await new_diagnostics_in(tmp_path, env, "a.py", "x = 1\n", "x = (\n", seconds=1.5) == []
    pids = numbers.read_text().split()
    assert len(pids) == 2
    assert not [
        pid for pid in pids if os.path.exists(f"/proc/{pid}/cmdline") and Path(f"/proc/{pid}/cmdline").read_bytes()
    ]


@pytest.mark.parametrize("output", ["", "not json", "[", json.dumps({"a": 1}), "[{}]", "Traceback\n"])
async def test_a_checker_that_talks_nonsense_is_not_heard_or_does_no_harm(tmp_path: Path, output: str) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "said").write_text(output)
    (folder / "ruff").write_text(f"#!/bin/sh\ncat {folder}/said\n")
    (folder / "ruff").chmod(0o755)
    env = {"PATH": f"{folder}:/usr/bin:/bin"}
    found = await new_diagnostics_in(tmp_path, env, "a.py", "x = 1\n", "x = 2\n")
    assert found == []


async def test_which_checkers_speak_for_a_file(tmp_path: Path) -> None:
    env = only(tmp_path, "ruff", "mypy")
    assert [checker.name for checker, _ in checkers_for("/x/a.py", env)] == ["ruff", "mypy"]
    assert [checker.name for checker, _ in checkers_for("/x/a.py", {"PATH": ""})] == ["python"]
    assert checkers_for("/x/a.txt", env) == []
    assert checkers_for("/x/a.ts", env) == []


async def test_new_means_more_of_the_same_too() -> None:
    one, two = Diagnostic(1, "m", "r", "c"), Diagnostic(5, "m", "r", "c")
    assert new_diagnostics([one], [two]) == []
    assert new_diagnostics([one], [one, two]) == [two]
    assert new_diagnostics([one, two], [one]) == []
