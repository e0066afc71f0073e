"""What the kernel tells about changes in folders, and when it is not relied on."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from tests.needs import skip_untested

from wieldy.files.journal.snapshot_contents import SnapshotScope
from wieldy.files.journal.tree_manifest import FolderWatch, TimeLimit, TreeWalker, WatchedChanges, open_watch
from wieldy.files.journal.tree_snapshot import TreeSnapshots
from wieldy.files.writing.disk import is_local


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    for name in ("a", "b", "b/deep"):
        (root / name).mkdir(parents=True)
        (root / name / "file").write_bytes(b"x" * 10)
    return root


@pytest.fixture
def watch(root: Path):
    watch = open_watch((str(root),))
    if watch is None:
        skip_untested("no inotify on a local file system")
    TreeWalker({}).walk((str(root),), {}, TimeLimit(60), watch=watch)
    yield watch
    watch.close()


def changed(watch: FolderWatch, root: Path) -> set[str] | None:
    changes = watch.changes()
    return None if changes is None else {os.path.relpath(path, root) for path in changes.changed}


def run(code: str, root: Path) -> None:
    subprocess.run([sys.executable, "-c", code], cwd=root, check=True)


@pytest.mark.parametrize(
    "code",
    [
        "open('a/file', 'r+').write('y')",
        "import os; os.truncate('a/file', 3)",
        "import os; os.chmod('a/file', 0o600)",
        "import os; os.utime('a/file', (1, 1))",
        "import os; os.rename('a/file', 'a/other')",
        "import os; os.remove('a/file')",
        "import os; os.symlink('x', 'a/link')",
        "import os; os.mkdir('a/new')",
        "import os; os.chmod('a', 0o700)",
        "import os; os.posix_fallocate(os.open('a/file', os.O_RDWR), 0, 100)",
        "import os; os.sendfile(os.open('a/file', os.O_RDWR), os.open('b/file', 0), 0, 5)",
        # Memory that is written to after the file has been closed, by a process that ends without unmapping it.
        "import os, mmap; fd = os.open('a/file', os.O_RDWR); m = mmap.mmap(fd, 10); os.close(fd); m[0:1] = b'z'; os._exit(0)",
    ],
)
def test_every_way_to_change_something_in_a_folder_is_told(watch, root, code):
    run(code, root)
    assert changed(watch, root) in ({"a"}, {"a", "."})
    assert changed(watch, root) == set()


def test_reading_is_not_a_change(watch, root):
    run("open('a/file').read(); import os; os.listdir('a'); os.stat('a/file')", root)
    assert changed(watch, root) == set()


def test_all_below_a_folder_that_was_put_in_place_of_another_may_differ(watch, root):
    run("import os; os.rename('a', 'away'); os.rename('b', 'a'); os.rename('away', 'b')", root)
    changes = watch.changes()
    assert changes is not None
    assert all(changes.may_differ(f"{root}/{name}") for name in ("a", "b", "b/deep"))
    assert not WatchedChanges(frozenset(), frozenset({f"{root}/c"})).may_differ(f"{root}/a")


def test_what_happens_in_a_new_folder_makes_it_and_all_below_differ(watch, root):
    run("import os; os.makedirs('new/er'); open('new/er/x', 'w').close()", root)
    changes = watch.changes()
    assert changes is not None and changes.may_differ(f"{root}/new/er")


def test_too_many_events_mean_that_nothing_is_known(watch, root):
    with open("/proc/sys/fs/inotify/max_queued_events") as file:
        most = int(file.read())
    for number in range(most + 10):
        path = root / ("a" if number % 2 else "b") / "file"
        os.utime(path, (number, number))
    assert changed(watch, root) is None


def test_a_project_that_moves_away_means_that_nothing_is_known(watch, root):
    root.rename(root.parent / "moved")
    assert changed(watch, root) is None


def test_a_folder_above_the_project_that_moves_away_means_that_nothing_is_known(tmp_path):
    root = tmp_path / "above" / "root"
    root.mkdir(parents=True)
    watch = open_watch((str(root),))
    if watch is None:
        skip_untested("no inotify on a local file system")
    TreeWalker({}).walk((str(root),), {}, TimeLimit(60), watch=watch)
    (tmp_path / "above").rename(tmp_path / "moved")
    assert watch.changes() is None
    watch.close()


def test_a_change_by_another_name_of_a_file_is_found(root, tmp_path):
    (root / "a" / "file").write_text("old")
    os.link(root / "a" / "file", tmp_path / "outside")
    snapshots = TreeSnapshots(tmp_path / "slots", {})
    before = snapshots.take(SnapshotScope((str(root),)))
    (tmp_path / "outside").write_text("new")
    [change] = snapshots.compare(before).changes
    assert (change.path, change.before, change.after) == (f"{root}/a/file", b"old", b"new")
    snapshots.close()


def test_what_changes_while_the_first_walk_is_under_way_is_not_the_commands(root, tmp_path):
    """Somebody saves a file right after the walk has passed it."""

    class Interrupted(FolderWatch):
        def add(self, path: str, descriptor: int) -> None:
            super().add(path, descriptor)
            if path.endswith("deep"):  # the last one
                (root / "a" / "file").write_text("by hand")

    snapshots = TreeSnapshots(tmp_path / "slots", {}, watch_folders=Interrupted)
    before = snapshots.take(SnapshotScope((str(root),)))
    (root / "a" / "file").write_text("by the command")
    [change] = snapshots.compare(before).changes
    assert (change.before, change.after) == (b"by hand", b"by the command")
    snapshots.close()


MOUNTS = """\
22 1 8:1 / / rw - ext4 /dev/sda1 rw
23 22 0:30 / /home rw - nfs4 server:/home rw
24 22 8:2 / /srv rw shared:1 - xfs /dev/sdb rw
25 24 0:31 / /srv/far\\040away rw - fuse.sshfs host: rw
26 22 0:32 / /twice rw - 9p share rw
27 22 8:3 / /twice rw - ext4 /dev/sdc rw
"""


@pytest.mark.parametrize(
    ("folder", "expected"),
    [
        ("/opt/project", True),
        ("/home/me/project", False),
        ("/homes", True),
        ("/srv", False),  # a part of it is on another machine
        ("/srv/project", True),
        ("/srv/far away/project", False),
        ("/srv/far", True),
        ("/twice/project", True),
        ("/", False),
    ],
)
def test_folders_that_other_machines_may_change_are_walked_twice(tmp_path, folder, expected):
    (tmp_path / "mounts").write_text(MOUNTS)
    assert is_local((folder,), str(tmp_path / "mounts")) is expected


def test_without_a_watch_for_every_folder_nothing_is_known(root):
    class Exhausted(FolderWatch):
        def add(self, path: str, descriptor: int) -> None:
            super().add(path, -1 if path.endswith("deep") else descriptor)

    watch = Exhausted((str(root),))
    TreeWalker({}).walk((str(root),), {}, TimeLimit(60), watch=watch)
    assert watch.changes() is None
    watch.close()


def open_watches() -> list[str]:
    links = []
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            links.append(os.readlink(f"/proc/self/fd/{name}"))
    return [link for link in links if "inotify" in link]


def test_watches_that_are_of_no_use_are_left_to_the_command(watch, root):
    """A command such as `npm run dev` needs watches too, and the system has a limit for each user."""
    others = open_watches()
    small = FolderWatch((str(root),), max_watches=2)
    assert len(open_watches()) == len(others) + 1
    TreeWalker({}).walk((str(root),), {}, TimeLimit(60), watch=small)
    assert open_watches() == others
    assert small.changes() is None
    small.close()


def test_a_list_of_mounts_that_cannot_be_read_means_that_nothing_is_known(watch, root):
    used = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, used[1]))  # as when too many files are open
    try:
        changes = watch.changes()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, used)
    assert changes is None
