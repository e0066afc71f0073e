"""One file as it was and as it shall be: what every tool that writes hands to the journal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wieldy.core.record import record

if TYPE_CHECKING:
    from wieldy.edit.splice import Splice


@record
class Change:
    """The bytes of a file before and after; None means that there is no such file.

    `real_path` is where `path` led when it was judged: if it leads elsewhere when it is written, nothing is written.
    `mode` are the permission bits of a file that is made anew, where they shall not be the usual ones. `splice` says how
    the one becomes the other, where that is known.
    """

    path: str
    before: bytes | None
    after: bytes | None
    real_path: str | None = None
    mode: int | None = None
    splice: Splice | None = None
