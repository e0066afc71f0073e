"""Shorten text for models and people: cut the end, the middle, or down to one line."""

from __future__ import annotations

LINE_SLACK = 200  # how many characters may be given up to cut at a line break


def truncate(text: str, limit: int) -> str:
    """Return the text, its end replaced by an ellipsis where it is longer than `limit` characters."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def truncate_line(text: str, limit: int) -> str:
    """Return the text on one line, runs of whitespace collapsed, of at most `limit` characters."""
    return truncate(" ".join(text.split()), limit)


def truncate_middle(text: str, limit: int, head_share: float = 2 / 3) -> str:
    """Return head and tail of a text that is longer than `limit`, and how many characters are missing between them."""
    if len(text) <= limit:
        return text
    head_limit = int(limit * head_share)
    head, tail = keep_head(text, head_limit), keep_tail(text, limit - head_limit)
    omitted = len(text) - len(head) - len(tail)
    return f"{head.rstrip()}\n… {omitted:,} characters left out …\n{tail}"


def keep_head(text: str, limit: int) -> str:
    """Return the first `limit` characters, cut at a line break where one is near."""
    head = text[:limit]
    end = head.rfind("\n") + 1
    return head[:end] if end and end > limit - min(LINE_SLACK, limit // 2) else head


def keep_tail(text: str, limit: int) -> str:
    """Return the last `limit` characters, cut at a line break where one is near."""
    tail = text[len(text) - limit :]
    start = tail.find("\n") + 1
    return tail[start:] if 0 < start < min(LINE_SLACK, limit // 2) else tail
