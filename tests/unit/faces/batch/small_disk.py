"""A command prefix that runs a program on a disk of its own: small, in memory, and gone with the program."""

from __future__ import annotations

import shutil
import subprocess

from tests.needs import skip_untested


def small_disk(size: str) -> list[str]:
    """The words before a command; its working folder is then the empty disk."""
    script = f'mount -t tmpfs -o size={size} tmpfs . && cd "$PWD" && exec "$@"'
    prefix = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script, "sh"]
    if not shutil.which("unshare") or subprocess.run([*prefix, "true"], capture_output=True, cwd="/mnt").returncode:
        skip_untested("a full disk: user namespaces cannot be had here")
    return prefix
