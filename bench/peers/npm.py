"""Peers that come from npm, each in a folder of its own beside the virtual environments of the others."""

from __future__ import annotations

import platform
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from bench.peers import FOLDER

NODE = "22.23.3"


class NotInstalled(Exception):
    """A peer that could not be had; says why in one line."""


@dataclass(frozen=True, slots=True)
class Package:
    """A program from npm: what it is called, its package and version, and the major version of node it needs."""

    command: str
    package: str
    version: str
    node: int = 0

    @property
    def folder(self) -> Path:
        """Where it is installed."""
        return FOLDER / "npm" / self.command

    @property
    def program(self) -> str:
        """What is run."""
        return str(self.folder / "node_modules" / ".bin" / self.command)

    def install(self) -> None:
        """Have it, and a node that runs it. Raises `NotInstalled`."""
        if not (self.folder / f"{self.version}.ready").exists():
            _install(self.folder, f"{self.package}@{self.version}")
            (self.folder / f"{self.version}.ready").touch()
        if (folder := self.node_folder()) and not (folder / "node").exists():
            _install(FOLDER / "npm" / "node", f"{_node_package()}@{NODE}")

    def node_folder(self) -> Path | None:
        """The folder of a node that is new enough; None where the machine's own is."""
        if not self.node or _machine_node() >= self.node:
            return None
        return FOLDER / "npm" / "node" / "node_modules" / _node_package() / "bin"


def _install(folder: Path, package: str) -> None:
    npm = shutil.which("npm")
    if npm is None:
        raise NotInstalled("there is no npm on this machine")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "package.json").write_text('{"private": true}')
    done = subprocess.run(
        [npm, "install", "--no-audit", "--no-fund", package],
        check=False,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=900,
    )
    if done.returncode:
        raise NotInstalled(f"npm could not install {package}: {(done.stderr.splitlines() or ['no reason given'])[-1]}")


def _machine_node() -> int:
    node = shutil.which("node")
    if node is None:
        return 0
    told = subprocess.run([node, "--version"], check=False, capture_output=True, text=True, timeout=30).stdout
    return int(told.strip().removeprefix("v").partition(".")[0] or 0)


def _node_package() -> str:
    machine = {"x86_64": "x64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    return f"node-{platform.system().lower()}-{machine}"
