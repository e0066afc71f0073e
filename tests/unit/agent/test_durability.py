"""What is on disk when: before anything lasting is done, and before the model hears of it. Reading waits for nothing."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.unit.agent.conftest import ended, events_of

from wieldy import Script, Session, tool
from wieldy.agent.records import UserMessage
from wieldy.agent.transcript import Transcript, records
from wieldy.core.errors import SessionError
from wieldy.core.provider import Request

pytestmark = pytest.mark.asyncio


class Disk:
    """Sees what is on disk for sure, by the transcript's own count, each time a tool runs or a request leaves."""

    def __init__(self) -> None:
        self.session: Session | None = None
        self.seen: list[tuple[str, bool]] = []

    def look(self, what: str) -> None:
        assert self.session is not None and isinstance(self.session.transcript, Transcript)
        transcript = self.session.transcript
        assert transcript.path is not None
        lines = transcript.path.read_text().splitlines()
        wanted = '{"type":"result"' if what == "request" else '"type":"tool_use"'
        needed = max((n for n, line in enumerate(lines, 1) if wanted in line), default=0)
        self.seen.append((what, transcript._on_disk >= needed))

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
        assert session.transcript._payloads is not None
        session.transcript._payloads.fsync = full  # type: ignore[method-assign]
        end = ended(await events_of(session))
        assert end.is_error
        assert "No space left on device" in end.detail
        assert disk.seen == []
        session.transcript._fsync_error = None
        del session.transcript._payloads.fsync


def breaking(how: Any) -> Any:
    @tool(needs_permission=False)
    async def spoil() -> str:
        """Make the transcript impossible to write."""
        how()
        return "spoiled"

    return spoil


async def test_a_transcript_that_is_deleted_while_the_session_runs_ends_it_with_a_sentence(make_session, caplog):
    model = Script([[{"call": "spoil"}], [{"text": "never said"}]])
    async with make_session(model) as session:
        session.box.add(breaking(lambda: shutil.rmtree(session.transcript.path.parent)))
        end = ended(await events_of(session))
    assert end.why == "error"
    assert "deleted" in end.detail
    assert "cannot be resumed" in end.detail
    assert len(model.requests) == 1
    assert caplog.records == []


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
async def test_a_full_disk_ends_the_session_with_a_sentence_and_no_traceback(make_session, caplog):
    def fill() -> None:
        full = os.open("/dev/full", os.O_WRONLY)
        os.dup2(full, session.transcript._file)
        os.close(full)

    async with make_session(Script([[{"call": "spoil"}], [{"text": "never said"}]])) as session:
        session.box.add(breaking(fill))
        end = ended(await events_of(session))
    assert end.why == "error"
    assert "No space left" in end.detail
    assert "cannot be resumed" in end.detail
    assert caplog.records == []


async def test_half_a_line_of_a_failed_write_does_not_swallow_the_next_record(tmp_path):
    transcript = Transcript(tmp_path / "s")
    transcript.append(UserMessage([{"type": "text", "text": "one"}]))
    writable = os.dup(transcript._file)
    os.write(transcript._file, b'{"type":"us')
    read_only = os.open(tmp_path / "s" / "transcript.jsonl", os.O_RDONLY)
    os.dup2(read_only, transcript._file)
    with pytest.raises(SessionError):
        transcript.append(UserMessage([{"type": "text", "text": "two"}]))
    os.dup2(writable, transcript._file)
    transcript.append(UserMessage([{"type": "text", "text": "three"}]))
    await transcript.aclose()
    os.close(writable)
    os.close(read_only)
    kept = [record for record in records(tmp_path / "s") if isinstance(record, UserMessage)]
    assert [record.content[0]["text"] for record in kept] == ["one", "three"]
