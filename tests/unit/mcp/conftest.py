"""A server of a few lines that does what it is told, well or badly, and toolboxes that are connected to it."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from wieldy import Toolbox
from wieldy.engine.workspace_services import HostServices

SCRIPT = Path(__file__).with_name("scripted_server.py")


class Stage:
    """Writes servers and toolboxes for one test."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = folder / "server.log"

    def entry(self, timeout: int = 20_000, startup: int = 20_000, **habits: Any) -> dict[str, Any]:
        """Settings of a server with these habits."""
        told = json.dumps({"log": str(self.log), **habits})
        args = ["-I", "-S", str(SCRIPT), told]
        return {"command": sys.executable, "args": args, "timeout": timeout, "startupTimeout": startup}

    def box(
        self,
        ask: Any = None,
        settings: dict[str, Any] | None = None,
        host: HostServices | None = None,
        wait_for_servers: float = 0,
        **servers: dict[str, Any],
    ) -> Toolbox:
        """A toolbox with these servers, all of whose tools are allowed."""
        allow = [f"mcp__{name}__*" for name in servers]
        return Toolbox(
            self.folder,
            ask=ask,
            host=host,
            settings={"mcpServers": servers, "permissions": {"allow": allow}, **(settings or {})},
            wait_for_servers=wait_for_servers,
        )

    def words(self) -> list[str]:
        """What the servers have noted."""
        return self.log.read_text().splitlines() if self.log.exists() else []

    def pids(self) -> list[int]:
        """Every process that a server said it is or started."""
        return [int(word.split()[1]) for word in self.words() if word.startswith("started")]


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    monkeypatch.setenv("WIELDY_HOME", str(tmp_path / "home"))
    work = tmp_path / "work"
    work.mkdir()
    return Stage(work)


@pytest.fixture
def states() -> Callable[[Toolbox], dict[str, str]]:
    """How the servers of a toolbox are doing, in words."""
    return lambda box: {name: state.name for name, state in box.workspace.services.mcp_servers.states().items()}
