"""Our own Python imports nothing of the folder it is started in, of the environment, or of a script beside it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import wieldy
from wieldy.core.programs import own_python

PLANTED = ("typing", "json", "signal", "msgspec", "sitecustomize", "usercustomize", "wieldy")


def plant(folder: Path, mark: Path) -> None:
    for name in PLANTED:
        (folder / f"{name}.py").write_text(f"open({str(mark)!r}, 'a').write(__name__)\n")


@pytest.mark.parametrize("installed", [True, False])
def test_it_imports_nothing_from_the_working_directory_or_the_environment(tmp_path, installed):
    mark = tmp_path / "mark"
    plant(tmp_path, mark)
    command = own_python("import typing, json, wieldy.core.errors; print(wieldy.__file__)", installed=installed)
    assert command is not None
    env = {
        **os.environ,
        "PYTHONPATH": str(tmp_path),
        "PYTHONSTARTUP": str(tmp_path / "json.py"),
        "PYTHONHOME": "/nowhere",
    }
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=True)
    assert Path(done.stdout.strip()) == Path(wieldy.__file__)
    assert not mark.exists()


def test_it_does_not_take_over_where_a_script_of_the_project_found_its_modules(tmp_path):
    mark = tmp_path / "mark"
    (tmp_path / "tarfile.py").write_text(f"open({str(mark)!r}, 'a').write('planted')\n")
    script = (
        "import subprocess; from wieldy.core.programs import own_python; subprocess.run(own_python('import tarfile'))"
    )
    (tmp_path / "script.py").write_text(script)
    subprocess.run([sys.executable, tmp_path / "script.py"], cwd="/", check=True)
    assert not mark.exists()


def test_packages_that_are_on_no_path_of_the_interpreter_are_found(tmp_path):
    (tmp_path / "others").mkdir()
    (tmp_path / "others" / "only_here.py").write_text("NAME = 'found'\n")
    script = (
        "import subprocess, sys; sys.path.append(sys.argv[1]); from wieldy.core.programs import own_python; "
        "subprocess.run(own_python('import only_here; print(only_here.NAME)', needs=('only_here',)), check=True)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, tmp_path / "others"], cwd="/", capture_output=True, text=True, check=True
    )
    assert done.stdout == "found\n"


def test_it_works_from_an_archive(tmp_path):
    archive = shutil.make_archive(str(tmp_path / "wieldy"), "zip", Path(wieldy.__file__).parents[1], "wieldy/core")
    shutil.make_archive(str(tmp_path / "empty"), "zip", tmp_path)
    with __import__("zipfile").ZipFile(archive, "a") as file:
        file.writestr("wieldy/__init__.py", "")
    script = (
        "import subprocess, sys; sys.path.insert(0, sys.argv[1]); from wieldy.core.programs import own_python; "
        "subprocess.run(own_python('import wieldy.core; print(wieldy.core.__file__)'), check=True)"
    )
    done = subprocess.run([sys.executable, "-c", script, archive], capture_output=True, text=True, check=True)
    assert done.stdout.startswith(archive)
