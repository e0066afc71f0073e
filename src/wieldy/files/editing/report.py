"""What is said about a change that was made: a line, notes and a diff for the model, a structured patch for a screen."""

from __future__ import annotations

import os
from typing import Any

from msgspec import Struct

from wieldy.core.tool import Output
from wieldy.files.editing.diff import Patch, patch
from wieldy.files.editing.document import Document
from wieldy.files.editing.revision import SMALL_FILE, Revision
from wieldy.files.editing.splicing import known_after
from wieldy.files.encodings import UTF8

QUICKLY_COMPARED = 8 * 1024


class Report(Struct, frozen=True):
    """What is said of a change: first what was done, then, behind what came up while writing, how it looks. `after` is
    what is there now, where that came to be known along the way."""

    first: tuple[str, ...]
    then: tuple[str, ...]
    data: dict[str, Any]
    after: Document | None = None

    def with_notes(self, notes: tuple[str, ...]) -> Output:
        """The result of a tool, with what came up while the file was written."""
        return Output("\n".join((*self.first, *notes, *self.then)), self.data)


class Draft:
    """A report begun before it is known whether the file can be written."""

    def __init__(self) -> None:
        self._revision: Revision | None = None
        self._report: Report | None = None

    def about(self, revision: Revision) -> None:
        """Say which revision the report will be of."""
        self._revision, self._report = revision, None

    def begin(self) -> None:
        """Make the report now, if that is a matter of a moment. What goes wrong here goes wrong again when it counts."""
        revision = self._revision
        if revision is None or not is_quick(revision):
            return
        try:
            self._report = report(revision)
        except Exception:
            return

    def finished(self, revision: Revision) -> Report:
        """The report of a revision, begun or not."""
        if self._report is not None and self._revision is revision:
            return self._report
        return report(revision)


def is_quick(revision: Revision) -> bool:
    """Whether a revision is compared and told in less time than it takes to reach a thread."""
    return len(revision.after) < SMALL_FILE and revision.touched < QUICKLY_COMPARED


def report(revision: Revision) -> Report:
    """What is said of a revision once it is written."""
    name, old = display_path(revision.path), revision.before
    created = old is None
    before = (revision.text or Document.of(old)) if old else Document(b"", UTF8)
    change = patch(before, revision.splices)
    known = known_after(before, revision.splices, revision.after, change.mark)
    after = known or (Document(revision.after, before.encoding) if old else Document.of(revision.after))
    then: list[str] = []
    if not created and not before.encoding.sure and not all(splice.new.isascii() for splice in revision.splices):
        then.append(f"The encoding of the file was guessed: {before.encoding.name}.")
    if not created and change.hunks:
        then.append(change.unified(name))
    data: dict[str, Any] = {
        "type": "create" if created else "update",
        "filePath": name,
        "structuredPatch": [hunk.as_data() for hunk in change.hunks],
        "snippet": change.snippet(),
        "encoding": after.encoding.name,
        "replacements": revision.count,
        "merged": revision.merged,
    }
    return Report((_headline(name, revision, after, change), *revision.notes), tuple(then), data, known)


def display_path(path: str) -> str:
    """A path as text that can be sent anywhere."""
    return path if path.isascii() else os.fsencode(path).decode("utf-8", "replace")


def _headline(name: str, revision: Revision, after: Document, change: Patch) -> str:
    if revision.before is None:
        lines, size = after.lines(), len(revision.after)
        return f"Created {name} ({lines} line{'s' if lines != 1 else ''}, {size} byte{'s' if size != 1 else ''})."
    if revision.before == revision.after:
        return f"{name} already has exactly this content; nothing was written."
    what = f"{revision.count} replacement{'s' if revision.count != 1 else ''}, " if revision.count else ""
    more = "more than " if change.cut else ""
    return f"Changed {name}: {what}{more}+{change.added} -{change.removed} lines."
