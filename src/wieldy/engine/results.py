"""Whatever a tool returns → what the model reads and what the caller gets."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from msgspec import Struct

from wieldy.core.content import Image, Text
from wieldy.core.tool import Output
from wieldy.core.truncate import truncate_middle


def as_output(value: Any) -> Output:
    """A string is text, blocks are content, anything else is shown as JSON and kept as data."""
    if isinstance(value, Output):
        return value
    if isinstance(value, str):
        return Output(value)
    if type(value) is int:
        return Output(str(value), data=value)
    if value is None:
        return Output("")
    if isinstance(value, Text | Image):
        return Output((value,))
    if isinstance(value, list | tuple) and value and all(isinstance(item, Text | Image) for item in value):
        return Output(tuple(value))
    data = plain(value)
    return Output(json.dumps(data, ensure_ascii=False, indent=2 if isinstance(data, dict | list) else None), data=data)


def plain(value: Any) -> Any:
    """A value as JSON can hold it."""
    if value is None or isinstance(value, str | int | float | bool):
        return value
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    if hasattr(type(value), "__dataclass_fields__"):
        import dataclasses

        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Struct):
        return {name: plain(getattr(value, name)) for name in value.__struct_fields__}
    if callable(dump := getattr(value, "model_dump", None)):
        return plain(dump(mode="json"))
    import msgspec

    try:
        return msgspec.to_builtins(value)
    except TypeError:
        return str(value)


# Everything JSON or a provider may choke on: lone surrogates, and control characters other than tab and line ends.
_UNWELCOME = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")


def clean(text: str) -> str:
    """The text with surrogate pairs joined, lone surrogates replaced and control characters removed."""
    if text.isascii() and (text.isprintable() or _without_breaks(text).isprintable()):
        return text
    if not _UNWELCOME.search(text):
        return text
    return _UNWELCOME.sub(_instead, text.encode("utf-16", "surrogatepass").decode("utf-16", "replace"))


def _without_breaks(text: str) -> str:
    return text.replace("\n", "").replace("\t", "").replace("\r", "")


def _instead(match: re.Match[str]) -> str:
    return "\ufffd" if match[0] >= "\ud800" else ""


PREVIEW_CHARS = 4_000


class Spill:
    """The folder of whole results. It is made when the first one comes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def keep(self, call_id: str, text: str, limit: int) -> str:
        """Write the text down and return what the model is shown instead, at most about `limit` characters long."""
        room = min(limit, PREVIEW_CHARS)
        size = f"{len(text):,} characters, {text.count(chr(10)) + 1:,} lines"
        try:
            path = self._write(call_id, text)
        except OSError as error:
            lost = f"The result is too long ({size}) and could not be kept on disk ({error.strerror}). Ask for less."
            return f"{lost}\n\n{truncate_middle(text, room)}"
        return (
            f"The result is too long to show ({size}). All of it is in {path}\n"
            f"Read that file in parts (offset, limit) or search it with Grep. This is how it begins and ends:\n\n"
            f"{truncate_middle(text, room)}"
        )

    def _write(self, call_id: str, text: str) -> Path:
        self.folder.mkdir(parents=True, exist_ok=True)
        stem = re.sub(r"[^A-Za-z0-9_.-]", "_", call_id)[:100].lstrip(".") or "call"
        for count in range(1_000):
            path = self.folder / f"{stem}{f'-{count}' if count else ''}.txt"
            try:
                with path.open("x", encoding="utf-8") as file:
                    file.write(text)
            except FileExistsError:
                continue
            return path
        raise FileExistsError(17, "too many results of one call", str(self.folder))
