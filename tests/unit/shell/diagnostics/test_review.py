from __future__ import annotations

import asyncio
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.needs import skip_untested

from wieldy import Toolbox
from wieldy.shell.diagnostics import checkers
from wieldy.shell.diagnostics.checkers import Checker
from wieldy.shell.sandbox.sandbox import choose_wrapper

pytestmark = pytest.mark.asyncio


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WIELDY_HOME", str(tmp_path / "home"))
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "ruff").symlink_to(Path(os.path.dirname(sys.executable), "ruff"))
    monkeypatch.setenv("PATH", str(folder))
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "ruff.toml").write_text('lint.select = ["F"]\n')
    return tmp_path / "root"


def box(root: Path, value: Any = 60) -> Toolbox:
    return Toolbox(root, settings={"edit": {"diagnostics": value}}, mode="bypassPermissions")


async def edit(toolbox: Toolbox, old: str, new: str) -> Any:
    await toolbox.call("Read", file_path="a.py")
    return await toolbox.call("Edit", file_path="a.py", old_string=old, new_string=new)


async def test_an_edit_is_told_what_it_broke(root: Path) -> None:
    (root / "a.py").write_text("import os\nx = 1\n")
    async with box(root) as toolbox:
        result = await edit(toolbox, "x = 1", "x = y")
    assert not result.is_error
    assert result.text.endswith(
        f"This edit brought 1 new problem into {root}/a.py:\n  line 2: Undefined name `y` [F821] (ruff)"
    )
    assert result.data["diagnostics"][0]["line"] == 2
    assert result.data["replacements"] == 1


async def test_a_good_edit_and_a_new_file_without_faults_say_nothing(root: Path) -> None:
    (root / "a.py").write_text("import os\nx = 1\n")
    async with box(root) as toolbox:
        assert "new problem" not in (await edit(toolbox, "x = 1", "x = 2")).text
        assert "new problem" not in (await toolbox.call("Write", file_path="b.py", content="x = 1\n")).text
        assert "2 new problems" in (await toolbox.call("Write", file_path="c.py", content="import os\nx = y\n")).text


@pytest.mark.parametrize("value", [None, False, 0, -1, "yes", {}])
async def test_it_is_off_unless_asked_for(root: Path, value: Any) -> None:
    (root / "a.py").write_text("x = 1\n")
    async with box(root, value) as toolbox:
        result = await edit(toolbox, "x = 1", "x = y")
    assert not result.is_error
    assert "new problem" not in result.text


async def test_failed_edits_and_other_files_are_not_checked(root: Path) -> None:
    (root / "a.py").write_text("x = 1\n")
    async with box(root) as toolbox:
        failed = await edit(toolbox, "absent", "x = y")
        assert failed.is_error
        assert "new problem" not in failed.text
        assert not (await toolbox.call("Write", file_path="a.txt", content="x = y")).is_error


async def test_many_problems_are_counted_not_listed(root: Path) -> None:
    async with box(root) as toolbox:
        result = await toolbox.call("Write", file_path="a.py", content="".join(f"print(a{n})\n" for n in range(15)))
    assert "15 new problems" in result.text
    assert result.text.endswith("… and 5 more")


async def test_multi_edit_too(root: Path) -> None:
    (root / "a.py").write_text("x = 1\n")
    async with box(root, True) as toolbox:
        await toolbox.call("Read", file_path="a.py")
        edits = [{"old_string": "x", "new_string": "z"}, {"old_string": "1", "new_string": "y"}]
        assert "Undefined name `y`" in (await toolbox.call("MultiEdit", file_path="a.py", edits=edits)).text


async def test_an_interruption_does_not_wait_for_a_checker(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started, slow = root.parent / "started", root.parent / "slow"
    slow.mkdir()
    (slow / "ruff").write_text(f"#!/bin/sh\necho > {started}\nexec sleep 600\n")
    (slow / "ruff").chmod(0o755)
    monkeypatch.setenv("PATH", f"{slow}:/usr/bin:/bin")
    async with box(root, 600) as toolbox:
        writing = asyncio.gather(toolbox.call("Write", file_path="a.py", content="x = y\n"))
        while not started.exists():
            await asyncio.sleep(0.02)
        toolbox.abort()
        (result,) = await asyncio.wait_for(writing, 30)
    assert not result.is_error
    assert (root / "a.py").read_text() == "x = y\n"


async def test_a_checker_gets_no_secrets_of_the_environment(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = root.parent / "bin" / "ruff"
    program.unlink()
    program.write_text(f"#!/bin/sh\nexport > {root}/seen\n")
    program.chmod(0o755)
    monkeypatch.setenv("SOME_API_TOKEN", "hunter2")
    monkeypatch.setenv("SOME_PLACE", "here")
    async with box(root) as toolbox:
        await toolbox.call("Write", file_path="a.py", content="x = y\n")
    seen = (root / "seen").read_text()
    assert "SOME_PLACE" in seen
    assert "hunter2" not in seen


PLUGIN = """
import pathlib
from mypy.plugin import Plugin

def plugin(version):
    for place in {places!r}:
        try:
            pathlib.Path(place).write_text("ran")
        except OSError:
            pass
    return Plugin
"""


def plant_plugin(root: Path) -> list[Path]:
    """A project whose mypy configuration names a plugin; returns the files that would show that it could write."""
    marks = [root / "mark", root.parent / "mark"]
    (root / "plug.py").write_text(PLUGIN.format(places=list(map(str, marks))))
    (root / "mypy.ini").write_text("[mypy]\nplugins = plug.py\npython_executable = ./python\n")
    (root / "python").write_text(f'#!/bin/sh\ntouch {marks[0]}\nexec {sys.executable} "$@"\n')
    (root / "python").chmod(0o755)
    (root / "a.py").write_text("x: int = 1\n")
    return marks


def only_on_path(monkeypatch: pytest.MonkeyPatch, folder: Path, *programs: str | Path) -> None:
    folder.mkdir(exist_ok=True)
    for program in programs:
        (folder / Path(program).name).symlink_to(program)
    monkeypatch.setenv("PATH", str(folder))


MYPY = Path(os.path.dirname(sys.executable), "mypy")


async def test_a_plugin_of_the_project_does_not_run_where_there_is_no_sandbox(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    marks = plant_plugin(root)
    only_on_path(monkeypatch, tmp_path / "only", MYPY)
    async with box(root) as toolbox:
        result = await edit(toolbox, "= 1", "= ''")
    assert "Incompatible types in assignment" in result.text
    assert not any(mark.exists() for mark in marks)


async def test_a_plugin_of_the_project_can_change_nothing_in_the_sandbox(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bwrap = shutil.which("bwrap", path="/usr/bin:/bin:/usr/local/bin")
    if bwrap is None or choose_wrapper("/usr/bin:/bin:/usr/local/bin", "bubblewrap").mechanism != "bubblewrap":
        skip_untested("bubblewrap does not work")
    marks = plant_plugin(root)
    (root / "mypy.ini").write_text("[mypy]\nplugins = plug.py\ndisallow_untyped_defs = True\n")
    only_on_path(monkeypatch, tmp_path / "only", MYPY, bwrap, "/bin/bash")
    async with box(root) as toolbox:
        result = await edit(toolbox, "x: int = 1", "def f(x): return x")
    assert "Function is missing a type annotation" in result.text, "the project's configuration counts"
    assert not any(mark.exists() for mark in marks)


@pytest.mark.parametrize("checker", ["ruff", "mypy", "pyright", "tsc", "go", "node"])
@pytest.mark.parametrize("place", ["bin", "outside"])
async def test_no_checker_of_the_project_runs_outside_a_sandbox(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, checker: str, place: str
) -> None:
    """Neither one in its folder, nor one that a link outside leads to."""
    program = root / "bin" / checker
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\n: > {tmp_path}/mark\n")
    program.chmod(0o755)
    if place == "outside":
        only_on_path(monkeypatch, tmp_path / "only", program)
    else:
        monkeypatch.setenv("PATH", f"{program.parent}:./bin:bin:")
    suffix = {"tsc": "ts", "go": "go", "node": "js"}.get(checker, "py")
    monkeypatch.chdir(root)
    async with box(root) as toolbox:
        await toolbox.call("Write", file_path=f"a.{suffix}", content="x = 1\n")
    assert not (tmp_path / "mark").exists()


ALL_CHECKERS = [value for value in vars(checkers).values() if isinstance(value, Checker)]


async def test_every_checker_says_how_it_is_kept_from_code_of_the_project() -> None:
    """A new one must be looked at: does it load plugins, run a toolchain, or start programs in its folder?"""
    data_only = {"ruff", "tsc", "node", "python"}
    kept = {checker.name for checker in ALL_CHECKERS if checker.without_plugins or checker.env or checker.in_scratch}
    assert {checker.name for checker in ALL_CHECKERS} == data_only | kept
