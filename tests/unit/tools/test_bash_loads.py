"""A first command waits for nothing that it has no use for: what it loads is known by name."""

from __future__ import annotations

import subprocess
import sys

import pytest

FIRST_CALL = """
import asyncio, sys
from wieldy import Toolbox

async def main(root, command):
    async with Toolbox(root=root, mode="bypassPermissions", settings={}) as box:
        result = await box.call("Bash", {"command": command, "timeout": 60_000})
        assert not result.is_error, result.text
        print(*sorted(sys.modules))

asyncio.run(main(*sys.argv[1:]))
"""
HEAVY = {"jsonschema_rs", "msgspec", "_hashlib", "shutil", "tempfile", "bz2", "lzma", "unicodedata", "difflib"}
UNCOMMON = {f"wieldy.shell.{name}" for name in ("crude", "fork_bomb", "shfmt", "sandbox", "background", "neutral_git")}


def loaded_by(command: str, folder: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", FIRST_CALL, folder, command],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        env={"PATH": "/usr/bin:/bin", "HOME": folder, "WIELDY_HOME": f"{folder}/state"},
    )
    return set(done.stdout.split())


@pytest.mark.parametrize("command", ["echo a", "true && echo 'a b'", 'echo "$HOME" 2>&1 | read a'])
def test_a_command_of_the_shell_alone_loads_no_table_and_no_second_parser(tmp_path, command):
    loaded = loaded_by(command, str(tmp_path))
    tables = {f"wieldy.shell.programs.{name}" for name in ("git", "find", "sed", "awk", "special", "text_tools")}
    assert "wieldy.shell.session" in loaded
    assert (
        loaded & (HEAVY | UNCOMMON | tables | {"tree_sitter", "wieldy.shell.grammar", "wieldy.shell.snapshot"}) == set()
    )


def test_a_second_parser_comes_alone(tmp_path):
    loaded = loaded_by("ls * | head -1", str(tmp_path))
    assert "tree_sitter" in loaded
    assert loaded & (HEAVY | UNCOMMON | {"importlib.resources", "wieldy.shell.programs.git"}) == set()
