"""Modules taken straight from where Python keeps them compiled are the modules that Python would have found."""

from __future__ import annotations

import compileall
import os
import subprocess
import sys
from pathlib import Path
from py_compile import PycInvalidationMode

import pytest

SRC = Path(__file__).parents[3] / "src"
START = "from wieldy.cli.compiled import Straight, find_straight; find_straight()\n"


@pytest.fixture
def package(tmp_path):
    """A package with a module and a package in it, compiled."""
    home = tmp_path / "site with blank" / "pack"
    (home / "inner").mkdir(parents=True)
    (home / "__init__.py").write_text("")
    (home / "one.py").write_text("VALUE = 1\ndef fail(): raise ValueError('on purpose')\n")
    (home / "inner" / "__init__.py").write_text("from pack.one import VALUE\n")
    compileall.compile_dir(home, quiet=1)
    return home


def ran(code: str, *path: Path, options: tuple[str, ...] = (), **env: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-S", *options, "-c", START + code],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        env={"PYTHONPATH": os.pathsep.join(map(str, (SRC, *path))), **env},
    )
    return done.stdout.splitlines()


def found(package: Path, code: str) -> list[str]:
    return ran(code, package.parent)


def test_a_module_knows_of_itself_what_any_module_knows(package):
    facts = "module.__file__, module.__package__, getattr(module, '__path__', None), module.__spec__.cached"
    code = (
        "import importlib, sys\n"
        "def facts(name):\n"
        f"    module = importlib.import_module(name); return {facts}\n"
        "names = ('pack.one', 'pack.inner', 'json.decoder', 'queue', '_json')\n"
        "ours = [facts(name) for name in names]\n"
        "print(type(sys.modules['pack.one'].__loader__).__name__, type(sys.modules['queue'].__loader__).__name__)\n"
        "sys.meta_path[:] = [one for one in sys.meta_path if not isinstance(one, Straight)]\n"
        "for name in names: sys.modules.pop(name)\n"
        "print(ours == [facts(name) for name in names])\n"
        "print(type(sys.modules['pack.one'].__loader__).__name__)"
    )
    assert found(package, code) == ["Compiled Compiled", "True", "SourceFileLoader"]


def test_its_source_can_be_shown(package):
    assert found(package, "import inspect, pack.one; print(inspect.getsource(pack.one.fail).strip())") == [
        "def fail(): raise ValueError('on purpose')"
    ]


@pytest.mark.parametrize("text", ["VALUE = 2\n", "VALUE = 2\ndef fail(): raise ValueError('on purpose')\n"])
def test_what_was_compiled_from_another_source_is_compiled_anew(package, text):
    (package / "one.py").write_text(text)
    os.utime(package / "one.py", (1_000_000_000, 1_000_000_000))
    code = "import pack.one; print(pack.one.VALUE, type(pack.one.__loader__).__name__)"
    assert found(package, code) == ["2 SourceFileLoader"]
    assert found(package, code) == ["2 Compiled"], "it was kept for the next time"


def test_what_is_checked_by_its_content_is_left_to_python(package):
    compileall.compile_dir(package, quiet=1, force=True, invalidation_mode=PycInvalidationMode.CHECKED_HASH)
    assert found(package, "import pack.one; print(type(pack.one.__loader__).__name__)") == ["SourceFileLoader"]


def test_what_was_compiled_elsewhere_tells_where_it_is_now(package):
    compileall.compile_dir(package, quiet=1, force=True, ddir="/elsewhere")
    code = (
        "import pack.one, traceback\n"
        "try: pack.one.fail()\n"
        "except ValueError as error: print(traceback.extract_tb(error.__traceback__)[-1].filename == pack.one.__file__)"
    )
    assert found(package, code) == ["True"]


def test_a_package_in_several_folders_is_left_to_python(tmp_path):
    for place in ("a", "b"):
        (tmp_path / place / "spread").mkdir(parents=True)
        (tmp_path / place / "spread" / f"of_{place}.py").write_text("")
        compileall.compile_dir(tmp_path / place, quiet=1)
    code = "import spread.of_a, spread.of_b; print(type(spread.of_b.__loader__).__name__)"
    assert ran(code, tmp_path / "a", tmp_path / "b") == ["SourceFileLoader"]


def test_what_comes_with_python_is_not_taken_from_elsewhere(tmp_path):
    (tmp_path / "queue.py").write_text("raise SystemExit('not ours to run')\n")
    assert ran("import queue; print(hasattr(queue, 'SimpleQueue'))", tmp_path) == ["True"]


def test_a_module_that_is_nowhere_is_missed_as_ever(package):
    assert found(package, "try: import pack.two\nexcept ModuleNotFoundError as error: print(error)") == [
        "No module named 'pack.two'"
    ]


def test_where_python_keeps_or_compiles_things_otherwise_nothing_is_changed(tmp_path):
    code = "import sys; print(any(isinstance(one, Straight) for one in sys.meta_path))"
    assert ran(code) == ["True"]
    assert ran(code, options=("-O",)) == ["False"]
    assert ran(code, PYTHONPYCACHEPREFIX=str(tmp_path)) == ["False"]
