"""The offer to use Claude Code's settings as a whole: what they hold that is left out so far, and the choice."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from wieldy.policy.permissions.trust import ConsentItem, Trust
from wieldy.policy.settings.load import Settings
from wieldy.policy.settings.store import local_file, set_value

KEY = "compat.claude"


class ClaudeOffer(Struct, frozen=True):
    """`lines` report what is not used, `question` is for a yes or no; give the answer to `store_claude_choice`."""

    lines: tuple[str, ...]
    question: str = "Use these settings of Claude Code here, too?"


def claude_offer(settings: Settings) -> ClaudeOffer | None:
    """Return the offer; None where a choice was made before, or where these files hold nothing more."""
    if settings.origin(KEY) is not None or not settings.report:
        return None
    return ClaudeOffer(tuple(map(str, settings.report)))


def store_claude_choice(root: str, accepted: bool, env: Mapping[str, str] = os.environ) -> Path:
    """Save the choice in the local settings of the project, so that it is not offered again. Blocks on disk and lock.

    What the project's own files configure then still waits for consent. Raises `SettingsNotSaved`.
    """
    file = local_file(root)
    set_value(file, KEY, accepted)
    Trust(env=env).accept(root, [ConsentItem.for_value(KEY, accepted)])
    return file
