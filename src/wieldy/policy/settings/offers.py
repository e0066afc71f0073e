"""Offers of the first session: to use Claude Code's settings as a whole, and to let commands run unasked inside the sandbox."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from msgspec import Struct

from wieldy.core.workspace import Workspace
from wieldy.policy.settings.consent import ConsentItem, Trust
from wieldy.policy.settings.load import Settings
from wieldy.policy.settings.store import local_file, set_value, user_file

KEY = "compat.claude"


class Offer(Struct, frozen=True):
    """`question` is for a yes or no, after `lines`; give the answer to `store`, then say one of `replies`, with its file."""

    lines: tuple[str, ...]
    question: str
    store: Callable[[bool], Path]
    replies: tuple[str, str]


def claude_offer(settings: Settings, env: Mapping[str, str] = os.environ) -> Offer | None:
    """Return the offer; None where a choice was made before, or where these files hold nothing more."""
    if settings.origin(KEY) is not None or not settings.report:
        return None
    return Offer(
        tuple(map(str, settings.report)),
        "Use these settings of Claude Code here, too?",
        partial(store_claude_choice, str(settings.root), env=env),
        ("kept in {file}; `wieldy permissions trust` lists what waits for your consent", "kept in {file}"),
    )


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


async def sandbox_offer(settings: Settings, workspace: Workspace) -> Offer | None:
    """Return the offer; None where a choice was made before, or where no sandbox was tried that holds.

    The trial starts a few processes, once in a workspace.
    """
    if settings.origin("sandbox.autoAllow") is not None or settings.get("sandbox.enabled"):
        return None
    if not await workspace.services.sandbox.holds():
        return None
    return Offer(
        OFFER,
        "Run commands in the sandbox without asking?",
        partial(store_sandbox_choice, env=workspace.env),
        ("commands run in the sandbox without asking; kept in {file}", "commands ask first; kept in {file}"),
    )


def store_sandbox_choice(accepted: bool, env: Mapping[str, str] = os.environ) -> Path:
    """Save the choice in the user's settings, so that it is not offered again. Blocks on disk and lock.

    Raises `SettingsNotSaved`. A running toolbox follows the changed file with its next call.
    """
    file = user_file(env)
    if accepted:
        set_value(file, "sandbox.enabled", True)
    set_value(file, "sandbox.autoAllow", accepted)
    return file
