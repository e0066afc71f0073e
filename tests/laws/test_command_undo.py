"""For random trees and random commands: undo restores every file, symlink, folder and permission that is not named."""

from __future__ import annotations

import asyncio
import contextlib
import os
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from wieldy.core.workspace import Workspace
from wieldy.engine.workspace_services import open_workspace
from wieldy.files.journal.command_snapshots import CommandSnapshot
from wieldy.files.journal.undo import CannotUndo, UndoPlan, UndoSelector, redo, undo

NAMES = ["a", "b", "c.txt", "d/e", "d/f", "d/g/h", "d", "x y", "ü", "skip", "build/out"]
# Files of more than 40 bytes have no copy.
CONTENTS = st.sampled_from([b"", b"one\n", b"two\ntwo\n", b"\0\xff", b"forty-one bytes, which is more than is kept"])
TREES = st.dictionaries(st.sampled_from([name for name in NAMES if name != "d"]), CONTENTS, max_size=8)

NAME = st.sampled_from(NAMES).map(lambda name: f"'{name}'")
# Where symlinks lead: to a file, a folder, nowhere, round in a circle, out of the project.
TARGET = st.sampled_from(["a", "d", "nowhere/at/all", "loop", "../outside", "$PWD/../outside"])
COMMANDS = st.one_of(
    st.builds("mkdir -p $(dirname {0}) && printf 'new %s' {1} > {0}".format, NAME, NAME),
    st.builds("printf more >> {}".format, NAME),
    st.builds("rm -f {}".format, NAME),
    st.builds("rm -rf {}".format, NAME),
    st.builds("mv {} {}".format, NAME, NAME),
    st.builds("cp -r {} {}".format, NAME, NAME),
    st.builds("ln -sf {} {}".format, NAME, NAME),
    st.builds("rm -rf {1}; ln -sfn {0} {1}".format, TARGET, NAME),
    st.builds("ln -sfn {} {}".format, TARGET, NAME),
    st.builds("chmod {} {}".format, st.sampled_from(["600", "755", "4755", "u-w", "0"]), NAME),
    st.builds("mkdir -p {}".format, NAME),
    st.builds("rm -f {0}; mkdir -p {0}; printf inner > {0}/inner".format, NAME),
    st.builds("rmdir {}".format, NAME),
    st.builds("mkdir -m 700 {}".format, NAME),
    st.builds("touch {}".format, NAME),
    st.builds("sed -i s/one/two/ {}".format, NAME),
    st.builds("truncate -s 1 {}".format, NAME),
    st.builds("mv {0} .away; mv {1} {0}; mv .away {1}".format, NAME, NAME),
    st.builds("ln -f {} {}".format, NAME, NAME),
    st.builds("head -c 50 /dev/zero > {}".format, NAME),
    st.just("echo build > .gitignore"),
    st.just("rm -f .gitignore"),
    st.just("git add -A; git -c user.name=t -c user.email=t@t commit -qm x"),
    st.just("rm -rf .git"),
)
SCRIPTS = st.lists(st.lists(COMMANDS, min_size=1, max_size=4).map("\n".join), min_size=1, max_size=3)


def open_project(folder: str) -> Workspace:
    root = Path(folder, "project")
    root.mkdir()
    env = {"WIELDY_HOME": f"{folder}/home", "HOME": folder, "PATH": os.environ["PATH"]}
    options = {"bash": {"snapshotSeconds": 60.0}}
    workspace = open_workspace(root, session_dir=f"{folder}/session", env=env, settings=options)
    trees = workspace.services.command_snapshots.trees
    trees.contents.limits = replace(trees.contents.limits, file_bytes=40)
    return workspace


@contextlib.contextmanager
def opened(path: str, needed: int) -> Iterator[int]:
    """Give the permissions of a file or folder of ours; within, we have those that are needed."""
    mode = stat.S_IMODE(os.stat(path).st_mode)
    if mode & needed != needed:
        os.chmod(path, mode | needed)
    try:
        yield mode
    finally:
        if mode & needed != needed:
            os.chmod(path, mode)


def state_of(folder: str) -> dict[str, object]:
    """What is at each path: content and permissions of files, targets of symlinks, permissions of folders."""
    found: dict[str, object] = {}
    for name in sorted(os.listdir(folder)):
        path = os.path.join(folder, name)
        if os.path.islink(path):
            found[path] = os.readlink(path)
        elif not os.path.isdir(path):
            with opened(path, stat.S_IRUSR) as mode:
                found[path] = (mode, Path(path).read_bytes())
        elif name != ".git":
            with opened(path, stat.S_IRWXU) as mode:
                found |= {path: mode, **state_of(path)}
    return found


def ignore_rules(state: dict[str, object], root: str) -> object:
    file = state.get(f"{root}/.gitignore")
    return file[1] if isinstance(file, tuple) else b""


async def run_script(workspace: Workspace, script: str, number: int) -> CommandSnapshot:
    snapshot = await CommandSnapshot.take(workspace, None, call_id=f"call {number}", tool="Bash")
    subprocess.run(["bash", "-c", script], cwd=workspace.root, env=dict(workspace.env), capture_output=True, timeout=60)
    await snapshot.record_changes()
    assert not snapshot.problem
    return snapshot


def is_named(path: str, plan: UndoPlan) -> bool:
    return any(path == each.path or path.startswith(each.path.rstrip("/") + "/") for each in plan.uncovered)


def was_ignored(path: str, root: str, rules: list[object]) -> bool:
    """What an ignore rule hid at any time is not covered, as the documentation says."""
    return b"build\n" in rules and f"{os.path.relpath(path, root)}/".startswith("build/")


@example({"a": b"", "d/e": b""}, False, ["ln -f d/e a; printf new > a"], True)
@given(TREES, st.booleans(), SCRIPTS, st.booleans())
@settings(max_examples=60, deadline=None)
def test_undo_restores_every_byte_that_is_not_named(tree, ignores, scripts, watched):
    # The journal may still be compressed in the background.
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        asyncio.run(check(os.path.realpath(folder), tree, ignores, scripts, watched))


async def check(folder: str, tree: dict[str, bytes], ignores: bool, scripts: list[str], watched: bool) -> None:
    workspace = open_project(folder)
    if not watched:  # as on a system that does not tell in which folders something changes
        workspace.services.command_snapshots.trees.watch_folders = lambda tops: None
    root, journal = workspace.root, workspace.services.journal
    for name, content in tree.items():
        file = Path(root, name)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    subprocess.run(["git", "init", "-q"], cwd=root, env=dict(workspace.env), check=True)
    if ignores:
        Path(root, ".gitignore").write_bytes(b"build\n")
    outside = f"{folder}/outside"
    os.mkdir(outside)
    Path(outside, "precious").write_bytes(b"not the project's")
    before = state_of(root)
    rules = [ignore_rules(before, root)]
    for number, script in enumerate(scripts):
        await run_script(workspace, script, number)
        rules.append(ignore_rules(state_of(root), root))
    after, outside_after = state_of(root), state_of(outside)
    entries = journal.store.find("command")
    if not entries:
        assert {path: data for path, data in after.items() if not was_ignored(path, root, rules)} == {
            path: data for path, data in before.items() if not was_ignored(path, root, rules)
        }
        await workspace.aclose()
        return
    try:
        plan = undo(journal, UndoSelector(everything=True))
    except CannotUndo as refusal:  # a command has closed a folder to its own user
        assert "cannot be read" in str(refusal)
        assert state_of(root) == after
        await workspace.aclose()
        return
    restored = state_of(root)
    for path in before.keys() | restored.keys():
        if before.get(path) != restored.get(path):
            assert is_named(path, plan) or was_ignored(path, root, rules), f"{path} is neither restored nor named"
    if plan.entry is not None:
        redo(journal)
        again = state_of(root)
        for path in after.keys() | again.keys():
            assert after.get(path) == again.get(path) or is_named(path, plan), f"{path} did not come back"
    assert state_of(outside) == outside_after, "undo must follow no symlink"
    await workspace.aclose()
