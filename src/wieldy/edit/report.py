"""What is said about a change that was made: a line, notes and a diff for the model, a structured patch for a screen."""

from __future__ import annotations

import os
from typing import Any

from wieldy.core.tool import Output
from wieldy.edit.diff import Patch, patch
from wieldy.edit.document import Document
from wieldy.edit.revision import Revision
from wieldy.text.encoding import UTF8


def report(revision: Revision, notes: tuple[str, ...]) -> Output:
    """The result of a tool that changed a file."""
    name = sayable(revision.path)
    created = revision.before is None
    before = Document.of(revision.before) if revision.before else Document(b"", UTF8)
    after = Document(revision.after, before.encoding) if revision.before else Document.of(revision.after)
    change = patch(before, revision.splices)
    said = [_headline(name, revision, after, change), *revision.notes, *notes]
    if not created and not before.encoding.sure and not all(splice.new.isascii() for splice in revision.splices):
        said.append(f"The encoding of the file was guessed: {before.encoding.name}.")
    if not created and change.hunks:
        said.append(change.unified(name))
    data: dict[str, Any] = {
        "type": "create" if created else "update",
        "filePath": name,
        "structuredPatch": [hunk.as_data() for hunk in change.hunks],
        "snippet": change.snippet(),
        "encoding": after.encoding.name,
        "replacements": revision.count,
        "merged": revision.merged,
    }
    return Output("\n".join(said), data)


def sayable(path: str) -> str:
    """A path as text that can be sent anywhere."""
    return path if path.isascii() else os.fsencode(path).decode("utf-8", "replace")


def _headline(name: str, revision: Revision, after: Document, change: Patch) -> str:
    if revision.before is None:
        lines = after.lines()
        return f"Created {name} ({lines} line{'s' if lines != 1 else ''}, {len(revision.after)} bytes)."
    if revision.before == revision.after:
        return f"{name} already has exactly this content; nothing was written."
    what = f"{revision.count} replacement{'s' if revision.count != 1 else ''}, " if revision.count else ""
    more = "more than " if change.cut else ""
    return f"Changed {name}: {what}{more}+{change.added} -{change.removed} lines."
