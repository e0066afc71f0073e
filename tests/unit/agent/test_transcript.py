"""The log on disk: whole lines, tolerant reading, long strings beside it."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import threading
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from wieldy.agent.records import AssistantBlock, AssistantMessageEnded, ToolResultRecord, TranscriptRecord, UserMessage
from wieldy.agent.transcript import PAYLOAD_CHARS, PAYLOAD_LOST, Transcript, raw_records, records
from wieldy.core.errors import SessionError
from wieldy.core.session_files import TRANSCRIPT_NAME


class Note(TranscriptRecord, frozen=True, tag="note"):
    """A record of a type that no reader knows."""

    data: Any


async def written(folder: Path, *some: Any) -> None:
    log = Transcript(folder)
    for data in some:
        log.append(Note(data))
    await log.aclose()


def notes(folder: Path) -> list[Any]:
    return [record["data"] for record in raw_records(folder)]


@pytest.mark.asyncio
async def test_what_was_appended_is_read_in_order(tmp_path):
    log = Transcript(tmp_path / "s")
    some = [UserMessage([{"type": "text", "text": str(n)}]) for n in range(50)]
    for record in some:
        log.append(record)
    await log.aclose()
    assert list(records(tmp_path / "s")) == some
    assert (tmp_path / "s" / TRANSCRIPT_NAME).stat().st_mode & 0o777 == 0o600


@pytest.mark.asyncio
async def test_a_record_can_be_read_before_anybody_waited_for_the_disk(tmp_path):
    log = Transcript(tmp_path)
    log.append(Note(1))
    assert notes(tmp_path) == [1]
    await log.flush()
    await log.flush()
    await log.aclose()


@pytest.mark.asyncio
async def test_whoever_waits_for_results_waits_for_nothing_that_came_after_them(tmp_path):
    log = Transcript(tmp_path)
    log.append(ToolResultRecord({"type": "tool_result"}))
    await log.flush(results=True)
    may_go_on = threading.Event()
    assert log._payloads is not None
    log._payloads.fsync = may_go_on.wait  # type: ignore[method-assign,assignment]
    log.append(AssistantMessageEnded())
    async with asyncio.timeout(20):
        await log.flush(results=True)
    may_go_on.set()
    await log.aclose()


def test_there_is_no_file_before_the_first_record_and_no_record_without_a_file(tmp_path):
    Transcript(tmp_path / "s")
    assert not (tmp_path / "s").exists()
    assert list(records(tmp_path / "s")) == []


@pytest.mark.asyncio
async def test_every_torn_tail_loses_at_most_the_last_record(tmp_path):
    await written(tmp_path, {"a": 1}, {"b": "é"})
    whole = (tmp_path / TRANSCRIPT_NAME).read_bytes()
    for cut in range(len(whole)):
        (tmp_path / TRANSCRIPT_NAME).write_bytes(whole[:cut])
        assert notes(tmp_path) == [{"a": 1}, {"b": "é"}][: whole[: cut + 1].count(b"\n")]


@pytest.mark.asyncio
async def test_a_torn_tail_does_not_swallow_the_next_record(tmp_path):
    (tmp_path / TRANSCRIPT_NAME).write_bytes(b'{"type":"note","data":1}\n{"torn')
    await written(tmp_path, 2)
    assert notes(tmp_path) == [1, 2]


@pytest.mark.asyncio
async def test_lines_that_are_no_records_are_passed_over(tmp_path):
    deep = b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    (tmp_path / TRANSCRIPT_NAME).write_bytes(
        b"\n".join([b"garbage", b"3", b"[]", b'{"a":1}', b"\xff\xfe", b'{"b":"\xff"}', deep, b""])
    )
    assert list(raw_records(tmp_path)) == [{"a": 1}]
    assert list(records(tmp_path)) == []


@pytest.mark.asyncio
async def test_records_of_unknown_type_are_kept_and_skipped_and_unknown_fields_ignored(tmp_path):
    known = {"type": "user", "content": [], "from_the_future": 1}
    (tmp_path / TRANSCRIPT_NAME).write_text('{"type":"from the future","x":1}\n' + json.dumps(known) + "\n")
    log = Transcript(tmp_path)
    log.append(UserMessage(["more"]))
    await log.aclose()
    assert list(records(tmp_path)) == [UserMessage([]), UserMessage(["more"])]
    assert [record["type"] for record in raw_records(tmp_path)] == ["from the future", "user", "user"]


@pytest.mark.asyncio
async def test_a_long_text_in_a_known_record_comes_back(tmp_path):
    log = Transcript(tmp_path)
    record = UserMessage([{"type": "text", "text": "é" * (PAYLOAD_CHARS + 1)}])
    log.append(record)
    await log.aclose()
    assert (tmp_path / TRANSCRIPT_NAME).stat().st_size < 500
    assert list(records(tmp_path)) == [record]


@pytest.mark.asyncio
async def test_long_strings_are_kept_once_beside_the_log(tmp_path):
    long = "é" * (PAYLOAD_CHARS + 1)
    await written(tmp_path, {"deep": [{"x": long}]}, {"again": long, "short": "s"})
    assert (tmp_path / TRANSCRIPT_NAME).stat().st_size < 500
    assert len(list((tmp_path / "payloads").iterdir())) == 1
    assert notes(tmp_path) == [{"deep": [{"x": long}]}, {"again": long, "short": "s"}]


@pytest.mark.asyncio
async def test_a_lost_payload_is_said_and_a_crooked_name_reads_nothing_else(tmp_path):
    (tmp_path / "payloads").mkdir()
    (tmp_path / "secret").write_text("secret")
    lines = [{"x": {"$payload": "gone"}}, {"x": {"$payload": "../secret"}}]
    (tmp_path / TRANSCRIPT_NAME).write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert list(raw_records(tmp_path)) == [{"x": PAYLOAD_LOST}, {"x": PAYLOAD_LOST}]


@pytest.mark.asyncio
async def test_half_a_character_is_no_obstacle(tmp_path):
    await written(tmp_path, {"x": ["a\ud83d"], "\udc00": 1})
    assert notes(tmp_path) == [{"x": ["a\ufffd"], "\ufffd": 1}]


@pytest.mark.asyncio
async def test_a_folder_that_cannot_be_made_ends_the_run_in_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(SessionError, match="cannot be written"):
        Transcript(tmp_path / "file" / "s").append(Note(1))


def _hold(folder: str, ready: Connection) -> None:
    log = Transcript(Path(folder))
    log.append(Note("the first"))
    ready.send(os.getpid())
    ready.recv()  # until the test is done, or this process is killed


def test_only_one_process_at_a_time_has_a_log_open(tmp_path):
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    holder = context.Process(target=_hold, args=(os.fspath(tmp_path), there))
    holder.start()
    try:
        assert here.poll(60)
        pid = here.recv()
        log = Transcript(tmp_path)
        with pytest.raises(SessionError, match=rf"open in another process \(pid {pid}\).*--fork-session"):
            log.append(Note("the second"))
        with pytest.raises(SessionError, match="--fork-session"):
            log.open()
        assert notes(tmp_path) == ["the first"]
    finally:
        holder.kill()
        holder.join(60)
    log.append(Note("the second"))
    assert notes(tmp_path) == ["the first", "the second"]


@pytest.mark.asyncio
async def test_a_log_that_is_closed_can_be_opened_again_and_one_that_is_not_cannot(tmp_path):
    first, second = Transcript(tmp_path), Transcript(tmp_path)
    first.open()
    with pytest.raises(SessionError, match="this process"):
        second.open()
    await first.aclose()
    second.open()
    await second.aclose()


@pytest.mark.asyncio
async def test_a_payload_that_is_not_what_its_name_says_is_lost(tmp_path):
    long = "x" * (PAYLOAD_CHARS + 1)
    await written(tmp_path, {"x": long})
    (payload,) = (tmp_path / "payloads").iterdir()
    payload.write_bytes(b"")
    assert notes(tmp_path) == [{"x": PAYLOAD_LOST}]


@pytest.mark.parametrize("padding", [0, 2 * PAYLOAD_CHARS])
@pytest.mark.parametrize("key", ["$payload", "$$payload", "$$$payload", "payload", "$payloads"])
@pytest.mark.asyncio
async def test_data_that_looks_like_a_reference_to_a_payload_comes_back_as_it_was(tmp_path, key, padding):
    data = {"input": {key: "x" * 32}, "list": [{key: {key: 1}}], "two": {key: 1, "b": 2}, "long": "y" * padding}
    await written(tmp_path, data, key)
    assert notes(tmp_path) == [data, key]
    call = {"type": "tool_use", "id": "c", "name": "t", "input": {key: "abc"}}
    log = Transcript(tmp_path / "typed")
    log.append(AssistantBlock(call))
    await log.aclose()
    assert list(records(tmp_path / "typed")) == [AssistantBlock(call)]
