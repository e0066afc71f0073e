"""One file as it was and as it shall be: what every tool that writes hands to the journal."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Change:
    """The bytes of a file before and after; None means that there is no such file.

    `real_path` is where `path` led when it was judged. If it is given and `path` leads elsewhere by the time of writing,
    nothing is written.
    """

    path: str
    before: bytes | None
    after: bytes | None
    real_path: str | None = None
