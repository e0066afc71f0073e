"""Servers of your own settings run no program of a project; those of a project are what you consented to."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from wieldy import Toolbox
from wieldy.policy.settings import load_settings
from wieldy.policy.settings.consent import Trust

pytestmark = [pytest.mark.asyncio, pytest.mark.timeout(60)]
SERVER = Path(__file__).with_name("scripted_server.py")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WIELDY_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("WIELDY_STARTED", "")
    monkeypatch.delenv("WIELDY_TRUST", raising=False)
    (tmp_path / "home").mkdir()
    root = tmp_path / "project"
    (root / ".wieldy").mkdir(parents=True)
    return root


def write(file: Path, **entry: Any) -> Path:
    file.write_text(json.dumps({"mcpServers": {"s": entry}}))
    return file


def plant(path: Path, mark: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho planted > {mark}\n")
    path.chmod(0o755)


async def state_of(project: Path) -> tuple[str, str]:
    async with Toolbox(project, load_settings=True) as box:
        servers = box.workspace.services.mcp_servers
        await servers.wait_settled(30)
        state = servers.states()["s"]
        return state.name, state.why


@pytest.mark.parametrize("entry_on_path", ["node_modules/.bin", "./node_modules/.bin", "", "absolute"])
async def test_a_program_of_the_project_is_not_your_server(project, tmp_path, monkeypatch, entry_on_path):
    plant(project / "node_modules" / ".bin" / "my-server", tmp_path / "mark")
    plant(project / "my-server", tmp_path / "mark")
    folder = str(project / "node_modules" / ".bin") if entry_on_path == "absolute" else entry_on_path
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}/usr/bin{os.pathsep}/bin")
    monkeypatch.chdir(project)
    write(tmp_path / "home" / "settings.json", command="my-server")
    name, why = await state_of(project)
    assert (name, "there is no program `my-server`" in why) == ("failed", True)
    assert not (tmp_path / "mark").exists()


async def test_what_your_server_starts_is_no_program_of_the_project(project, tmp_path, monkeypatch):
    plant(project / "bin" / "helper", tmp_path / "mark")
    (tmp_path / "linked").symlink_to(project / "bin")
    monkeypatch.setenv("PATH", os.pathsep.join((f"{project}/bin", f"{tmp_path}/linked", "bin", os.environ["PATH"])))
    monkeypatch.chdir(project)
    for args in (["-c", "helper"], ["-c", "env helper"]):
        write(tmp_path / "home" / "settings.json", command="sh", args=args)
        assert (await state_of(project))[0] == "failed"
    assert not (tmp_path / "mark").exists()


async def test_your_server_starts_outside_the_project_and_is_told_of_it(project, tmp_path):
    for module in ("typing", "json", "server_module"):
        (project / f"{module}.py").write_text(f"open({str(tmp_path / 'mark')!r}, 'w')\n")
    told = "os.getcwd(), sys.argv[2], os.environ['WIELDY_PROJECT_DIR']"
    code = f"import os, sys; open(sys.argv[1], 'w').write(' '.join(({told})))"
    args = ["-c", code, str(tmp_path / "told"), "${WIELDY_PROJECT_DIR}"]
    write(tmp_path / "home" / "settings.json", command=sys.executable, args=args)
    await state_of(project)
    cwd, root, variable = (tmp_path / "told").read_text().split()
    assert (root, variable) == (str(project), str(project))
    assert not cwd.startswith(str(project))
    assert os.stat(cwd).st_mode & 0o077 == 0
    write(tmp_path / "home" / "settings.json", command=sys.executable, args=["-m", "server_module"])
    await state_of(project)
    assert not (tmp_path / "mark").exists()


async def test_a_server_of_the_project_starts_in_its_root_wherever_you_stand(project, tmp_path):
    (project / "sub").mkdir()
    (project / "server.py").write_text(f"import os; open({str(tmp_path / 'told')!r}, 'w').write(os.getcwd())\n")
    write(project / ".mcp.json", command=sys.executable, args=["server.py"])
    Trust().accept(str(project), load_settings(project).pending)
    await state_of(project / "sub")
    assert (tmp_path / "told").read_text() == str(project)


@pytest.mark.parametrize(
    "args", [["server.py"], ["-m", "server"], ["-c", "exec(open('server.py').read())", "server.py"]]
)
async def test_a_server_of_the_project_whose_files_changed_asks_again(project, tmp_path, args):
    (project / "server.py").write_text("pass\n")
    write(project / ".mcp.json", command=sys.executable, args=args)
    Trust().accept(str(project), load_settings(project).pending)
    (project / "server.py").write_text(f"open({str(tmp_path / 'mark')!r}, 'w')\n")
    assert (await state_of(project))[0] == "needs approval"
    assert not (tmp_path / "mark").exists()


async def test_a_server_of_the_project_is_not_restarted_with_a_changed_file(project, tmp_path):
    line = [str(SERVER), json.dumps({"log": str(tmp_path / "log")})]
    (project / "conf.json").write_text("{}")
    write(project / ".mcp.json", command=sys.executable, args=[*line, "./conf.json"])
    Trust().accept(str(project), load_settings(project).pending)
    async with Toolbox(project, load_settings=True) as box:
        servers = box.workspace.services.mcp_servers
        await servers.wait_settled(30)
        assert servers.states()["s"].name == "ready"
        servers.enable("s", False)
        (project / "conf.json").write_text("{ }")
        servers.enable("s", True)
        await servers.wait_settled(30)
        state = servers.states()["s"]
    assert state.name == "failed"
    for part in ("conf.json of the project has changed", "mcpServers.s", ".mcp.json", "wieldy permissions trust"):
        assert part in state.why
