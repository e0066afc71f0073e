"""Copies by reflink on real file systems that have them: an image is formatted and mounted for the test alone."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.needs import skip_untested

CODE = """
import os, sys
from pathlib import Path
from wieldy.faces.batch.isolation import SourceCache, make_copy
from wieldy.faces.batch.tasks import TaskSource
from wieldy.files.working_copies import IsolationError

disk, elsewhere = Path(sys.argv[1]), Path(sys.argv[2])
project = disk / "project"
(project / "sub").mkdir(parents=True)
(project / "sub" / "small").write_text("small")
(project / "sub" / "small").chmod(0o750)
(project / "large").write_bytes(os.urandom(60_000_000))
sources = SourceCache(disk / "sources")

def copy(isolate, number, scratch=disk):
    return make_copy(TaskSource("root", str(project)), isolate, scratch / f"attempt-{number}", sources)

# Ten copies of 60 MB on a disk of 400 MB: they share the blocks.
copies = [copy("reflink", number) for number in range(10)]
auto = copy("auto", "auto")
print(auto.way, {each.way for each in copies})
print((copies[3].path / "sub" / "small").read_text(), oct((copies[3].path / "sub" / "small").stat().st_mode & 0o777))
with open(copies[3].path / "large", "r+b") as file:
    file.write(b"changed")
print((project / "large").read_bytes()[:7] != b"changed", (copies[4].path / "large").read_bytes()[:7] != b"changed")
try:
    copy("reflink", "x", elsewhere)
except IsolationError as error:
    print(error)
"""


@pytest.mark.parametrize(("format", "size"), [("btrfs", 400), ("xfs", 400)])
def test_a_reflink_copy_shares_blocks_and_nothing_else(tmp_path, format, size):
    if os.getuid() != 0 or not shutil.which("unshare"):
        skip_untested(f"reflink on {format}: an image can only be mounted as root")
    if not shutil.which(f"mkfs.{format}"):
        skip_untested(f"reflink on {format}: mkfs.{format} is missing")
    image, disk = tmp_path / "image", tmp_path / "disk"
    disk.mkdir()
    with open(image, "wb") as file:
        os.truncate(file.fileno(), size * 1_000_000)
    subprocess.run([f"mkfs.{format}", "-q", image], check=True, capture_output=True)
    # In a mount namespace of its own: the mount and the loop device end with the program.
    mount = ["unshare", "--mount", "sh", "-c", 'mount -o loop "$1" "$2" && shift 2 && exec "$@"', "sh", image, disk]
    if (trial := subprocess.run([*mount, "true"], capture_output=True, text=True)).returncode:
        skip_untested(f"reflink on {format}: {trial.stderr.strip()}")
    words = [*mount, sys.executable, "-c", CODE, disk, tmp_path]
    done = subprocess.run(words, capture_output=True, text=True)
    lines = done.stdout.splitlines()
    assert lines[:3] == ["reflink {'reflink'}", "small 0o750", "True True"], done.stderr
    assert f"or {Path(tmp_path, 'attempt-x')} is on another one (--work)" in lines[3]
