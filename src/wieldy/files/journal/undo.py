"""Undo, redo and history: a plan to look at first, then a write like any other.

Only files that the selected changes touched are touched. A file that has changed since is refused, or merged on request.
"""

from __future__ import annotations

import os
import secrets
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Literal

from msgspec import Struct
from msgspec.structs import replace

from wieldy.core.errors import WieldyError
from wieldy.core.filesystem import FileSystem
from wieldy.core.text import format_size, plural, printable_path
from wieldy.files.journal.entries import (
    ChangeOrigin,
    EntryFile,
    FileChange,
    JournalEntry,
    Uncovered,
    content_hash,
    uncovered_lines,
)
from wieldy.files.journal.store import ContentUnavailable
from wieldy.files.journal.tree_manifest import path_state
from wieldy.files.writing.disk import is_at_or_below
from wieldy.files.writing.tree_commit import Node, NodeChange, is_same_node, read_node

if TYPE_CHECKING:
    from wieldy.files.journal.journal import Journal


# A plan with more than this is summarized.
SHOWN_CALLS = 5
SHOWN_FILES = 20
NOT_EMPTY = "something that undo does not remove is in it"


class UndoSelector(Struct, frozen=True):
    """Which changes to undo: the last one, unless `call_id`, `whole_turn` or `everything` say otherwise.

    `call_id` may also be the id of an entry. `whole_turn` means the last turn, or the one named by `turn`. `everything` means
    the last session, or all sessions from the time `since` on. `session` restricts all but `call_id` to one session.
    """

    call_id: str | None = None
    whole_turn: bool = False
    everything: bool = False
    session: str | None = None
    turn: str | None = None
    since: float | None = None


class CannotUndo(WieldyError):
    """Nothing was touched; the message says which files stand in the way, or that there is nothing to do."""


class RestoredFile(Struct, frozen=True):
    """One file of a plan: its content now and after the undo. `problem` says why it cannot be restored.

    `in_place` is false where another file may be in its place now: that one may have other names, and keeps its content.
    """

    path: str
    real_path: str
    now: bytes | None
    then: bytes | None
    mode: int | None = None
    folders: tuple[str, ...] = ()
    merged: bool = False
    problem: str | None = None
    in_place: bool | None = None


class RestoredNode(Struct, frozen=True):
    """A symlink, a folder or permissions of a plan: as they are now and after the undo. `problem` says why that cannot be."""

    path: str
    now: Node | None
    then: Node | None
    problem: str | None = None


class UndoPlan(Struct, frozen=True):
    """The changes that will be undone or redone, and each file touched. `entry` is set once it has been carried out.

    `uncovered` is what the commands among them changed, or may have changed, that cannot be restored.
    """

    action: Literal["undo", "redo"]
    changes: tuple[JournalEntry, ...]
    files: tuple[RestoredFile, ...]
    reverses: tuple[int, ...]
    entry: int | None = None
    uncovered: tuple[Uncovered, ...] = ()
    nodes: tuple[RestoredNode, ...] = ()

    @property
    def problems(self) -> tuple[str, ...]:
        """What stands in the way; empty when the plan can be carried out."""
        problems = (*(file.problem for file in self.files), *(node.problem for node in self.nodes))
        return tuple(problem for problem in problems if problem is not None)


class ChangesSince(Struct, frozen=True):
    """The changes since a time that are in force: their entries, and their files in the order in which they first changed.

    `uncovered` says what commands changed, or may have changed, that cannot be restored.
    """

    entries: tuple[JournalEntry, ...]
    files: tuple[str, ...]
    uncovered: tuple[str, ...] = ()


def changes_since(journal: Journal, times: Sequence[float], session: str) -> list[ChangesSince]:
    """What a session has changed since each of these times."""
    journal.recover()
    if not times:
        return []
    entries = journal.store.find("edit", "command", session=session, since=min(times))
    return [_changes([entry for entry in entries if entry.time >= time]) for time in times]


def _changes(entries: Sequence[JournalEntry]) -> ChangesSince:
    files = tuple(dict.fromkeys(path for entry in entries for path in entry.paths))
    uncovered = [each for entry in entries for each in entry.uncovered]
    return ChangesSince(tuple(entries), files, tuple(uncovered_lines(uncovered)))


def undo(journal: Journal, selector: UndoSelector | None = None, *, merge: bool = False) -> UndoPlan:
    """Undo the selected changes, by default the last one."""
    return carry_out(journal, plan_undo(journal, selector, merge=merge))


def redo(journal: Journal, *, merge: bool = False, session: str | None = None) -> UndoPlan:
    """Reverse the last undo (of one session, or of any)."""
    return carry_out(journal, plan_redo(journal, merge=merge, session=session))


def history(journal: Journal, limit: int = 50) -> tuple[JournalEntry, ...]:
    """The latest changes, newest first."""
    journal.recover()
    return tuple(reversed(journal.store.find(active_only=False, limit=limit)))


def plan_undo(journal: Journal, selector: UndoSelector | None = None, *, merge: bool = False) -> UndoPlan:
    """Work out what an undo would do to each file."""
    journal.recover()
    entries = _select(journal, selector or UndoSelector())
    nodes, left = _plan_nodes(entries)
    files, blocked = _plan_files(journal, entries, merge, nodes)
    unwatched = [each for entry in _unwatched_since(journal, entries[-1]) for each in entry.uncovered]
    return UndoPlan(
        "undo",
        tuple(entries),
        files,
        tuple(entry.id for entry in entries),
        uncovered=tuple(dict.fromkeys((*_unrestored(entries, files), *left, *blocked, *unwatched))),
        nodes=nodes,
    )


def _unwatched_since(journal: Journal, entry: JournalEntry) -> list[JournalEntry]:
    """Later commands of the same session of which no change is known."""
    later = journal.store.find("command", session=entry.session, since=entry.time)
    return [each for each in later if each.id > entry.id and not each.is_known]


def plan_redo(journal: Journal, *, merge: bool = False, session: str | None = None) -> UndoPlan:
    """Work out what a redo would do to each file."""
    journal.recover()
    undone = journal.store.find("undo", session=session, limit=1)
    if not undone:
        raise CannotUndo("There is nothing to redo.")
    [last] = undone
    changes = journal.store.find(active_only=False, ids=last.reverses)
    nodes, left = _plan_nodes(undone)
    files, blocked = _plan_files(journal, undone, merge, nodes)
    return UndoPlan("redo", tuple(changes) or (last,), files, (last.id,), uncovered=(*left, *blocked), nodes=nodes)


def carry_out(journal: Journal, plan: UndoPlan) -> UndoPlan:
    """Do what a plan says. A file that changed since the plan was made raises `StaleFileError`, and nothing is touched."""
    from wieldy.files.apply_edit import write_changes

    if plan.problems:
        raise CannotUndo(f"Cannot {plan.action}, nothing was touched: {'; '.join(plan.problems)}.")
    changes = [
        FileChange(file.real_path, file.now, file.then, file.real_path, file.mode, in_place=file.in_place)
        for file in sorted(plan.files, key=_write_order)
    ]
    origin = ChangeOrigin(
        session=journal.session,
        call_id=f"{plan.action}-{secrets.token_hex(4)}",
        tool=plan.action,
        kind=plan.action,
        reverses=plan.reverses,
    )
    emptied = {file.real_path: file.folders for file in plan.files if file.then is None}
    nodes = [NodeChange(node.path, node.now, node.then) for node in plan.nodes if node.now != node.then]
    result = write_changes(journal, changes, origin, emptied, nodes)
    return replace(plan, entry=result.entry_id)


def _write_order(file: RestoredFile) -> int:
    """Names of a file go or are taken over by other files before its content changes, which all its names share."""
    return 0 if file.then is None else 1 if file.in_place is False else 2


def _unrestored(entries: Sequence[JournalEntry], files: Sequence[RestoredFile]) -> tuple[Uncovered, ...]:
    """What stays as it is although the entries are undone. A lost content does not count where an earlier one is restored."""
    first_step: dict[str, int] = {}
    for entry in entries:
        for file in entry.files:
            first_step.setdefault(file.path, entry.id)
    planned = {file.path for file in files}
    return tuple(
        dict.fromkeys(
            each
            for entry in entries
            for each in entry.uncovered
            if not (each.state and each.path in planned and first_step.get(each.path, entry.id) < entry.id)
        )
    )


def _select(journal: Journal, selector: UndoSelector) -> list[JournalEntry]:
    find, session = partial(journal.store.find, "edit", "command"), selector.session
    if selector.call_id is not None:
        entries = find(call=selector.call_id)
        if not entries:
            raise CannotUndo(
                f"No change of the call {selector.call_id} can be undone: it is unknown or undone already."
            )
        return entries
    if selector.since is not None:
        entries = find(session=session, since=selector.since)
    else:
        entries = find(session=session, turn=selector.turn, known_only=True, limit=1)
    if not entries:
        unwatched = find(session=session, turn=selector.turn, since=selector.since, limit=1)
        raise CannotUndo(f"There is nothing to undo.{''.join(map(_unwatched_sentence, unwatched))}")
    [*_, last] = entries
    if selector.everything and selector.since is None:
        return find(session=last.session)
    if selector.whole_turn and last.turn is not None:
        return find(session=last.session, turn=last.turn)
    return entries if selector.everything else [last]


def _unwatched_sentence(entry: JournalEntry) -> str:
    what = "; ".join(uncovered_lines(entry.uncovered))
    return f" What {entry.tool} ({entry.call_id}) changed is not known: {what}."


def _plan_nodes(entries: Sequence[JournalEntry]) -> tuple[tuple[RestoredNode, ...], tuple[Uncovered, ...]]:
    """What happens to symlinks, folders and permissions, and which of these stay because another program changed them since."""
    by_path: dict[str, list[NodeChange]] = {}
    for entry in entries:
        for change in entry.nodes:
            by_path.setdefault(change.path, []).append(change)
    nodes: list[RestoredNode] = []
    left: list[Uncovered] = []
    for path, changes in by_path.items():
        try:
            now = read_node(path)
        except OSError as error:
            nodes.append(RestoredNode(path, None, None, f"{path} cannot be read: {error.strerror}"))
            continue
        then = now
        for change in reversed(changes):
            if _is_as_left(then, change.after, change.before):
                then = change.before
            elif not _is_as_left(then, change.before, change.after):
                left.append(Uncovered(path, _why_left(now)))
                break
        else:
            if then != now:
                nodes.append(RestoredNode(path, now, then))
    files = {file.real_path for entry in entries for file in entry.files}
    blocked = _blocked_nodes(nodes, files)
    left += [Uncovered(path, reason, reason != NOT_EMPTY) for path, reason in blocked.items()]
    return tuple(node for node in nodes if node.path not in blocked), tuple(left)


def _blocked_nodes(nodes: Sequence[RestoredNode], files: Collection[str]) -> dict[str, str]:
    """Symlinks and folders that cannot come or go, because something that undo does not remove is in the way."""
    going = {node.path for node in nodes if node.now is not None and node.now != node.then} | set(files)
    blocked: dict[str, str] = {}
    made: set[str] = set()
    for node in sorted(nodes, key=lambda node: node.path):
        is_folder = node.now is not None and node.now.kind == "folder"
        stays_folder = node.then is not None and node.then.kind == "folder"
        if is_folder and not stays_folder and _holds_others(node.path, going):
            blocked[node.path] = NOT_EMPTY
            continue
        if node.then is None or node.then.kind == "file":
            continue
        parent = os.path.dirname(node.path)
        if parent not in made and (os.path.realpath(parent) != parent or not os.path.isdir(parent)):
            blocked[node.path] = f"{parent} is no folder any more"
        elif node.now is not None and node.now.kind == "file" and node.path not in files:
            blocked[node.path] = "a file is there now"
        elif node.then.kind == "folder":
            made.add(node.path)
    return blocked


def _holds_others(folder: str, going: Collection[str]) -> bool:
    """Whether something is in a folder, at any depth, that does not go with it."""
    try:
        with os.scandir(folder) as entries:
            return any(
                entry.path not in going or (entry.is_dir(follow_symlinks=False) and _holds_others(entry.path, going))
                for entry in entries
            )
    except OSError:
        return True


def _is_as_left(actual: Node | None, recorded: Node | None, other: Node | None) -> bool:
    """Whether a path is as a change left it. The permissions of a folder count only where the change was about them."""
    if actual is not None and recorded is not None and actual.kind == recorded.kind == "folder":
        return actual == recorded or other is None or other.kind != "folder"
    return is_same_node(actual, recorded)


def _why_left(now: Node | None) -> str:
    if now is None:
        return "it was removed since"
    what = {"file": "a file", "symlink": "another symlink", "folder": "a folder", "other": "something else"}[now.kind]
    return "its permissions were changed since" if now.kind in ("file", "folder") else f"{what} is there now"


def _plan_files(
    journal: Journal, entries: Sequence[JournalEntry], merge: bool, nodes: Sequence[RestoredNode]
) -> tuple[tuple[RestoredFile, ...], tuple[Uncovered, ...]]:
    """What happens to each file, and files of commands that cannot be restored because something else is in their place."""
    by_file: dict[object, list[tuple[JournalEntry, EntryFile]]] = {}
    lost: dict[str, tuple[int, Uncovered]] = {}
    replaced = {
        file.real_path
        for entry in entries
        for file in entry.files
        if entry.kind != "edit" and file.method != "in_place"
    }
    for entry in entries:
        for file in entry.files:
            is_replaced = file.real_path in replaced
            key = file.real_path if is_replaced else _file_key(file.real_path, journal.writer.files)
            by_file.setdefault(key, []).append((entry, file))
        lost.update((each.path, (entry.id, each)) for each in entry.uncovered if each.changed)
    files: list[RestoredFile] = []
    blocked: list[Uncovered] = []
    cleared = {
        node.path for node in nodes if node.now is not None and node.now.kind != "file" and node.now != node.then
    }
    made = {node.path for node in nodes if NodeChange(node.path, node.now, node.then).makes_folder}
    for steps in by_file.values():
        entry, file = steps[-1]
        is_cleared = file.real_path in cleared or is_at_or_below(os.path.dirname(file.real_path), made)
        is_of_command = entry.kind == "command" or bool(entry.nodes)
        if is_of_command and not is_cleared and (obstacle := _obstacle(file.real_path, journal.writer.files)):
            blocked.append(Uncovered(file.path, obstacle))
        else:
            plan = _plan_file(journal, steps, merge, lost.get(file.path), is_cleared)
            # A file that had one name when it was written, and has others now, may be another file: they keep its content.
            had_one_name = entry.kind == "edit" and file.method in ("replace", "create")
            files.append(replace(plan, in_place=False if file.real_path in replaced or had_one_name else None))
    return tuple(files), tuple(blocked)


def _obstacle(path: str, files: FileSystem) -> str:
    """What is where a file was, or above it, that undo would have to remove first."""
    if files.is_link(path):
        return "a link is there now"
    if files.is_folder(path):
        return "a folder is there now"
    if files.exists(path) and not files.is_file(path):
        return "a pipe, socket or device is there now"
    folder = os.path.dirname(path)
    while not files.exists(folder):
        folder = os.path.dirname(folder)
    if files.realpath(folder) != folder:
        return f"{folder} is or leads through a link now"
    return "" if files.is_folder(folder) else f"{folder} is no folder any more"


def _plan_file(
    journal: Journal,
    steps: list[tuple[JournalEntry, EntryFile]],
    merge: bool,
    lost: tuple[int, Uncovered] | None = None,
    is_cleared: bool = False,
) -> RestoredFile:
    """Go back through the changes of one file, newest first. `is_cleared`: something else is there, which will be gone.

    `lost` is the last selected entry that changed it without a copy: the content right before that is not known, but the one
    before the first step is. It may be restored if the file has not changed since.
    """
    first, last = steps[0][1], steps[-1][1]
    path, real_path = last.path, last.real_path
    try:
        now = None if is_cleared else journal.writer.read_target(real_path, real_path).content
    except (WieldyError, OSError) as error:
        return RestoredFile(path, real_path, None, None, problem=f"{path} cannot be read: {error}")
    then, merged = now, False
    try:
        for entry, file in reversed(steps):
            before = None if file.before_hash is None else journal.store.content(file.before_hash)
            if (None if then is None else content_hash(then)) == file.after_hash:
                then = before
            elif then == before:
                continue  # it was restored by another program
            elif lost is not None and entry.id <= lost[0] and path_state(path) == lost[1].state:
                then = before
            elif not merge:
                problem = _why_not(file, now, journal.store.last_edit_after(entry.id, real_path))
                return RestoredFile(path, real_path, now, None, problem=problem)
            else:
                base = None if file.after_hash is None else journal.store.content(file.after_hash)
                then, merged = _merge(base, before, then), True
    except (ContentUnavailable, _CannotMerge) as error:
        return RestoredFile(path, real_path, now, None, problem=f"{path}: {error}")
    folders = tuple(dict.fromkeys(folder for _, file in steps if file.method == "create" for folder in file.folders))
    return RestoredFile(path, real_path, now, then, mode=first.mode, folders=folders, merged=merged)


def _file_key(real_path: str, files: FileSystem) -> object:
    """What identifies a file: its path or, for a hard-linked file, its inode."""
    try:
        stat = files.lstat(real_path)
    except OSError:
        return real_path
    return real_path if stat.st_nlink == 1 else (stat.st_dev, stat.st_ino)


class _CannotMerge(WieldyError):
    """Two changes to the same lines, or to whether there is a file at all."""


def _merge(base: bytes | None, ours: bytes | None, theirs: bytes | None) -> bytes:
    if ours is None:
        raise _CannotMerge("it would be deleted, and with it what was changed since")
    if theirs is None:
        raise _CannotMerge("it was deleted since, so there is nothing to merge with")
    if base is None:
        raise _CannotMerge("it was made anew since, which cannot be merged")
    from wieldy.files.editing.diff import merge_bytes

    merged = merge_bytes(base, ours, theirs)
    if merged is None:
        raise _CannotMerge("the later changes touch the same lines, which cannot be merged")
    return merged


def _why_not(file: EntryFile, now: bytes | None, later: JournalEntry | None) -> str:
    if later is not None:
        return f"{file.path} was changed later by {later.tool} (call {later.call_id}); undo that first, or merge"
    if now is None:
        return f"{file.path} was deleted since, by something other than wieldy"
    way_out = "merge to keep both" if file.before_hash is not None else "undoing it would delete it"
    return f"{file.path} was changed since, by something other than wieldy; {way_out}"


def plan_lines(plan: UndoPlan) -> list[str]:
    """What an undo or redo would do, or has done once it has an entry."""
    verb = {"undo": ("take back", "took back"), "redo": ("bring back", "brought back")}[plan.action][
        plan.entry is not None
    ]
    named = list(dict.fromkeys(f"{entry.tool} ({entry.call_id})" for entry in plan.changes))
    calls = f"{len(named)} calls" if len(named) > SHOWN_CALLS else ", ".join(named)
    lines = [*map(_file_line, plan.files), *_node_lines(plan)]
    files = [f"  {line}" for line in lines]
    if len(files) > SHOWN_FILES and not plan.problems:
        rest = lines[SHOWN_FILES:]
        files = [*files[:SHOWN_FILES], f"  … {plural(len(rest), 'more file')}: {_summary(rest)}"]
    verb_of_loss = "not restored" if plan.entry is not None else "will not be restored"
    losses = [f"  ! {verb_of_loss}: {line}" for line in uncovered_lines(plan.uncovered)]
    return [f"{verb} {calls}:", *files, *losses]


def _summary(lines: Sequence[str]) -> str:
    """How many files come back, go, or change."""
    kinds = Counter(line[0] for line in lines)
    words = {"+": "come back", "-": "go", "~": "change", "=": "stay"}
    return ", ".join(f"{kinds[sign]} {word}" for sign, word in words.items() if kinds[sign])


def history_lines(entries: Iterable[JournalEntry]) -> list[str]:
    """One line for each change: when, which tool, which call, which files, and whether it was undone; below it what undo
    does not cover."""
    entries = list(entries)
    tools = max((len(entry.tool) for entry in entries), default=0)
    calls = max((len(entry.call_id) for entry in entries), default=0)
    lines = []
    for entry in entries:
        lines.append(_history_line(entry, tools, calls))
        lines += [f"{'':21}not covered: {line}" for line in uncovered_lines(entry.uncovered)]
    return lines


def _file_line(file: RestoredFile) -> str:
    if file.problem is not None:
        return f"! {printable_path(file.problem)}"
    path = printable_path(file.path)
    merged = ", merged with later changes" if file.merged else ""
    if file.now == file.then:
        return f"= {path} (already so{merged})"
    if file.now is None:
        return f"+ {path} (comes back, {format_size(len(file.then or b''))})"
    if file.then is None:
        return f"- {path} (goes, {format_size(len(file.now))})"
    return f"~ {path} ({_describe_difference(file.now, file.then)}{merged})"


def _node_lines(plan: UndoPlan) -> list[str]:
    """A line for each symlink, folder and permission; none for folders that come and go with the files in them."""
    paths = [file.real_path for file in plan.files]
    parents = {parent for path in paths for parent in _parents(path)}
    return [
        _node_line(node)
        for node in plan.nodes
        if node.problem or node.path not in parents or not _is_plain_folder(node)
    ]


def _is_plain_folder(node: RestoredNode) -> bool:
    return {each and each.kind for each in (node.now, node.then)} == {"folder", None}


def _parents(path: str) -> Iterator[str]:
    while (parent := os.path.dirname(path)) != path:
        path = parent
        yield path


def _node_line(node: RestoredNode) -> str:
    if node.problem is not None:
        return f"! {printable_path(node.problem)}"
    path, now, then = printable_path(node.path), node.now, node.then
    if then is not None and then.kind == "symlink":
        return f"{'+' if now is None else '~'} {path} (symlink to {printable_path(then.target)})"
    if now is not None and then is not None and now.kind == then.kind:
        return f"~ {path} (permissions {now.mode:o} → {then.mode:o})"
    if then is not None and then.kind == "file":
        return f"~ {path} (permissions {then.mode:o})"
    if then is not None:
        return f"{'+' if now is None else '~'} {path} (folder)"
    what = "folder" if now is not None and now.kind == "folder" else "symlink"
    return f"- {path} ({what})"


def _describe_difference(now: bytes, then: bytes) -> str:
    if b"\0" in now or b"\0" in then:
        return f"{format_size(len(now))} → {format_size(len(then))}"
    old, new = Counter(now.splitlines()), Counter(then.splitlines())
    return f"+{(new - old).total()} −{(old - new).total()} lines"


def _history_line(entry: JournalEntry, tool_width: int, call_width: int) -> str:
    when = datetime.fromtimestamp(entry.time).strftime("%Y-%m-%d %H:%M:%S")
    files = ", ".join(printable_path(path) for path in entry.paths[:3])
    more = f" and {len(entry.paths) - 3} more" if len(entry.paths) > 3 else ""
    state = "" if entry.active else "  [taken back]"
    call = f"{entry.tool:<{tool_width}}  {entry.call_id:<{call_width}}"
    return f"{when}  {call}  {files or 'nothing that undo covers'}{more}{state}"
