"""What is on disk when: before anything lasting is done, and before the model hears of it. Reading waits for nothing."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.agent.conftest import ended, events_of

from wieldy import Script, Session, tool
from wieldy.agent.transcript import FsyncThread, Transcript
from wieldy.core.provider import Request

pytestmark = pytest.mark.asyncio


class Disk:
    """Sees what is on disk for sure, by the syncer's own count, each time a tool runs or a request leaves."""

    def __init__(self) -> None:
        self.session: Session | None = None
        self.seen: list[tuple[str, bool]] = []

    def look(self, what: str) -> None:
        assert self.session is not None and isinstance(self.session.transcript, Transcript)
        syncer = self.session.transcript._fsyncs
        assert isinstance(syncer, FsyncThread)
        assert self.session.transcript.path is not None
        lines = self.session.transcript.path.read_text().splitlines()
        wanted = '{"type":"result"' if what == "request" else '"type":"tool_use"'
        needed = max((n for n, line in enumerate(lines, 1) if wanted in line), default=0)
        self.seen.append((what, syncer._on_disk >= needed))

    def tools(self) -> list[Any]:
        @tool(needs_permission=False)
        async def change() -> str:
            """Change something."""
            self.look("change")
            return "changed"

        @tool(read_only=True)
        async def look() -> str:
            """Look at something."""
            self.look("look")
            return "seen"

        return [change, look]


class Watched(Script):
    """A recorded model that looks at the disk when a request leaves."""

    disk: Disk

    def stream(self, request: Request) -> Any:
        self.disk.look("request")
        return super().stream(request)


async def seen(tmp_path: Any, monkeypatch: pytest.MonkeyPatch, *calls: str) -> list[tuple[str, bool]]:
    monkeypatch.setenv("WIELDY_HOME", str(tmp_path / "home"))
    disk = Disk()
    model = Watched([*([{"call": name}, {"text": "and"}] for name in calls), [{"text": "done"}]])
    model.disk = disk
    session = Session(tmp_path, model=model, tools=disk.tools(), builtins=False, settings={}, mode="bypassPermissions")
    disk.session = session
    async with session:
        assert ended(await events_of(session)).why == "done"
    return disk.seen


async def test_a_call_is_on_disk_before_it_changes_anything_and_its_result_before_the_next_request(
    tmp_path, monkeypatch
):
    happened = await seen(tmp_path, monkeypatch, "change", "change")
    assert [what for what, _ in happened] == ["request", "change", "request", "change", "request"]
    assert all(on_disk for _, on_disk in happened[1:]), happened


async def test_looking_at_something_waits_for_no_disk(tmp_path, monkeypatch):
    happened = await seen(tmp_path, monkeypatch, *["look"] * 20)
    assert not all(on_disk for what, on_disk in happened if what == "look")


async def test_a_disk_that_fails_ends_the_run_before_anything_is_changed(tmp_path, monkeypatch):
    monkeypatch.setenv("WIELDY_HOME", str(tmp_path / "home"))
    disk = Disk()
    model = Script().calls("change").says("done")
    session = Session(tmp_path, model=model, tools=disk.tools(), builtins=False, settings={}, mode="bypassPermissions")
    disk.session = session

    def full() -> None:
        raise OSError(28, "No space left on device")

    async with session:
        assert isinstance(session.transcript, Transcript)
        session.transcript.open()
        assert session.transcript._fsyncs is not None
        session.transcript._fsyncs._before = full
        end = ended(await events_of(session))
        assert end.is_error
        assert "No space left on device" in end.detail
        assert disk.seen == []
        session.transcript._fsyncs._error = None
        session.transcript._fsyncs._before = lambda: None
