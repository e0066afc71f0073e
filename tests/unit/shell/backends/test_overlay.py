"""The overlay: the folder below stays as it is, whatever dies, and nothing is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from tests.needs import skip_untested

from wieldy import OverlayBackend, OverlayChange, OverlayError, StaleFileError, Toolbox
from wieldy.core.backend import run_on
from wieldy.shell.backends.overlay import overlay_problem

ENV = {"PATH": os.environ["PATH"]}


@pytest.fixture(autouse=True)
def needs_overlays() -> None:
    if (problem := overlay_problem()) is not None:
        skip_untested(f"the overlay backend: {problem}")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "lower: with, odd \\ name ü"
    (folder / "sub" / "deep").mkdir(parents=True)
    (folder / "a.txt").write_text("alpha\n")
    (folder / "sub" / "b.txt").write_text("beta\n")
    (folder / "sub" / "deep" / "c.txt").write_text("gamma\n")
    return folder


@pytest.fixture
def overlay(root: Path) -> Iterator[OverlayBackend]:
    with OverlayBackend(root) as backend:
        yield backend


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_the_changes_are_told_and_the_folder_stays(overlay, root):
    before = contents(root)
    script = (
        "echo more >> a.txt; rm -r sub/deep; mkdir sub/deep new; echo d > sub/deep/d.txt; ln -s a.txt new/link; "
        "rm sub/b.txt; chmod 700 new"
    )
    code, _, errors = run_on(overlay, ["sh", "-c", script], cwd=str(root), env=ENV, seconds=60)
    assert code == 0, errors
    assert overlay.changes() == [
        OverlayChange("a.txt", "changed"),
        OverlayChange("new/link", "created"),
        OverlayChange("sub/b.txt", "deleted"),
        OverlayChange("sub/deep", "changed"),
        OverlayChange("sub/deep/d.txt", "created"),
    ]
    assert contents(root) == before


def test_an_absolute_link_leads_to_the_overlay_and_not_to_the_folder(overlay, root):
    run_on(overlay, ["ln", "-s", str(root / "a.txt"), "link"], cwd=str(root), env=ENV, seconds=60)
    real = overlay.realpath(f"{root}/link")
    overlay.write(real, b"changed\n", expected=overlay.stat(real).version)
    assert overlay.read(f"{root}/a.txt") == b"changed\n"
    assert (root / "a.txt").read_text() == "alpha\n"


def test_two_overlays_of_one_folder_do_not_see_each_other(overlay, root):
    with OverlayBackend(root) as other:
        assert other.id != overlay.id
        overlay.write(f"{root}/mine", b"x", expected=None)
        with pytest.raises(FileNotFoundError):
            other.stat(f"{root}/mine")


def test_a_worker_that_is_killed_while_it_writes_leaves_each_file_whole(root, tmp_path):
    old, new = b"o" * 2_000_000, b"n" * 2_000_000
    (root / "a.txt").write_bytes(old)
    backend = OverlayBackend(root, scratch=tmp_path / "kept")
    version = backend.stat(f"{root}/a.txt").version
    killer = threading.Timer(0.01, os.kill, (backend.pid, signal.SIGKILL))
    killer.start()
    with suppress(OSError, StaleFileError):
        for content in (new, old) * 50:
            version = backend.write(f"{root}/a.txt", content, expected=version).version
    killer.join()
    with pytest.raises(ConnectionResetError, match="worker of the overlay has ended"):
        backend.read(f"{root}/a.txt")
    backend.close()
    kept = Path(backend.upper, "a.txt")
    assert not kept.exists() or kept.read_bytes() in (old, new)
    assert (root / "a.txt").read_bytes() == old


@pytest.mark.asyncio
async def test_a_toolbox_whose_worker_died_says_so(root, tmp_path):
    backend = OverlayBackend(root)
    async with Toolbox(root, settings={}, mode="bypassPermissions", backend=backend) as box:
        await box.call("Read", file_path="a.txt")
        os.kill(backend.pid, signal.SIGKILL)
        for tool, fields in (
            ("Read", {"file_path": "a.txt"}),
            ("Edit", {"file_path": "a.txt", "old_string": "alpha", "new_string": "omega"}),
            ("Bash", {"command": "true"}),
            ("Grep", {"pattern": "alpha"}),
            ("Glob", {"pattern": "*"}),
            ("LS", {}),
        ):
            result = await box.call(tool, fields)
            assert result.is_error, (tool, result.text)
            assert "Traceback" not in result.text
    backend.close()
    assert not os.path.exists(backend.scratch)
    assert (root / "a.txt").read_text() == "alpha\n"


def test_everything_ends_with_the_process_that_made_it(root, tmp_path):
    ready = tmp_path / "ready"
    program = (
        "import sys, time\n"
        "from wieldy import OverlayBackend\n"
        f"backend = OverlayBackend({str(root)!r}, scratch={str(tmp_path / 'scratch')!r})\n"
        f"process = backend.spawn(['sh', '-c', 'setsid sleep 600 & sleep 600'], cwd={str(root)!r}, env={ENV!r})\n"
        "print(backend.pid, process.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    owner = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    pids = [int(word) for word in owner.stdout.readline().split()]
    assert len(pids) == 2, ready
    descriptors = [os.pidfd_open(pid) for pid in pids]
    owner.kill()
    owner.wait()
    owner.stdout.close()
    for descriptor in descriptors:
        wait_for_end(descriptor)


def wait_for_end(pidfd: int) -> None:
    import select

    try:
        assert select.select([pidfd], [], [], 30)[0], "it still runs"
    finally:
        os.close(pidfd)


def test_closing_removes_the_changes_unless_a_folder_was_named(root, tmp_path):
    with OverlayBackend(root) as first:
        first.write(f"{root}/new", b"x", expected=None)
    assert not os.path.exists(first.scratch)
    with OverlayBackend(root, scratch=tmp_path / "kept") as second:
        second.write(f"{root}/new", b"kept", expected=None)
    assert (tmp_path / "kept" / "upper" / "new").read_bytes() == b"kept"
    with OverlayBackend(root, scratch=tmp_path / "kept") as third:
        assert third.read(f"{root}/new") == b"kept"
        assert third.id == second.id
    second.close()  # a second time
    with pytest.raises(ConnectionResetError, match="the overlay is closed"):
        second.read(f"{root}/new")


def test_what_cannot_be_an_overlay_is_refused(root, tmp_path):
    with pytest.raises(OverlayError, match="is no folder"):
        OverlayBackend(root / "a.txt")
    with pytest.raises(OverlayError, match="inside of"):
        OverlayBackend(root, scratch=root / "sub")
    assert contents(root).keys() == {"a.txt", "sub/b.txt", "sub/deep/c.txt"}
