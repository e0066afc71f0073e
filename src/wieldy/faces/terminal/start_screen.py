"""What a session shows and offers when it starts."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from wieldy.core.errors import SessionError, WieldyError
from wieldy.core.threads import in_thread
from wieldy.faces.terminal.blocks import Block, LineBlock, SpansBlock
from wieldy.faces.terminal.text import Row, TextSpan
from wieldy.models.registry import NO_MODEL

if TYPE_CHECKING:
    from wieldy.agent.session import Session
    from wieldy.faces.terminal.chat import Chat

HINTS = "/help lists the commands · @ names a file · ! runs a command"
SET_UP_MODEL = """There is no model to talk to. /call and ! still run tools. To set one up:
  a key           ANTHROPIC_API_KEY=… wieldy       or OPENAI_API_KEY, …
  a local server  WIELDY_MODEL=ollama/NAME wieldy  or --base-url URL
  neither         wieldy demo                      a recorded session"""
OTHER_MODEL = "/model NAME chooses another model. /call and ! still run tools."
YES_NO = ("yes", "no")


def start_blocks(session: Session) -> list[Block]:
    """Version, model, folder, mode, sandbox and three hints; then what is wrong or waits for the person."""
    from wieldy import __version__

    box = session.box
    rows: list[Row] = [
        (TextSpan("wieldy", "bold"), TextSpan(f" {__version__}", "dim")),
        _row("model", _describe_model(session)),
        _row("folder", _shorten_home(str(box.workspace.root))),
        _row("mode", box.policy.mode),
        _row("sandbox", _describe_sandbox(session)),
    ]
    blocks: list[Block] = [SpansBlock(tuple(rows)), LineBlock(HINTS, "dim")]
    settings = box.settings
    blocks += [LineBlock(str(problem), "red") for problem in (*settings.errors, *settings.warnings, *box.hook_problems)]
    if (problem := model_problem(session)) == NO_MODEL:
        blocks.append(LineBlock(SET_UP_MODEL, gap=True))
    elif problem:
        blocks += [LineBlock(f"The model cannot be used: {problem}", "red", gap=True), LineBlock(OTHER_MODEL)]
    return blocks


def _row(name: str, text: str) -> Row:
    return (TextSpan(f"  {name:<8} ", "dim"), TextSpan(text))


def _describe_model(session: Session) -> str:
    if problem := model_problem(session):
        return "none" if problem == NO_MODEL else f"{session.model_name}, which cannot be used"
    default = session.default_model
    return f"{default.name} ({default.variable} is set)" if default is not None else session.model_name


def model_problem(session: Session) -> str:
    """Why there is no model to talk to; empty where there is one."""
    try:
        _ = session.provider
    except SessionError as error:
        return str(error)
    return ""


def _describe_sandbox(session: Session) -> str:
    setting = session.box.workspace.setting
    if setting("sandbox.enabled") is not True:
        return "off: commands ask first"
    return "on: commands in it need no question" if setting("sandbox.autoAllow") else "on"


def _shorten_home(path: str) -> str:
    home = os.path.expanduser("~")
    return f"~{path[len(home) :]}" if path == home or path.startswith(home + os.sep) else path


async def make_offers(chat: Chat) -> None:
    """Offer what the person has not decided yet: Claude Code's settings, the sandbox. A choice is kept."""
    try:
        await _offer_claude_settings(chat)
        await _offer_sandbox(chat)
    except (WieldyError, OSError) as error:
        chat.say(str(error), "red")


async def _offer_claude_settings(chat: Chat) -> None:
    from wieldy.policy.settings.claude_offer import claude_offer, store_claude_choice

    settings = chat.session.box.settings
    offer = claude_offer(settings)
    if offer is None:
        return
    choice = await chat.surface.choose(offer.question, offer.lines, YES_NO)
    if choice is not None:
        file = await in_thread(store_claude_choice, str(settings.root), choice == 0, chat.session.box.workspace.env)
        await chat.session.box.reload()
        waiting = "; `wieldy permissions trust` lists what waits for your consent" if choice == 0 else ""
        chat.say(f"kept in {_shorten_home(str(file))}{waiting}", "dim")


async def _offer_sandbox(chat: Chat) -> None:
    from wieldy.policy.settings.sandbox_offer import sandbox_offer, store_sandbox_choice

    box = chat.session.box
    offer = await sandbox_offer(box.settings, box.workspace)
    if offer is None:
        return
    choice = await chat.surface.choose(offer.question, offer.lines, YES_NO)
    if choice is not None:
        file = await in_thread(store_sandbox_choice, choice == 0, box.workspace.env)
        await box.reload()
        now = "commands run in the sandbox without asking" if choice == 0 else "commands ask first"
        chat.say(f"{now}; kept in {_shorten_home(str(file))}", "dim")
