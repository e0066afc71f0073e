"""Undo and redo of symlinks, folders and permissions that a command changed."""

from __future__ import annotations

import asyncio
import errno
import os
import stat
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest
from tests.unit.files.at_once import start_now

from wieldy.core.errors import StaleFileError
from wieldy.core.workspace import Workspace
from wieldy.engine.workspace_services import open_workspace
from wieldy.files.journal.command_snapshots import CommandSnapshot
from wieldy.files.journal.entries import ChangeOrigin
from wieldy.files.journal.journal import Journal
from wieldy.files.journal.undo import carry_out, history, history_lines, plan_lines, plan_undo, redo, undo
from wieldy.files.writing.disk import Disk, WriteError
from wieldy.files.writing.tree_commit import NodeChange

SETUP = """
umask 022
mkdir -p src/deep empty closed
printf a > src/a; printf b > src/deep/b; printf tool > tool; chmod 755 tool; printf plain > plain
ln -s src/a link; ln -s nowhere dangling; ln -s "$PWD/../outside" out; ln -s src folderlink
"""


class Project:
    """A folder, commands that run in it, and undo by a journal on any disk."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.root = folder / "project"
        self.root.mkdir()
        (folder / "outside").mkdir()
        (folder / "outside" / "precious").write_text("not the project's")
        self.env = {"WIELDY_HOME": f"{folder}/home", "HOME": str(folder), "PATH": os.environ["PATH"]}
        self.shell(SETUP)

    def shell(self, command: str) -> None:
        subprocess.run(["bash", "-c", command], cwd=self.root, env=self.env, check=True)

    def run(self, command: str) -> CommandSnapshot:
        """Run a command as the tool does, with snapshots around it."""

        async def run() -> CommandSnapshot:
            options = {"bash": {"snapshotSeconds": 60.0}}
            workspace = open_workspace(self.root, session_dir=self.folder / "session", env=self.env, settings=options)
            snapshot = await CommandSnapshot.take(workspace, None, call_id="c1", tool="Bash")
            self.shell(command)
            await snapshot.record_changes()
            await workspace.aclose()
            return snapshot

        return asyncio.run(run())

    def journal(self, disk: Disk | None = None) -> Journal:
        workspace = Workspace(self.root, session_dir=self.folder / "session", env=self.env)
        return Journal(workspace, disk=disk) if disk is not None else Journal(workspace)

    @property
    def state(self) -> dict[str, object]:
        """What is at each path in the project and outside."""
        found: dict[str, object] = {}
        for top in (self.root, self.folder / "outside"):
            for folder, subfolders, names in os.walk(top):
                for name in (*subfolders, *names):
                    path = os.path.join(folder, name)
                    status = os.lstat(path)
                    mode = stat.S_IMODE(status.st_mode)
                    found[os.path.relpath(path, self.folder)] = (
                        os.readlink(path)
                        if stat.S_ISLNK(status.st_mode)
                        else mode
                        if stat.S_ISDIR(status.st_mode)
                        else (mode, Path(path).read_bytes())
                    )
        return found


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


COMMANDS = {
    "links made, removed, changed": "ln -s x new; rm dangling; ln -sfn src/deep/b link; ln -sfn src/deep folderlink",
    "a link that leads out of the project": "rm out; ln -s ../outside/precious out2",
    "a link in place of a file and back": "rm plain; ln -s src/a plain; rm link; printf file > link",
    "a link in place of a folder": "mv src real; ln -s real src",
    "a link out of the project in place of a folder": 'rm -r src; ln -s "$PWD/../outside" src',
    "a folder in place of a link": "rm folderlink out; mkdir folderlink out; printf x > folderlink/x",
    "a file in place of a folder": "rm -r src; printf file > src",
    "a folder in place of a file": "rm plain; mkdir -p plain/sub; printf x > plain/sub/x; ln -s x plain/link",
    "permissions of files": "chmod 700 plain; chmod -x tool; chmod 4755 src/a",
    "permissions and content": "printf more >> tool; chmod 600 tool; chmod 755 plain; printf '' > plain",
    "permissions of folders": "chmod 700 src; chmod 500 closed; chmod 1777 empty",
    "a folder that is closed after it was changed": "printf new > src/a; rm src/deep/b; mkdir src/more; chmod 500 src src/deep",
    "empty folders": "rmdir empty; mkdir -p made/er; mkdir -m 700 private",
    "folders with permissions that go": "chmod 750 src/deep; rm -r src",
    "a folder that moves": "mv src/deep moved; mv closed src/closed",
    "all at once": "rm -rf * ; printf x > src; mkdir -m 711 plain; ln -s plain tool; mkdir link; printf y > link/y",
}


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS.keys())
def test_undo_and_redo_restore_everything(project, command):
    before = project.state
    assert project.run(command).uncovered == ()
    after = project.state
    assert after != before
    plan = undo(project.journal())
    assert project.state == before and plan.uncovered == ()
    redo(project.journal())
    assert project.state == after
    undo(project.journal())
    assert project.state == before


class FaultyDisk(Disk):
    """Fails once, at the n-th call that changes something, or at all calls from there on, as if the process had died."""

    __slots__ = ("calls", "failing", "forever")

    def __init__(self, failing: int, *, forever: bool) -> None:
        self.calls, self.failing, self.forever = 0, failing, forever

    def count(self) -> None:
        self.calls += 1
        if self.calls == self.failing or (self.forever and self.calls > self.failing):
            raise OSError(errno.EIO, os.strerror(errno.EIO))


def _counted(name: str):
    def call(self, *args, **kwargs):
        self.count()
        return getattr(Disk, name)(self, *args, **kwargs)

    return call


for _name in ("open", "write", "chmod", "chmod_at", "symlink", "link", "rename", "unlink", "mkdir", "rmdir", "sync"):
    setattr(FaultyDisk, _name, _counted(_name))


@pytest.mark.parametrize("command", ["a link in place of a folder", "a folder in place of a file", "all at once"])
def test_an_undo_that_fails_at_any_point_leaves_everything_as_it_was(project, command):
    before = project.state
    project.run(COMMANDS[command])
    after = project.state
    for failing in range(1, 1000):
        disk = FaultyDisk(failing, forever=False)
        journal = project.journal(disk)
        try:
            undo(journal)
        except WriteError:
            start_now(project.journal())  # an error while rolling back is made up for at the next start
            assert project.state == after, failing
            continue
        if disk.calls < failing:
            break
        assert project.state == before, failing
        redo(project.journal())
    assert project.state == before and failing > 10


@pytest.mark.parametrize("command", ["a link in place of a folder", "a folder in place of a file", "all at once"])
def test_a_process_that_dies_at_any_point_of_an_undo_leaves_all_or_nothing(project, command):
    before = project.state
    project.run(COMMANDS[command])
    after = project.state
    outcomes = set()
    for failing in range(1, 1000):
        disk = FaultyDisk(failing, forever=True)
        with suppress(WriteError):
            undo(project.journal(disk))
        start_now(project.journal())
        assert project.state in (before, after), failing
        outcomes.add(project.state == before)
        if project.state == before:
            if disk.calls < failing:
                break
            redo(project.journal())
            assert project.state == after, failing
    assert outcomes == {True, False}


def test_what_somebody_else_changed_since_stays_and_is_named(project):
    project.run("ln -sfn b link; chmod 700 plain; chmod 700 src; mkdir made; printf new > tool")
    project.shell("ln -sfn mine link; chmod 711 plain; chmod 711 src; printf mine > made/mine")
    plan = undo(project.journal())
    assert {os.path.basename(each.path): each.reason for each in plan.uncovered} == {
        "made": "something that undo does not remove is in it",
        "link": "another symlink is there now",
        "plain": "its permissions were changed since",
        "src": "its permissions were changed since",
    }
    assert (project.root / "made" / "mine").read_text() == "mine"
    assert os.readlink(project.root / "link") == "mine" and (project.root / "tool").read_text() == "tool"


def test_a_folder_with_a_file_of_somebody_else_in_it_does_not_make_way(project):
    project.run("rm plain; mkdir plain; printf x > plain/x")
    project.shell("printf mine > plain/mine")
    plan = undo(project.journal())
    assert {os.path.basename(each.path) for each in plan.uncovered} == {"plain"}
    assert os.listdir(project.root / "plain") == ["mine"]


def test_a_restored_link_never_leads_a_write_out_of_the_project(project):
    """The folder has become a link to a folder outside with a file of the same name."""
    (project.folder / "outside" / "a").write_text("outside")
    project.run('printf new > src/a; rm -r src; ln -s "$PWD/../outside" src')
    project.shell("true")
    undo(project.journal())
    assert (project.folder / "outside" / "a").read_text() == "outside"
    assert (project.root / "src" / "a").read_text() == "a"


def test_a_file_of_a_command_is_not_restored_through_a_link_that_somebody_else_made(project):
    project.run("printf new > src/a")
    project.shell('rm -r src; ln -s "$PWD/../outside" src')
    (project.folder / "outside" / "a").write_text("new")
    plan = undo(project.journal())
    assert [os.path.basename(each.path) for each in plan.uncovered] == ["a"]
    assert (project.folder / "outside" / "a").read_text() == "new"


def test_history_and_preview_name_them(project):
    project.run("ln -s x new; chmod 600 plain; mkdir made; rm dangling; ln -sfn b link; rmdir empty")
    [line] = history_lines(history(project.journal()))
    assert "more" in line
    lines = "\n".join(plan_lines(plan_undo(project.journal()))).replace(f"{project.root}/", "")
    assert lines.splitlines()[1:] == [
        "  + dangling (symlink to nowhere)",
        "  + empty (folder)",
        "  ~ link (symlink to src/a)",
        "  - made (folder)",
        "  - new (symlink)",
        "  ~ plain (permissions 600 → 644)",
    ]


def test_what_cannot_come_back_because_of_a_file_without_a_copy_is_named(project):
    """A file that is too large has changed places with a folder."""
    project.shell("head -c 6000000 /dev/zero > big")
    project.run("mv big away; mv src big; mv away src")
    after = project.state
    plan = undo(project.journal())
    named = {os.path.relpath(each.path, project.root) for each in plan.uncovered}
    assert {"big", "src"} <= named and "src/a" in named
    assert (project.root / "src").stat().st_size == 6_000_000
    redo(project.journal())
    assert project.state == after


def test_permissions_that_somebody_changes_after_the_plan_was_made_stay(project):
    project.run("chmod 600 plain; rm link")
    journal = project.journal()
    plan = plan_undo(journal)
    (project.root / "plain").chmod(0o640)
    with pytest.raises(StaleFileError):
        carry_out(journal, plan)
    assert stat.S_IMODE((project.root / "plain").stat().st_mode) == 0o640
    assert not os.path.lexists(project.root / "link")


def test_permissions_that_somebody_changes_after_a_crash_stay(project):
    project.run("chmod 600 plain; chmod 700 tool")
    journal = project.journal()
    plan = plan_undo(journal)
    nodes = [NodeChange(node.path, node.now, node.then) for node in plan.nodes]
    journal.begin((), ChangeOrigin("session", "undo-1", "undo", kind="undo", reverses=plan.reverses), nodes)
    (project.root / "plain").chmod(0o640)
    (project.root / "tool").chmod(0o755)
    project.journal().recover()
    modes = [stat.S_IMODE((project.root / name).stat().st_mode) for name in ("plain", "tool")]
    assert modes == [0o640, 0o700]
