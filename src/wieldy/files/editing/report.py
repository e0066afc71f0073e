"""Report a change that was made: a headline, notes and a diff for the model, a structured patch for a screen."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from wieldy.core.tool import Output
from wieldy.files.editing.diff import Patch, make_patch
from wieldy.files.editing.document import Document
from wieldy.files.editing.revision import Revision
from wieldy.files.encodings import UTF8
from wieldy.search.format import display_path


class Report(Struct, frozen=True):
    """The result of a tool, into which notes from writing the file are inserted: they follow `headlines`, before `details`."""

    headlines: tuple[str, ...]
    details: tuple[str, ...]
    data: dict[str, Any]

    def with_notes(self, notes: tuple[str, ...]) -> Output:
        """The result of a tool, with what came up while the file was written."""
        return Output("\n".join((*self.headlines, *notes, *self.details)), self.data)


def make_report(revision: Revision) -> Report:
    """Report a revision as written."""
    name, old = display_path(revision.path), revision.before
    created = old is None
    before = (revision.document or Document.of(old)) if old else Document(b"", UTF8)
    after = Document(revision.after, before.encoding) if old else Document.of(revision.after)
    patch = make_patch(before, revision.splices)
    details: list[str] = []
    if not created and not before.encoding.sure and not all(splice.new.isascii() for splice in revision.splices):
        details.append(f"The encoding of the file was guessed: {before.encoding.name}.")
    if not created and patch.hunks:
        details.append(patch.unified(name))
    data: dict[str, Any] = {
        "type": "create" if created else "update",
        "filePath": name,
        "structuredPatch": [hunk.as_data() for hunk in patch.hunks],
        "snippet": patch.snippet(),
        "encoding": after.encoding.name,
        "replacements": revision.count,
        "merged": revision.merged,
    }
    return Report((_headline(name, revision, after, patch), *revision.notes), tuple(details), data)


def _headline(name: str, revision: Revision, after: Document, patch: Patch) -> str:
    if revision.before is None:
        lines, size = after.count_lines(), len(revision.after)
        return f"Created {name} ({lines} line{'s' if lines != 1 else ''}, {size} byte{'s' if size != 1 else ''})."
    if revision.before == revision.after:
        return f"{name} already has exactly this content; nothing was written."
    count = f"{revision.count} replacement{'s' if revision.count != 1 else ''}, " if revision.count else ""
    more = "more than " if patch.truncated else ""
    return f"Changed {name}: {count}{more}+{patch.added} -{patch.removed} lines."
