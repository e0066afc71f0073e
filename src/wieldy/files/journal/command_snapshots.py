"""Snapshot a project before a shell command, compare after it, and record in the journal what the command changed."""

from __future__ import annotations

import os
from collections.abc import Iterator

from wieldy.core.errors import WieldyError
from wieldy.core.threads import in_thread
from wieldy.core.workspace import Workspace
from wieldy.files.journal.tree_snapshot import TreeSnapshot
from wieldy.search.ignore import VERSION_CONTROL, inside_repository, load_parent_rules, walk_files


class CommandSnapshot:
    """The snapshot before one command. `changed_paths` and `problem` (why undo does not cover it) are set afterwards."""

    def __init__(self, workspace: Workspace, roots: tuple[str, ...], snapshot: TreeSnapshot) -> None:
        self.changed_paths: tuple[str, ...] = ()
        self.problem = ""
        self._workspace = workspace
        self._roots = roots
        self._snapshot: TreeSnapshot | None = snapshot

    @classmethod
    async def take(cls, workspace: Workspace, roots: tuple[str, ...]) -> CommandSnapshot:
        """Store the files at and below `roots`, as far as they lie in the workspace and no ignore rule hides them."""
        snapshots = workspace.services.snapshots
        return cls(workspace, roots, await in_thread(lambda: snapshots.take(_walk(roots, workspace))))

    async def record_changes(self, call_id: str, tool: str, turn: str | None = None) -> None:
        """Compare, and record what changed. A second call does nothing."""
        snapshot, self._snapshot = self._snapshot, None
        if snapshot is None:
            return
        snapshots = self._workspace.services.snapshots
        result = await in_thread(lambda: snapshots.compare(snapshot, _walk(self._roots, self._workspace)))
        self.changed_paths = tuple(change.path for change in result.changes)
        uncovered = "; ".join(result.uncovered)
        coverage = f"not covered: {uncovered}" if uncovered else "every file that no ignore rule hides"
        try:
            journal = self._workspace.services.journal
            await journal.record_command(result.changes, call_id=call_id, tool=tool, turn=turn, coverage=coverage)
        except (OSError, WieldyError) as error:
            self.problem = f"undo does not cover this command: {error}"


def _walk(roots: tuple[str, ...], workspace: Workspace) -> Iterator[str]:
    for top in roots:
        if not any(top == root or top.startswith(root.rstrip(os.sep) + os.sep) for root in workspace.roots):
            continue
        if not os.path.isdir(top):
            yield top
            continue
        rules = load_parent_rules(top, inside_repository(top), workspace.env)
        for entry in walk_files(top, rules, lambda path: os.path.basename(path) in VERSION_CONTROL):
            yield entry.path
