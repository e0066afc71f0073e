"""Outcome → the one result of a call: clean text, bounded size, the whole kept on disk."""

from __future__ import annotations

from wieldy.core.call import ToolCall
from wieldy.core.content import Block, Content, Text
from wieldy.core.outcome import Done, Failed, Interrupted, Outcome, Refused
from wieldy.core.result import ToolResult
from wieldy.engine.clean import clean
from wieldy.engine.spill import Spill, shorten

MAX_FAILURE_CHARS = 10_000


def conclude(call: ToolCall, outcome: Outcome, limit: int, spill: Spill, notes: tuple[str, ...] = ()) -> ToolResult:
    """The result the model and the caller get. `notes` say what was mended in the call."""
    match outcome:
        case Done():
            content = _content(outcome.content, call, limit, spill, notes)
            return ToolResult(call.id, call.name, content, outcome.data, outcome.is_error, outcome)
        case Failed(message, data):
            text = shorten(clean(message), MAX_FAILURE_CHARS) or "The tool failed without a message."
            return ToolResult(call.id, call.name, (Text(text),), data, True, outcome)
        case Refused(_, advice, data):
            text = shorten(clean(advice), MAX_FAILURE_CHARS)
            return ToolResult(call.id, call.name, (Text(text),), data, True, outcome)
        case Interrupted(reason, partial):
            said = f"\nUntil then it said:\n{shorten(clean(partial), MAX_FAILURE_CHARS)}" if partial.strip() else ""
            return ToolResult(call.id, call.name, (Text(f"{reason}{said}"),), None, True, outcome)


def _content(content: Content, call: ToolCall, limit: int, spill: Spill, notes: tuple[str, ...]) -> Content:
    if len(content) == 1 and isinstance(content[0], Text) and not notes:
        return (_text(content[0], call, limit, spill),)
    blocks: list[Block] = []
    left = limit
    for block in content:
        if isinstance(block, Text):
            if not block.text.strip() and len(content) > 1:
                continue
            shown = _text(block, call, max(left, 0), spill)
            left -= len(shown.text)
            blocks.append(shown)
        else:
            blocks.append(block)
    if notes:
        blocks.append(Text("(" + "; ".join(notes) + ")"))
    return tuple(blocks) or (Text("(no output)"),)


def _text(block: Text, call: ToolCall, limit: int, spill: Spill) -> Text:
    text = clean(block.text)
    if len(text) > limit:
        text = spill.keep(call.id, text, limit)
    elif not text or text.isspace():
        text = "(no output)"
    return block if text is block.text else Text(text)
