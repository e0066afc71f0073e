"""Offers of the first session: to use Claude Code's settings as a whole, and to let commands run unasked inside the sandbox."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from wieldy.core.workspace import Workspace
from wieldy.policy.settings.consent import ConsentItem, Trust
from wieldy.policy.settings.load import Settings
from wieldy.policy.settings.store import local_file, set_value, user_file

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


OFFER = (
    "A sandbox works here (bubblewrap, tried just now). If you agree, commands run in it without a question:",
    "  · They can write in the project and in a private /tmp, nowhere else.",
    "  · They have no network. They do not see keys, passwords or the files that your rules deny.",
    "  · wieldy records what they change in the project, so that you can undo it.",
    "wieldy still asks before destructive commands, writes to protected files and background commands.",
    "It asks before anything runs outside the sandbox. `sandbox.autoAllow` in your settings changes your mind.",
)
QUESTION = "Run commands in the sandbox without asking?"


class SandboxOffer(Struct, frozen=True):
    """`lines` say what agreeing means, `question` is for a yes or no; give the answer to `store_sandbox_choice`."""

    lines: tuple[str, ...] = OFFER
    question: str = QUESTION


async def sandbox_offer(settings: Settings, workspace: Workspace) -> SandboxOffer | None:
    """Return the offer; None where a choice was made before, or where no sandbox was tried that holds.

    The trial starts a few processes, once in a workspace.
    """
    if settings.origin("sandbox.autoAllow") is not None or settings.get("sandbox.enabled"):
        return None
    return SandboxOffer() if await workspace.services.sandbox.holds() else None


def store_sandbox_choice(accepted: bool, env: Mapping[str, str] = os.environ) -> Path:
    """Save the choice in the user's settings, so that it is not offered again. Blocks on disk and lock.

    Raises `SettingsNotSaved`. A running toolbox follows the changed file with its next call.
    """
    file = user_file(env)
    if accepted:
        set_value(file, "sandbox.enabled", True)
    set_value(file, "sandbox.autoAllow", accepted)
    return file
