from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

import pytest

from wieldy.search.errors import SearchFailure
from wieldy.search.ripgrep import Ripgrep, choose_engine, find_ripgrep


def program(path: Path, said: str = "ripgrep 99.1.0 (rev 0)") -> Path:
    path.write_text(f"#!/bin/sh\necho '{said}'\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def test_the_environment_chooses(tmp_path):
    rg = program(tmp_path / "mine")
    assert find_ripgrep({"WIELDY_RIPGREP": str(rg)}) == Ripgrep(str(rg), "environment")


def test_builtin_means_none_and_its_engine_is_this_interpreter():
    env = {"WIELDY_RIPGREP": "builtin", "PATH": os.defpath}
    assert find_ripgrep(env) is None
    assert choose_engine(env).program[0] == sys.executable


def test_a_choice_that_cannot_be_run_is_said(tmp_path):
    with pytest.raises(SearchFailure, match="WIELDY_RIPGREP"):
        find_ripgrep({"WIELDY_RIPGREP": str(tmp_path / "absent")})


def test_the_version_is_what_the_program_says(tmp_path):
    assert Ripgrep(str(program(tmp_path / "rg")), "path").version == "99.1.0"
    assert Ripgrep(str(program(tmp_path / "other", said="hello")), "path").version == ""
    assert Ripgrep(str(tmp_path / "absent"), "path").version == ""


def test_the_one_beside_the_interpreter_comes_before_the_path(tmp_path):
    program(tmp_path / "rg")
    found = find_ripgrep({"PATH": str(tmp_path)})
    assert found is not None
    beside = Path(sys.executable).parent / "rg"
    assert found.source == ("bundled" if beside.exists() else "path")
