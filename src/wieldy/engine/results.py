"""From what a tool returns to what the model reads: conversion, size limits, spilling to disk, cleaning."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from wieldy.core.call import ToolCall
from wieldy.core.json_values import to_json
from wieldy.core.outcome import (
    Block,
    Content,
    Done,
    Failed,
    Image,
    Interrupted,
    Outcome,
    Refused,
    Text,
    ToolResult,
    Waiting,
)
from wieldy.core.state_dirs import make_private_folder, open_private
from wieldy.core.tool import Output
from wieldy.core.truncate import truncate_middle

MAX_FAILURE_CHARS = 10_000
BIG_RESULT_CHARS = 1_000_000
PREVIEW_CHARS = 4_000
NO_OUTPUT = "(no output)"


def as_output(value: Any) -> Output:
    """Convert what a tool returned: a string is text, blocks are content, anything else is shown as JSON and kept as data."""
    if isinstance(value, Output):
        return value
    if value is None or isinstance(value, str):
        return Output(value or "")
    if isinstance(value, Text | Image):
        return Output((value,))
    if isinstance(value, list | tuple) and value and all(isinstance(item, Text | Image) for item in value):
        return Output(tuple(value))
    data = to_json(value)
    return Output(json.dumps(data, ensure_ascii=False, indent=2 if isinstance(data, dict | list) else None), data=data)


def finalizing_blocks(outcome: Outcome, limit: int) -> bool:
    """Whether finalizing an outcome blocks the event loop: a text is saved to disk, or takes long to clean."""
    if not isinstance(outcome, Done):
        return False
    chars = sum(len(block.text) for block in outcome.content if isinstance(block, Text))
    return chars > min(limit, BIG_RESULT_CHARS)


def finalize(call: ToolCall, outcome: Outcome, limit: int, spill: Spill, notes: tuple[str, ...] = ()) -> ToolResult:
    """Make the result that the model and the caller get. `notes` say what was repaired in the call."""
    match outcome:
        case Done(content, data, is_error):
            blocks = _limit_content(content, call, limit, spill, notes)
            return ToolResult(call.id, call.name, blocks, data, is_error, outcome)
        case Failed(message, data):
            text = truncate_middle(clean(message), MAX_FAILURE_CHARS) or "The tool failed without a message."
        case Refused(_, advice, data):
            text = truncate_middle(clean(advice), MAX_FAILURE_CHARS)
        case Waiting():
            return ToolResult(call.id, call.name, (Text("(waiting for an answer)"),), None, False, outcome)
        case Interrupted(reason, partial):
            data, text = None, reason
            if partial.strip():
                text += f"\nUntil then it said:\n{truncate_middle(clean(partial), MAX_FAILURE_CHARS)}"
    return ToolResult(call.id, call.name, (Text(text),), data, True, outcome)


def _limit_content(content: Content, call: ToolCall, limit: int, spill: Spill, notes: tuple[str, ...]) -> Content:
    blocks: list[Block] = []
    remaining = limit
    for block in content:
        if not isinstance(block, Text):
            blocks.append(block)
            continue
        text = clean(block.text)
        if not text or text.isspace():
            if len(content) > 1:
                continue
            text = NO_OUTPUT
        elif len(text) > remaining:
            text = spill.save(call.id, text, max(remaining, 0))
        remaining -= len(text)
        blocks.append(Text(text))
    if notes:
        blocks.append(Text(f"({'; '.join(notes)})"))
    return tuple(blocks) or (Text(NO_OUTPUT),)


class Spill:
    """The folder for results that are too long to show. It is created with the first one."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def save(self, call_id: str, text: str, limit: int) -> str:
        """Save the text and return what the model is shown instead, at most about `limit` characters long."""
        preview = truncate_middle(text, min(limit, PREVIEW_CHARS))
        size = f"{len(text):,} characters, {text.count(chr(10)) + 1:,} lines"
        try:
            path = self._write(call_id, text)
        except OSError as error:
            reason = f"The result is too long ({size}) and could not be kept on disk ({error.strerror}). Ask for less."
            return f"{reason}\n\n{preview}"
        return (
            f"The result is too long to show ({size}). All of it is in {path}\n"
            f"Read that file in parts (offset, limit) or search it with Grep. This is how it begins and ends:\n\n"
            f"{preview}"
        )

    def _write(self, call_id: str, text: str) -> Path:
        make_private_folder(self.folder)
        stem = re.sub(r"[^A-Za-z0-9_.-]", "_", call_id)[:100].lstrip(".") or "call"
        for count in range(1_000):
            path = self.folder / f"{stem}{f'-{count}' if count else ''}.txt"
            try:
                with open(path, "x", encoding="utf-8", opener=open_private) as file:
                    file.write(text)
            except FileExistsError:
                continue
            return path
        raise FileExistsError(17, "too many results of one call", str(self.folder))


# What JSON or a provider may reject: lone surrogates, and control characters other than tab and line breaks.
_FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")


def clean(text: str) -> str:
    """Join surrogate pairs, replace lone surrogates, remove control characters."""
    if text.isascii() and text.replace("\n", "").replace("\t", "").isprintable():  # ten times as fast as the regex
        return text
    if not _FORBIDDEN.search(text):
        return text
    joined = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return _FORBIDDEN.sub(lambda match: "\ufffd" if match[0] >= "\ud800" else "", joined)
