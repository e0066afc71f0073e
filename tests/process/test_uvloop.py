"""The core of the suite runs on uvloop too."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from tests.needs import skip_untested

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
CORE = [
    "tests/unit/engine/test_pipeline.py",
    "tests/unit/engine/test_misbehaving_tools.py",
    "tests/unit/engine/test_order.py",
    "tests/unit/files/search",
    "tests/unit/tools/test_grep.py",
    "tests/unit/tools/test_glob.py",
    "tests/unit/tools/test_file_search.py",
    "tests/unit/tools/test_bash.py",
    "tests/unit/tools/test_edit.py",
    "tests/unit/policy/hooks/test_hooks_in_a_toolbox.py",
    "tests/unit/agent/test_session.py",
    "tests/unit/agent/test_steering.py",
]
# libuv starts programs by execvp, which hands a file of unknown format to sh.
NOT_ON_UVLOOP = (
    "tests/unit/files/search/test_ripgrep.py::test_a_program_that_cannot_be_started_is_an_error_that_says_what_to_do"
)


@pytest.mark.timeout(900)
def test_the_core_of_the_suite_passes_on_uvloop() -> None:
    if find_spec("uvloop") is None:
        skip_untested("uvloop is not installed")
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider", "--deselect", NOT_ON_UVLOOP, *CORE],
        cwd=ROOT,
        env={**env, "WIELDY_TEST_LOOP": "uvloop"},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-5_000:]
    assert "[100%]" in done.stdout
