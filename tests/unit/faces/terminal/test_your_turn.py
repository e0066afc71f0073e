"""Notifications when it is the person's turn, and the status line of a command."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from wieldy import Script, Session
from wieldy.core.console import BELL, TerminalCommand
from wieldy.core.events import Event, Notice, RunEnded
from wieldy.faces.terminal.desktop import StatusCommand, TurnNotifier, notification, run_status_command


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def ended() -> RunEnded:
    return RunEnded(why="done", text="", turns=1, cost=0.0, seconds=1.0)


@pytest.mark.parametrize(
    ("seconds", "channel", "count"), [(5, "auto", 0), (11, "auto", 1), (11, "bell", 1), (11, "off", 0)]
)
def test_it_is_said_once_and_only_after_a_while(seconds: float, channel: str, count: int) -> None:
    clock, sent = Clock(), list[Any]()
    notifier = TurnNotifier(lambda: channel, {}, clock=clock, send=sent.append)
    clock.now += seconds
    notifier.observe(Notice(text="not this"))
    notifier.observe(ended())
    notifier.observe(ended())
    assert len(sent) == count
    assert all(commands == [BELL] for commands in sent)


def test_what_the_person_does_starts_the_time_again() -> None:
    clock, sent = Clock(), list[Any]()
    notifier = TurnNotifier(lambda: "auto", {}, clock=clock, send=sent.append)
    clock.now += 60
    notifier.on_activity()
    notifier.observe(ended())
    assert sent == []


@pytest.mark.parametrize(
    ("env", "sequence"),
    [
        ({"TERM_PROGRAM": "iTerm.app"}, "\x1b]9;wieldy: done\x07"),
        ({"TERM": "foot"}, "\x1b]777;notify;wieldy;done\x07"),
        ({"TERM": "foot", "TMUX": "x"}, "\x1bPtmux;\x1b\x1b]777;notify;wieldy;done\x07\x1b\\"),
        ({"TERM": "xterm"}, None),
    ],
)
def test_known_terminals_show_a_notification(env: dict[str, str], sequence: str | None) -> None:
    assert notification("done", env) == ([BELL, TerminalCommand(sequence)] if sequence else [BELL])


@pytest.mark.asyncio
async def test_the_status_command_gets_what_scripts_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WIELDY_HOME", str(tmp_path / "home"))
    command = 'tee state.json | python3 -c \'import json, sys; print(json.load(sys.stdin)["model"]["display_name"])\''
    settings = {"statusLine": {"type": "command", "command": command}}
    changed = asyncio.Event()
    model = Script().calls("Write", file_path="a.txt", content="one\ntwo\n").says("Done.")
    async with Session(tmp_path, model=model, mode="acceptEdits", settings=settings) as session:
        status = StatusCommand(lambda: session, changed.set)

        async def observe(event: Event) -> None:
            status.observe(event)

        session.box.subscribe(observe)
        await session.ask("write it")
        await asyncio.wait_for(changed.wait(), 20)
        await status.aclose()
        assert status.line == session.model_name.rpartition("/")[2]
        state = json.loads((tmp_path / "state.json").read_text())
    assert state["session_id"] == session.id
    assert state["workspace"] == {"current_dir": str(tmp_path), "project_dir": str(tmp_path)}
    assert {"total_cost_usd", "total_duration_ms", "total_lines_added"} <= set(state["cost"])
    assert state["context_window"]["context_window_size"] > 0


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("command", "line"),
    [
        ("printf '\\033[31mred\\033[0m and \\033]0;owned\\007more\\nsecond\\n'", "red and more"),
        ("exit 3", "statusLine: exit code 3"),
        ("true", ""),
        ("head -c 1000000 /dev/zero | tr '\\0' x | head -c 1", "x"),
    ],
)
async def test_its_first_line_is_shown_without_sequences(tmp_path: Path, command: str, line: str) -> None:
    session = Session(tmp_path, settings={}, model=Script(), persist=False)
    assert await run_status_command(command, {}, session.box.workspace) == line
    await session.aclose()


@pytest.mark.asyncio
async def test_without_a_command_nothing_runs(tmp_path: Path) -> None:
    session = Session(tmp_path, settings={}, model=Script(), persist=False)
    status = StatusCommand(lambda: session, lambda: None)
    status.refresh()
    await status.aclose()
    assert (status.command, status.line) == ("", "")
    await session.aclose()
