"""The offer to let commands run unasked inside the sandbox: whether it can be made here, what it means, and the choice."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from wieldy.core.workspace import Workspace
from wieldy.policy.settings.load import Settings
from wieldy.policy.settings.store import set_value, user_file

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
