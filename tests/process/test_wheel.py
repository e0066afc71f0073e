"""The wheel is built, installed into an empty environment, and used there."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from tests.needs import skip_untested

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
SECONDS = 100


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "--quiet", "--no-deps"]
    command = [*pip, "--no-build-isolation", "--wheel-dir", str(folder), str(ROOT)]
    subprocess.run(command, check=True, capture_output=True, timeout=SECONDS)
    (built,) = folder.glob("*.whl")
    return built


def test_the_wheel_has_metadata_prompts_and_no_tests(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        metadata = archive.read(next(name for name in names if name.endswith("/METADATA"))).decode()
    for line in ("Project-URL: Homepage", "Project-URL: Changelog", "Keywords:", "Requires-Python: >=3.11"):
        assert line in metadata
    assert "wieldy/py.typed" in names
    assert "wieldy/tools/read.md" in names
    assert {"wieldy/shell/running/preamble.sh", "wieldy/shell/running/ripgreprc"} <= set(names)
    assert not [name for name in names if name.startswith(("tests/", "bench/"))]


@pytest.mark.timeout(240)
def test_the_demo_works_from_the_wheel(wheel: Path, tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "environment"], cwd=tmp_path, check=True, timeout=SECONDS)
    python = tmp_path / "environment" / "bin" / "python"
    pip = [str(python), "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--retries", "1"]
    try:
        subprocess.run([*pip, "--prefer-binary", str(wheel)], check=True, capture_output=True, timeout=SECONDS)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired):
        skip_untested("the wheel in an empty environment: pip could not install its dependencies")
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "WIELDY_HOME": str(tmp_path / "home")}
    done = subprocess.run(
        [str(python.with_name("wieldy")), "demo"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "undo" in done.stdout.lower()
