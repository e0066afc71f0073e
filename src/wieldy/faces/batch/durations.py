"""Durations as people write them: `90`, `90s`, `30m`, `2h`."""

from __future__ import annotations

import re

UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([smhd]?)")


def parse_duration(text: str) -> float:
    """Return seconds. Raises `ValueError` with one line for a person."""
    match = _DURATION.fullmatch(text.strip())
    seconds = float(match[1]) * UNITS[match[2]] if match else 0.0
    if not seconds > 0:
        raise ValueError(f"`{text}` is not a duration above 0, such as 90, 90s, 30m or 2h")
    return seconds


def format_duration(seconds: float) -> str:
    """Return a short form for people: `0.4s`, `42s`, `3m12s`, `2h05m`, `3d04h`."""
    if seconds < 9.95:
        return f"{max(seconds, 0):.1f}s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02}s"
    if whole < 86400:
        return f"{whole // 3600}h{whole % 3600 // 60:02}m"
    return f"{whole // 86400}d{whole % 86400 // 3600:02}h"
