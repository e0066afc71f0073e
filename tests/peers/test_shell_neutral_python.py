"""Beside Python itself: `python3 -m json.tool` runs without a question, and no module of the project runs with it."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

from wieldy import Toolbox

pytestmark = [pytest.mark.peer, pytest.mark.asyncio]

SHADOWED = (
    "json",
    "argparse",
    "re",
    "sys",
    "pathlib",
    "runpy",
    "sitecustomize",
    "usercustomize",
    "encodings",
    "codecs",
)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder in which every module that json.tool may import leaves a mark."""
    project = tmp_path / "project"
    (project / "sub").mkdir(parents=True)
    mark = f"open({str(tmp_path / 'mark')!r}, 'a').write(__name__)\n"
    for folder in (project, project / "sub"):
        for name in SHADOWED:
            (folder / f"{name}.py").write_text(mark)
        (folder / "json").mkdir()
        (folder / "json/__init__.py").write_text(mark)
        (folder / "json/tool.py").write_text(mark)
        (folder / "data.json").write_text('{"a": 1}')
    return project


def _environment(tmp_path: Path, **variables: str) -> dict[str, str]:
    """An environment whose `python3` is ours, and which has the usual programs."""
    bin = tmp_path / "bin"
    bin.mkdir()
    (bin / "python3").symlink_to(os.path.realpath(sys.executable))
    path = f"{bin}:{os.environ['PATH']}"
    return {"PATH": path, "HOME": str(tmp_path), "WIELDY_HOME": str(tmp_path / "state"), **variables}


@pytest.mark.parametrize(
    "command",
    [
        "python3 -m json.tool data.json",
        "python3 -m json.tool < data.json",
        "cat data.json | python3 -m json.tool",
        "cd sub && python3 -m json.tool --sort-keys data.json",
        "for f in data.json sub/data.json; do python3 -m json.tool $f; done",
    ],
)
@pytest.mark.parametrize("search_path", ["", ".", ":", "{project}", "{project}/sub:/nowhere", "sub"])
async def test_no_module_of_the_project_is_imported(
    project: Path, tmp_path: Path, command: str, search_path: str
) -> None:
    env = _environment(tmp_path, PYTHONPATH=search_path.format(project=project))
    async with Toolbox(project, settings={}, env=env) as box:
        result = await box.call("Bash", {"command": command})
    assert not result.is_error, result.text
    assert '"a": 1' in result.text
    assert not (tmp_path / "mark").exists()


async def test_without_these_variables_a_module_of_the_project_does_run(project: Path, tmp_path: Path) -> None:
    """The trap works: what a person allows runs as it would in their shell."""
    async with Toolbox(project, settings={}, env=_environment(tmp_path), ask=lambda question: True) as box:
        await box.call("Bash", {"command": "python3 -P -m json.tool data.json; python3 -m json.tool data.json"})
    assert (tmp_path / "mark").exists()


@pytest.mark.parametrize("name", ["python3", "python3.10", "python3.9", "pypy3", "python2.7"])
async def test_a_python_that_may_be_too_old_is_not_run_and_the_call_says_what_to_write(
    project: Path, tmp_path: Path, name: str
) -> None:
    env = _environment(tmp_path)
    program = tmp_path / "bin" / name
    (tmp_path / "bin/python3").unlink()
    program.write_text(f"#!/bin/sh\ntouch {tmp_path}/mark\n")
    program.chmod(0o755)
    if name != "python3":
        (tmp_path / "bin/python3").symlink_to(name)
    async with Toolbox(project, settings={}, env=env) as box:
        result = await box.call("Bash", {"command": "python3 -m json.tool data.json"})
    assert result.is_error
    assert "Write `python3 -I -m json.tool` instead" in result.text
    assert not (tmp_path / "mark").exists()


async def test_a_startup_file_that_could_put_another_python_first_is_taken_into_account(
    project: Path, tmp_path: Path
) -> None:
    startup = tmp_path / "startup"
    startup.write_text("PATH=/somewhere:$PATH\n")
    async with Toolbox(project, settings={}, env=_environment(tmp_path, WIELDY_ENV_FILE=str(startup))) as box:
        result = await box.call("Bash", {"command": "python3 -m json.tool data.json"})
    assert result.is_error and "-I -m json.tool" in result.text


async def test_where_there_is_no_python_bash_says_so(project: Path, tmp_path: Path) -> None:
    bin = tmp_path / "bin"
    bin.mkdir()
    for program in ("bash", "cat"):
        (bin / program).symlink_to(shutil.which(program) or "")
    env = {"PATH": str(bin), "HOME": str(tmp_path), "WIELDY_HOME": str(tmp_path / "state")}
    async with Toolbox(project, settings={}, env=env) as box:
        result = await box.call("Bash", {"command": "python3 -m json.tool data.json"})
    assert "command not found" in result.text


async def test_variables_of_the_settings_count_like_those_of_the_environment(project: Path, tmp_path: Path) -> None:
    env = _environment(tmp_path)
    async with Toolbox(project, settings={"env": {"PYTHONPATH": "."}}, env=env) as box:
        assert not (await box.call("Bash", {"command": "python3 -m json.tool data.json"})).is_error
    old = tmp_path / "old"
    old.mkdir()
    (old / "python3").write_text(f"#!/bin/sh\ntouch {tmp_path}/mark\n")
    (old / "python3").chmod(0o755)
    async with Toolbox(project, settings={"env": {"PATH": f"{old}:{env['PATH']}"}}, env=env) as box:
        assert (await box.call("Bash", {"command": "python3 -m json.tool data.json"})).is_error
    assert not (tmp_path / "mark").exists()
