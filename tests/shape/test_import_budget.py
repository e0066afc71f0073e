"""What is loaded when: exact sets of modules, where milliseconds would be noise."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

REPORT = "import sys; before = set(sys.modules); {code}; print('\\n'.join(sorted(set(sys.modules) - before)))"


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
    loaded = loaded_by("from wieldy import tool; tool(lambda: None)", tmp_path)
    assert foreign(loaded) == set()
    assert "asyncio" not in loaded


def test_a_toolbox_loads_nothing_foreign_until_a_tool_is_called(tmp_path):
    assert foreign(loaded_by("from wieldy import Toolbox; Toolbox('.')", tmp_path)) == set()


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


def test_what_models_are_shown_of_our_tools_is_read_and_not_made(tmp_path):
    loaded = loaded_by(
        "from wieldy.tools import builtin_loaders; [t().schema for t in builtin_loaders().values()]", tmp_path
    )
    assert "wieldy.tools.read" in loaded
    assert "wieldy.schema.field" not in loaded
    assert "wieldy.schema.derive" not in loaded


def test_plain_inputs_of_our_tools_are_taken_without_a_look_at_what_they_were_declared_as(tmp_path):
    code = "from wieldy.tools import builtin_loaders; print(builtin_loaders()['Bash']().parameters.accept({'command': 'a'}))"
    loaded = loaded_by(code, tmp_path)
    assert "wieldy.tools.bash" in loaded
    assert not {"wieldy.schema.field", "wieldy.schema.derive", "msgspec"} & loaded


@pytest.mark.parametrize(
    "later", ["dataclasses", "logging", "wieldy.engine.handle", "wieldy.schema.flat", "wieldy.schema.mend"]
)
def test_a_session_loads_nothing_that_only_a_call_needs(tmp_path, later):
    code = (
        "from wieldy.cli.deferred import import_asyncio; import_asyncio(); from wieldy.session.session import Session"
    )
    loaded = loaded_by(code, tmp_path)
    assert "wieldy.engine.turn" in loaded
    assert later not in loaded


@pytest.mark.parametrize("slow", ["_ssl", "bz2", "h11", "http", "lzma", "shutil", "tempfile", "jsonschema_rs"])
def test_one_call_by_hand_loads_nothing_it_does_not_use(tmp_path, slow):
    (tmp_path / "a.txt").write_text("hello\n")
    code = (
        "import os, sys\nos.environ['WIELDY_HOME'] = 'state'\nsys.argv = ['wieldy', 'call', 'Read', 'file_path=a.txt']\n"
        "from wieldy.__main__ import main\nassert main() == 0"
    )
    loaded = loaded_by(f"exec({code!r})", tmp_path)
    assert "wieldy.reading.show" in loaded
    assert slow not in {name.partition(".")[0] for name in loaded}
