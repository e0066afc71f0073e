"""The folder of a Ray worker below /tmp, which every user of the machine can prepare."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from wieldy.faces.batch.ray_engine import ClusterWorker

NOBODY = 65534


@pytest.fixture
def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder like /tmp; the place in it that a worker uses."""
    (tmp_path / "tmp").mkdir()
    (tmp_path / "tmp").chmod(0o1777)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    return tmp_path / "tmp" / f"wieldy-batch-{os.getuid()}"


def start_worker(tmp_path: Path) -> ClusterWorker:
    return ClusterWorker("gate", "", str(tmp_path / "out" / ".shared-x"), {})


def test_a_worker_makes_its_folder_private(shared: Path, tmp_path: Path) -> None:
    start_worker(tmp_path)
    start_worker(tmp_path)
    assert [path.stat().st_mode & 0o777 for path in (shared, *shared.iterdir())] == [0o700, 0o700]


@pytest.mark.parametrize(
    "kind", ["private", "readable", "open", "file", "link", "link to ours", "dangling link", "inside"]
)
def test_a_folder_that_another_user_prepared_is_refused(shared: Path, tmp_path: Path, kind: str) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a folder away")
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    theirs.mkdir()
    ours.mkdir(mode=0o700)
    os.chown(theirs, NOBODY, NOBODY)
    match kind:
        case "private" | "readable" | "open":
            shared.mkdir()
            shared.chmod({"private": 0o700, "readable": 0o755, "open": 0o777}[kind])
        case "file":
            shared.touch()
        case "link" | "link to ours" | "dangling link":
            shared.symlink_to({"link": theirs, "link to ours": ours}.get(kind, ours / "new"))
        case "inside":
            start_worker(tmp_path)
            (inside,) = shared.iterdir()
            inside.rmdir()
            inside.symlink_to(ours)
            shared = inside
    os.chown(shared, NOBODY, NOBODY, follow_symlinks=False)
    with pytest.raises(OSError, match=r"another user|File exists|Not a directory"):
        start_worker(tmp_path)
    assert not list(theirs.iterdir())
    assert not list(ours.iterdir())
