"""Tells the person that it is their turn: a bell, and a desktop notification where the terminal is known to show one."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from wieldy.core.console import BELL, TerminalCommand, notify, through_tmux, write
from wieldy.core.events import Event, PermissionAsked, RunEnded

QUIET_SECONDS = 10.0
_OSC_9_PROGRAMS = frozenset({"iTerm.app", "WezTerm", "ghostty"})


class TurnNotifier:
    """Notifies when a run ends or asks, more than ten seconds after the person last did something."""

    def __init__(
        self,
        channel: Callable[[], str],
        env: Mapping[str, str] = os.environ,
        *,
        clock: Callable[[], float] = time.monotonic,
        send: Callable[[Sequence[TerminalCommand]], None] | None = None,
    ) -> None:
        self._channel = channel  # the setting `notifications`
        self._env = env
        self._clock = clock
        self._send = send or _write
        self._active_at = clock()

    def on_activity(self) -> None:
        """The person did something."""
        self._active_at = self._clock()

    def observe(self, event: Event) -> None:
        """Follow the events of a session."""
        if isinstance(event, RunEnded):
            self._notify("stopped" if event.is_error else "done")
        elif isinstance(event, PermissionAsked):
            self._notify(f"may {event.name} run?")

    def _notify(self, text: str) -> None:
        channel = self._channel()
        if channel == "off" or self._clock() - self._active_at < QUIET_SECONDS:
            return
        self.on_activity()  # one notification is enough until the person answers or time has passed again
        self._send(notification(text, self._env) if channel == "auto" else [BELL])


def notification(text: str, env: Mapping[str, str]) -> list[TerminalCommand]:
    """What to write: a bell, and a desktop notification where the terminal is known."""
    protocol = _protocol(env)
    if protocol is None:
        return [BELL]
    command = notify("wieldy", text, protocol=protocol)
    return [BELL, through_tmux(command) if env.get("TMUX") else command]


def _protocol(env: Mapping[str, str]) -> Literal["osc9", "osc777"] | None:
    term = env.get("TERM", "")
    if env.get("TERM_PROGRAM") in _OSC_9_PROGRAMS or env.get("LC_TERMINAL") == "iTerm2" or term == "xterm-kitty":
        return "osc9"
    return "osc777" if term.startswith(("foot", "rxvt")) or env.get("VTE_VERSION") else None


def _write(commands: Sequence[TerminalCommand]) -> None:
    write(*commands, end="", flush=True)
