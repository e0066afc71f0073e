"""What one or several replacements come to on a document, after the mistakes that need no looking for are refused."""

from __future__ import annotations

from collections.abc import Sequence

from wieldy.core.failure import ToolFailure
from wieldy.edit.batch import plan_batch
from wieldy.edit.document import Document
from wieldy.edit.locate import Replacement, locate
from wieldy.edit.placeholder import refuse_placeholders
from wieldy.edit.revision import Planned
from wieldy.edit.splice import Splice
from wieldy.edit.tolerance import Tier


def refuse_mistakes(edit: Replacement) -> None:
    """Refuse what is wrong whatever the file holds."""
    if not edit.old:
        raise ToolFailure(
            "old_string is empty. To create a file or replace all of it use Write; to insert text, send an old_string "
            "from beside the place and repeat it in new_string."
        )
    if edit.old == edit.new:
        raise ToolFailure("old_string and new_string are the same, so there is nothing to change.")
    refuse_placeholders(edit.new, edit.old)


def plan_one(edit: Replacement, document: Document, tiers: Sequence[Tier]) -> Planned:
    """One replacement."""
    refuse_mistakes(edit)
    _refuse_empty(document)
    located = locate(document, edit, tiers)
    _refuse_idle(document, located.splices)
    return Planned(located.splices, len(located.splices), (located.note,) if located.note else ())


def plan_many(edits: Sequence[Replacement], document: Document, tiers: Sequence[Tier]) -> Planned:
    """Several replacements, all or none."""
    if not edits:
        raise ToolFailure("edits is empty. Send at least one edit.")
    for number, edit in enumerate(edits, start=1):
        try:
            refuse_mistakes(edit)
        except ToolFailure as failure:
            raise ToolFailure(f"Edit {number} of {len(edits)}: {failure.message} Nothing was changed.") from failure
    _refuse_empty(document)
    batch = plan_batch(document, edits, tiers)
    _refuse_idle(document, batch.splices)
    return Planned(batch.splices, sum(batch.counts), batch.notes)


def _refuse_empty(document: Document) -> None:
    if document.empty:
        raise ToolFailure("The file is empty, so there is nothing to replace. Use Write to give it content.")


def _refuse_idle(document: Document, splices: Sequence[Splice]) -> None:
    for splice in splices:
        if splice.new != document.data[splice.start : splice.end]:
            return
    raise ToolFailure(
        "This would change nothing: old_string and new_string differ only in line ends, which edits keep. "
        "To convert line ends use Bash."
    )
