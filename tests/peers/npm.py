"""Install npm packages for peer tests once per machine, within a time limit; skip the tests where that fails."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

from tests.needs import skip_untested

SECONDS = 100
RETRY_AFTER = 3600
"""Seconds for which a failed installation is not tried again."""


def install_packages(purpose: str, packages: tuple[str, ...]) -> Path:
    """Return a folder with these packages in `node_modules`. Skips the running test where npm cannot install them."""
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        skip_untested(f"{purpose}: npm is not installed")
    digest = hashlib.sha256("\n".join(packages).encode()).hexdigest()[:12]
    folder = Path(tempfile.gettempdir(), f"wieldy-npm-{os.getuid()}-{digest}")
    folder.mkdir(mode=0o700, exist_ok=True)
    assert folder.stat().st_uid == os.getuid(), f"{folder} belongs to somebody else"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        failed = folder / "failed"
        if failed.exists() and time.time() - failed.stat().st_mtime < RETRY_AFTER:
            skip_untested(f"{purpose}: npm could not install the packages")
        if not (folder / "complete").exists():
            options = ["--no-audit", "--no-fund", "--force", "--fetch-retries=1", "--fetch-timeout=20000"]
            command = [npm, "install", *options, "--prefix", str(folder), *packages]
            try:
                subprocess.run(command, capture_output=True, timeout=SECONDS, cwd=folder, check=True)
            except (subprocess.TimeoutExpired, subprocess.CalledProcessError):
                failed.touch()
                skip_untested(f"{purpose}: npm could not install the packages")
            (folder / "complete").touch()
    return folder
