"""From what a tool returns to what the model reads: conversion, size limits, spilling to disk, cleaning."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterator
from itertools import groupby
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
    text_of,
)
from wieldy.core.state_dirs import make_private_folder, open_private
from wieldy.core.supervise import raise_if_ctrl_c
from wieldy.core.text import truncate_middle
from wieldy.core.tool import Output

MAX_FAILURE_CHARS = 10_000
BIG_RESULT_CHARS = 1_000_000
PREVIEW_CHARS = 4_000
MAX_DESCRIBED_ERRORS = 10
MAX_ERROR_CHARS = 4_000
ERRORS_LEFT_OUT = "… further errors left out …"
# What one result shows at most. The largest real ones: 40 blocks, 20 of them images (the pages of a PDF), each about 1 MB of
# base64 where they are scans. A request may take 32 MB in all.
MAX_BLOCKS = 100
MAX_IMAGES = 20
MAX_IMAGE_CHARS = 20_000_000
NO_OUTPUT = "(no output)"
_NO_NAME = re.compile(r"[^A-Za-z0-9_.-]")
_NO_LETTER = re.compile(r"[^a-z0-9]")


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
    if isinstance(value, bytes | bytearray | memoryview):
        raise TypeError("the tool returned bytes: a result is text, an Image, or what JSON has")
    data = to_json(value)
    return Output(json.dumps(data, ensure_ascii=False, indent=2 if isinstance(data, dict | list) else None), data=data)


def finalizing_blocks(outcome: Outcome, limit: int) -> bool:
    """Whether finalizing an outcome blocks the event loop: something is saved to disk, or takes long to clean."""
    if not isinstance(outcome, Done):
        return False
    content = outcome.content
    chars = sum(len(block.text) + 1 for block in content if isinstance(block, Text))
    image_chars = sum(len(block.data) for block in content if isinstance(block, Image))
    return len(content) > MAX_IMAGES or chars > min(limit, BIG_RESULT_CHARS) or image_chars > MAX_IMAGE_CHARS


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
    """The blocks as the model gets them. The limit is one decision about all of them, and what they lose is on disk."""
    blocks: list[Block] = []
    images: list[Image] = []
    shown_images = image_chars = 0
    for block in content:
        if isinstance(block, Image):
            images.append(block)
            image_chars += len(block.data)
            if shown_images == len(images) - 1 < MAX_IMAGES and image_chars <= MAX_IMAGE_CHARS:
                shown_images += 1
                blocks.append(block)
        elif (text := clean(block.text)) and not text.isspace():
            blocks.append(Text(text))
    texts = [block.text for block in blocks if isinstance(block, Text)]
    if sum(map(len, texts)) + len(texts) - 1 > limit:
        at = next(at for at, block in enumerate(blocks) if isinstance(block, Text))
        blocks = [block for block in blocks if isinstance(block, Image)]
        blocks.insert(at, Text(spill.save(call.id, "\n".join(texts), limit)))
    elif len(blocks) > MAX_BLOCKS:
        blocks = _join_neighbors(blocks)
    if not blocks:
        blocks.append(Text(NO_OUTPUT))
    if notes:
        blocks.append(Text(f"({'; '.join(notes)})"))
    if shown_images < len(images):
        blocks.append(Text(f"({spill.save_images(call.id, images[shown_images:], len(images))})"))
    return tuple(blocks)


def _join_neighbors(blocks: list[Block]) -> list[Block]:
    """The blocks with every run of texts as one text."""
    runs = groupby(blocks, key=lambda block: isinstance(block, Text))
    joined = ([Text(text_of(tuple(run)))] if is_text else list(run) for is_text, run in runs)
    return [block for run in joined for block in run]


class Spill:
    """The folder for results that are too long to show. It is created with the first one."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def save(self, call_id: str, text: str, limit: int) -> str:
        """Save the text and return what the model is shown instead, at most about `limit` characters long."""
        preview = truncate_middle(text, min(limit, PREVIEW_CHARS))
        size = f"{len(text):,} characters, {text.count(chr(10)) + 1:,} lines"
        try:
            path = self._make(call_id, ".txt", lambda path: _write_new(path, text.encode()))
        except OSError as error:
            reason = f"The result is too long ({size}) and could not be kept on disk ({error.strerror}). Ask for less."
            return f"{reason}\n\n{preview}"
        return (
            f"The result is too long to show ({size}). All of it is in {path}\n"
            f"Read that file in parts (offset, limit) or search it with Grep. This is how it begins and ends:\n\n"
            f"{preview}"
        )

    def save_images(self, call_id: str, images: list[Image], total: int) -> str:
        """Save the last images of a result and return the notice for the model."""
        first = total - len(images) + 1
        most = f"one result shows at most {MAX_IMAGES}, of {MAX_IMAGE_CHARS * 3 // 4_000_000} MB in all"
        notice = f"{len(images):,} of {total:,} images are not shown: {most}."
        try:
            folder = self._make(call_id, "-images", lambda path: path.mkdir(mode=0o700))
            for number, image in enumerate(images, first):
                extension = _NO_LETTER.sub("", image.media_type.rpartition("/")[2])[:10].replace("jpeg", "jpg") or "bin"
                _write_new(folder / f"{number}.{extension}", _decode(image.data))
        except OSError as error:
            return f"{notice} They could not be kept on disk ({error.strerror}). Ask for fewer."
        return f"{notice} They are in {folder} by their number from {first}; Read shows one."

    def _make(self, call_id: str, suffix: str, create: Callable[[Path], object]) -> Path:
        """Create a file or folder that is named after the call."""
        make_private_folder(self.folder)
        stem = _NO_NAME.sub("_", call_id)[:100].lstrip(".") or "call"
        for count in range(1_000):
            path = self.folder / f"{stem}{f'-{count}' if count else ''}{suffix}"
            try:
                create(path)
            except FileExistsError:
                continue
            return path
        raise FileExistsError(17, "too many results of one call", str(self.folder))


def _write_new(path: Path, data: bytes) -> None:
    with open(path, "xb", opener=open_private) as file:
        file.write(data)


def _decode(data: str) -> bytes:
    """The bytes of an image, or its text where that is not base64."""
    try:
        return base64.b64decode(data)
    except ValueError:
        return data.encode()


def describe_error(error: BaseException) -> str:
    """An error in one line, without its causes."""
    try:
        text = " ".join(truncate_middle(str(error), MAX_ERROR_CHARS).split())
    except BaseException as failure:
        raise_if_ctrl_c(failure)
        text = "(its message cannot be shown)"
    return f"{type(error).__name__}{f': {text}' if text else ''}"


def describe_causes(error: BaseException) -> Iterator[str]:
    """What an error carries beside its message: output of a program, the members of a group, and causes."""
    pending: list[tuple[str, Any]] = [("", error)]
    seen: set[int] = set()
    while pending:
        relation, error = pending.pop()
        if id(error) in seen:
            continue
        if error is None or len(seen) == MAX_DESCRIBED_ERRORS:
            yield ERRORS_LEFT_OUT
            return
        seen.add(id(error))
        if relation:
            yield f"{relation}{describe_error(error)}"
        yield from _outputs(error)
        cause, relation = _attribute(error, "__cause__"), "Caused by "
        if cause is None and _attribute(error, "__suppress_context__") is False:
            cause, relation = _attribute(error, "__context__"), "While handling "
        if isinstance(cause, BaseException):
            pending.append((relation, cause))
        if isinstance(error, BaseExceptionGroup) and type(members := _attribute(error, "exceptions")) is tuple:
            if len(members) > MAX_DESCRIBED_ERRORS:
                pending.append(("", None))
            listed = enumerate(members[:MAX_DESCRIBED_ERRORS], 1)
            pending += reversed([(f"{number} of {len(members)}: ", member) for number, member in listed])


def _outputs(error: BaseException) -> Iterator[str]:
    """Output of a program, each text once: `CalledProcessError` has it as `output` and as `stdout`."""
    shown = set()
    for name in ("stderr", "stdout", "output"):
        value = _attribute(error, name)
        text = bytes.decode(value, errors="replace") if isinstance(value, bytes) else value
        if isinstance(text, str) and (text := str.strip(text)) and text not in shown:
            shown.add(text)
            yield f"{name}:\n{truncate_middle(text, MAX_ERROR_CHARS)}"


def _attribute(error: BaseException, name: str) -> Any:
    try:
        return getattr(error, name, None)
    except BaseException as failure:
        raise_if_ctrl_c(failure)
        return None


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
