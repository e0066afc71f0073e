"""Results too long for the model: the whole goes to disk, the model gets head, tail, size and path."""

from __future__ import annotations

import re
from pathlib import Path

PREVIEW_CHARS = 4_000
LINE_SLACK = 200  # how much of the room may be given up to cut at a line end


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
            return f"{lost}\n\n{shorten(text, room)}"
        return (
            f"The result is too long to show ({size}). All of it is in {path}\n"
            f"Read that file in parts (offset, limit) or search it with Grep. This is how it begins and ends:\n\n"
            f"{shorten(text, room)}"
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


def shorten(text: str, room: int) -> str:
    """Head and tail of a text with the middle cut out and counted. Never splits a character."""
    if len(text) <= room:
        return text
    head, tail = text[: room * 2 // 3], text[len(text) - room // 3 :]
    if (end := head.rfind("\n")) > len(head) - LINE_SLACK:
        head = head[: end + 1]
    if 0 <= (start := tail.find("\n")) < min(LINE_SLACK, len(tail) - 1):
        tail = tail[start + 1 :]
    left_out = len(text) - len(head) - len(tail)
    return f"{head.rstrip()}\n… {left_out:,} characters left out …\n{tail}"
