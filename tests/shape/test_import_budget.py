"""What is loaded when: exact sets of modules, where milliseconds would be noise."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

REPORT = "import sys; before = set(sys.modules); {code}; print('\\n'.join(sorted(set(sys.modules) - before)))"


LIGHT = {"msgspec", "typing_extensions"}
"""What records are made of: loaded with everything."""


def loaded_by(code: str, cwd: Path) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-I", "-c", REPORT.format(code=code)], capture_output=True, text=True, cwd=cwd, check=True
    )
    return set(done.stdout.split())


def foreign(modules: set[str]) -> set[str]:
    """Top-level packages that come neither from us nor with Python."""
    tops = {name.partition(".")[0] for name in modules}
    return tops - {"wieldy", "__future__"} - set(sys.stdlib_module_names)


def test_importing_wieldy_loads_one_module(tmp_path):
    assert {name for name in loaded_by("import wieldy", tmp_path) if name.startswith("wieldy")} == {"wieldy"}
    assert foreign(loaded_by("import wieldy", tmp_path)) == set()


def test_declaring_a_tool_loads_neither_asyncio_nor_anything_foreign(tmp_path):
    loaded = loaded_by("from wieldy import tool; tool(name='nothing')(lambda: None)", tmp_path)
    assert foreign(loaded) <= LIGHT
    assert "asyncio" not in loaded


def test_a_toolbox_loads_nothing_foreign_until_a_tool_is_called(tmp_path):
    assert foreign(loaded_by("from wieldy import Toolbox; Toolbox('.')", tmp_path)) <= LIGHT


@pytest.mark.parametrize(
    "heavy", ["pydantic", "rich", "prompt_toolkit", "httpx2", "mcp", "chardet", "tree_sitter", "PIL"]
)
def test_reading_a_small_file_loads_nothing_heavy(tmp_path, heavy):
    (tmp_path / "a.txt").write_text("hello\n")
    code = (
        "import asyncio\nfrom wieldy import Toolbox\n"
        "async def main():\n    async with Toolbox('.') as box:\n        r = await box.call('Read', file_path='a.txt')\n"
        "        assert not r.is_error, r.text\nasyncio.run(main())"
    )
    assert heavy not in {name.partition(".")[0] for name in loaded_by(f"exec({code!r})", tmp_path)}


def test_the_version_is_answered_without_argparse_or_asyncio(tmp_path):
    code = "import sys; sys.argv = ['wieldy', '--version']; from wieldy.__main__ import main; main()"
    loaded = loaded_by(code, tmp_path)
    assert "argparse" not in loaded
    assert "asyncio" not in loaded
