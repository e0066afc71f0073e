"""Sees a project before a command and after it, and tells the journal what the command did."""

from __future__ import annotations

import os
from collections.abc import Iterator

from wieldy.core.errors import WieldyError
from wieldy.core.threads import in_thread
from wieldy.core.workspace import Workspace
from wieldy.files.journal.tree_snapshot import Snapshot, Snapshots
from wieldy.search.ignore import VERSION_CONTROL, inside_repository, load_parent_rules, walk_files


class Witness:
    """One command's witness. `changed` are the files that changed; `trouble` says why undo cannot take it back."""

    def __init__(self, workspace: Workspace, tops: tuple[str, ...], seen: Snapshot) -> None:
        self.changed: tuple[str, ...] = ()
        self.trouble = ""
        self._workspace = workspace
        self._tops = tops
        self._seen: Snapshot | None = seen

    @classmethod
    async def before(cls, workspace: Workspace, tops: tuple[str, ...]) -> Witness:
        """Look at the files at and below `tops`, as far as they lie in the workspace and no ignore rule hides them."""
        snapshots = workspace.service(Snapshots)
        return cls(workspace, tops, await in_thread(lambda: snapshots.take(_files(tops, workspace))))

    async def after(self, call_id: str, tool: str, turn: str | None = None) -> None:
        """Look again, and keep what changed. A second time does nothing."""
        seen, self._seen = self._seen, None
        if seen is None:
            return
        snapshots = self._workspace.service(Snapshots)
        found = await in_thread(lambda: snapshots.differences(seen, _files(self._tops, self._workspace)))
        from wieldy.files.journal.entries import Change
        from wieldy.files.journal.journal import Journal

        self.changed = tuple(each.path for each in found.changed)
        changes = [Change(each.path, each.before, each.after, mode=each.mode) for each in found.changed]
        missed = "; ".join(found.uncovered)
        covered = f"not covered: {missed}" if missed else "every file that no ignore rule hides"
        try:
            journal = self._workspace.service(Journal)
            await journal.record_snapshot(changes, call_id=call_id, tool=tool, turn=turn, covered=covered)
        except (OSError, WieldyError) as problem:
            self.trouble = f"undo does not cover this command: {problem}"


def _files(tops: tuple[str, ...], workspace: Workspace) -> Iterator[str]:
    for top in tops:
        if not any(top == root or top.startswith(root.rstrip(os.sep) + os.sep) for root in workspace.roots):
            continue
        if not os.path.isdir(top):
            yield top
            continue
        rules = load_parent_rules(top, inside_repository(top), workspace.env)
        for entry in walk_files(top, rules, lambda path: os.path.basename(path) in VERSION_CONTROL):
            yield entry.path
