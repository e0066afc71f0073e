"""The history of what was typed, kept between sessions."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from typing import TYPE_CHECKING

from wieldy.core.state_dirs import make_private_folder, state_home

if TYPE_CHECKING:
    from prompt_toolkit.history import History


def open_history(root: str) -> History:
    """Open the history of a project; one that cannot be saved lasts for this session."""
    from prompt_toolkit.history import FileHistory

    digest = hashlib.sha256(os.fsencode(os.path.realpath(root))).hexdigest()[:12]
    file = state_home() / "prompts" / f"{os.path.basename(root) or 'root'}-{digest}"

    class TolerantHistory(FileHistory):
        def load_history_strings(self) -> Iterable[str]:
            try:
                return super().load_history_strings()
            except OSError:
                return []

        def store_string(self, string: str) -> None:
            try:
                make_private_folder(file.parent)
                super().store_string(string)
            except OSError:
                pass

    return TolerantHistory(str(file))
