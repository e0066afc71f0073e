"""A transcript in a store of one's own."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.unit.agent.conftest import SessionMaker

from wieldy import Script, SessionError, Store
from wieldy.agent.records import ApprovalRequested

pytestmark = pytest.mark.asyncio


class SqliteStore:
    """All sessions in one database."""

    def __init__(self, path: Path) -> None:
        self._database = sqlite3.connect(path, check_same_thread=False)  # the collector may run in any thread
        self._database.execute("CREATE TABLE IF NOT EXISTS records (session TEXT, record BLOB)")

    def __del__(self) -> None:
        self._database.close()

    async def append(self, session_id: str, records: list[bytes]) -> None:
        with self._database:
            self._database.executemany("INSERT INTO records VALUES (?, ?)", [(session_id, each) for each in records])

    async def read(self, session_id: str) -> AsyncIterator[bytes]:
        query = "SELECT record FROM records WHERE session = ? ORDER BY rowid"
        for (record,) in self._database.execute(query, (session_id,)):
            yield record

    async def list(self) -> list[str]:
        return [id for (id,) in self._database.execute("SELECT DISTINCT session FROM records")]


NOTE = {"call": "note", "input": {"word": "tea"}}


async def test_a_session_is_resumed_from_its_store_and_leaves_no_transcript_elsewhere(make_session, tmp_path):
    store: Store = SqliteStore(tmp_path / "sessions.db")
    async with make_session(Script([[NOTE], [{"text": "noted"}]]), store=store) as session:
        await session.ask("take a note")
        assert not (session.box.workspace.session_dir / "transcript.jsonl").exists()
    assert await store.list() == [session.id]
    model = Script([[{"text": "tea"}]])
    other: Store = SqliteStore(tmp_path / "sessions.db")
    async with make_session(model, store=other, resume=session.id) as resumed:
        assert resumed.id == session.id
        assert await resumed.ask("what was it?") == "tea"
    assert len(model.requests[0].messages) == 5


async def test_a_fork_has_an_id_of_its_own(make_session, tmp_path):
    store = SqliteStore(tmp_path / "sessions.db")
    async with make_session(Script([[{"text": "one"}]]), store=store) as session:
        await session.ask("go")
    async with make_session(Script([[{"text": "two"}]]), store=store, resume=session.id, fork=True) as fork:
        assert await fork.ask("go on") == "two"
        assert len(fork.messages) == 4
    assert sorted(await store.list()) == sorted([session.id, fork.id])


async def test_questions_wait_in_the_store(make_session, tmp_path, ledger):
    store = SqliteStore(tmp_path / "sessions.db")
    asks = {"call": "asks", "input": {"word": "x"}, "id": "a"}
    async with make_session(Script([[asks]]), store=store, ask="defer") as session:
        await session.ask("go")
    async with make_session(Script([[{"text": "done"}]]), store=store, resume=session.id) as resumed:
        assert [question.id for question in resumed.pending] == ["a"]
        assert await resumed.answer({"a": True}) == "done"
    assert ledger.ran == ["x"]


async def test_everything_is_in_the_store_when_the_run_has_ended(make_session, tmp_path):
    class Slow(SqliteStore):
        async def append(self, session_id: str, records: list[bytes]) -> None:
            await asyncio.sleep(0.01)
            await super().append(session_id, records)

    store = Slow(tmp_path / "sessions.db")
    async with make_session(Script([[NOTE], [{"text": "noted"}]]), store=store) as session:
        await session.ask("take a note")
        lines = [line async for line in store.read(session.id)]
    assert b'"noted"' in lines[-2]
    assert b"answered" in lines[-1]
    assert not any(b"\n" in line for line in lines)


async def test_a_store_that_fails_ends_the_run_in_one_line(make_session, tmp_path, ledger):
    class Full(SqliteStore):
        async def append(self, session_id: str, records: list[bytes]) -> None:
            raise OSError("the disk is full")

    async with make_session(Script([[NOTE], [{"text": "x"}]]), store=Full(tmp_path / "sessions.db")) as session:
        with pytest.raises(SessionError, match="cannot be written: the disk is full"):
            await session.ask("go")


async def test_everything_is_closed_where_the_store_and_a_model_fail_at_the_end(make_session, tmp_path):
    closed = []

    class Model(Script):
        async def aclose(self) -> None:
            closed.append(self)
            raise ConnectionResetError("gone")

    class Full(SqliteStore):
        full = False

        async def append(self, session_id: str, records: list[bytes]) -> None:
            if self.full:
                raise OSError("the disk is full")
            await super().append(session_id, records)

    store, model, small = Full(tmp_path / "sessions.db"), Model([[{"text": "x"}]]), Model([[{"text": "short"}]])
    session = make_session(model, small_model=small, store=store)
    await session.ask("go")
    assert await session.box.workspace.services.summarizer("?", "page") == "short"
    store.full = True
    session.transcript.append(ApprovalRequested("x"))
    with pytest.raises(ConnectionResetError):
        await session.aclose()
    assert closed == [model, small]


async def test_a_session_that_is_not_in_the_store_says_so(make_session, tmp_path):
    session = make_session(Script([]), store=SqliteStore(tmp_path / "sessions.db"), resume="nobody")
    with pytest.raises(SessionError, match="there is no session nobody in the store"):
        async with session:
            pass


@pytest.mark.parametrize("options", [{"store": object()}, {"persist": False}])
async def test_what_is_no_store_is_an_error(make_session: SessionMaker, tmp_path: Path, options: dict[str, Any]):
    store = SqliteStore(tmp_path / "sessions.db")
    with pytest.raises((TypeError, ValueError)):
        make_session(Script([]), **{"store": store, **options})


async def test_read_may_be_a_coroutine_that_returns_an_iterator(make_session, tmp_path):
    class Returning(SqliteStore):
        async def read(self, session_id: str) -> AsyncIterator[bytes]:  # type: ignore[override]
            return super().read(session_id)

    store = Returning(tmp_path / "sessions.db")
    async with make_session(Script([[{"text": "one"}]]), store=store) as session:
        await session.ask("go")
    async with make_session(Script([[{"text": "two"}]]), store=store, resume=session.id) as resumed:
        assert await resumed.ask("go on") == "two"
        assert len(resumed.messages) == 4


async def test_a_store_whose_append_is_not_async_is_told_so(make_session, tmp_path):
    class Plain(SqliteStore):
        def append(self, session_id: str, records: list[bytes]) -> None:  # type: ignore[override]
            return

    async with make_session(Script([[{"text": "one"}]]), store=Plain(tmp_path / "sessions.db")) as session:
        with pytest.raises(SessionError, match="`append` of the store must be an async function"):
            await session.ask("go")
