"""`wieldy permissions replay --commands FILE`: how many of many shell commands would ask, with and without the sandbox."""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import sys
from collections import Counter
from collections.abc import Iterable, Sequence

from msgspec import Struct, to_builtins

from wieldy.core.console import print_error, write, write_json
from wieldy.core.decision import Behavior
from wieldy.core.errors import Refusal
from wieldy.engine.toolbox import Toolbox
from wieldy.shell.effects.analysis import Analysis

MOST_PROGRAMS = 12
_TIMESTAMP = re.compile(r": \d+:\d+;")  # of zsh, before the command; that of bash is a comment
_SANDBOX = {"sandbox": {"enabled": True, "autoAllow": True}}


class Tally(Struct, frozen=True):
    """The decisions about some commands; `programs` are those that asked, and how often."""

    allow: int
    ask: int
    deny: int
    programs: dict[str, int]

    def __str__(self) -> str:
        total = max(1, self.allow + self.ask + self.deny)
        numbers = (("run without a question", self.allow), ("ask", self.ask), ("are denied", self.deny))
        return ", ".join(f"{number} ({number / total:.1%}) {what}" for what, number in numbers)


def replay_commands(options: argparse.Namespace) -> int:
    """Decide about every command of a file, and print how many ask."""
    try:
        commands = read_commands(options.commands)
    except OSError as error:
        print_error(f"{options.commands} cannot be read: {(error.strerror or str(error)).lower()}")
        return 2
    if not commands:
        print_error(f"{options.commands} has no commands: write one a line")
        return 2
    now, sandboxed = asyncio.run(_tally_both(commands, options))
    if options.json:
        write_json({"commands": len(commands), "now": to_builtins(now), "sandboxed": to_builtins(sandboxed)})
        return 0
    write("\n".join(_lines(len(commands), now, sandboxed)))
    return 0


def read_commands(file: str) -> list[str]:
    """The commands of a file: a line each, or a JSON string for one of several lines. Comments and time stamps are left out."""
    if file == "-":
        text = sys.stdin.read()
    else:
        with open(file, encoding="utf-8", errors="surrogateescape") as lines:
            text = lines.read()
    commands = [_TIMESTAMP.sub("", line.strip(), count=1) for line in text.splitlines()]
    return [_decode(command) for command in commands if command and not command.startswith("#")]


def _decode(line: str) -> str:
    if line.startswith('"'):
        try:
            command = json.loads(line)
        except ValueError:
            return line
        return command if isinstance(command, str) else line
    return line


async def _tally_both(commands: Sequence[str], options: argparse.Namespace) -> tuple[Tally, Tally | None]:
    """The decisions by the settings as they are, and as if the sandbox were agreed to; None where no sandbox holds."""
    async with Toolbox(options.root, mode=options.mode, load_settings=True) as box:
        now = await _tally(box, commands)
    async with Toolbox(options.root, mode=options.mode, settings=_SANDBOX, load_settings=True) as box:
        holds = await box.workspace.services.sandbox.holds()
        return now, await _tally(box, commands) if holds else None


async def _tally(box: Toolbox, commands: Iterable[str]) -> Tally:
    behaviors: Counter[Behavior] = Counter()
    programs: Counter[str] = Counter()
    for command in commands:
        try:
            decision = await box.explain("Bash", {"command": command})
        except Refusal:
            behaviors["deny"] += 1
            continue
        behaviors[decision.behavior] += 1
        if decision.behavior == "ask":
            programs[_asking_program(box.policy.analyze(command))] += 1
    return Tally(behaviors["allow"], behaviors["ask"], behaviors["deny"], dict(programs.most_common(MOST_PROGRAMS)))


def _asking_program(analysis: Analysis) -> str:
    if analysis.verdict == "read_only":
        return "(reads elsewhere)"
    return next((part.program for part in analysis.parts if part.program and not part.read_only), "(not understood)")


def _lines(count: int, now: Tally, sandboxed: Tally | None) -> list[str]:
    lines = [f"{count} command(s): {now}"]
    if now.programs:
        lines.append("  most often: " + ", ".join(f"{name} {number}" for name, number in now.programs.items()))
    if sandboxed is None:
        lines.append("with the sandbox: no sandbox holds here; `wieldy doctor` says why")
    else:
        lines.append(f"with the sandbox agreed to (sandbox.enabled, sandbox.autoAllow): {sandboxed}")
        if sandboxed.programs:
            lines.append(
                "  most often: " + ", ".join(f"{name} {number}" for name, number in sandboxed.programs.items())
            )
        lines.append("  A command that needs the network fails in it, and the model may ask to run it outside.")
    return lines
