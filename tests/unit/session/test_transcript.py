"""The log on disk: whole lines, tolerant reading, long strings beside it."""

from __future__ import annotations

import json
import multiprocessing
import os
from pathlib import Path

import pytest

from wieldy.core.failure import SessionError
from wieldy.session.payload import LONG, LOST
from wieldy.session.transcript import NAME, Transcript, records


async def written(folder: Path, *some: dict[str, object]) -> None:
    log = Transcript(folder)
    for record in some:
        log.append(record)
    await log.aclose()


@pytest.mark.asyncio
async def test_what_was_appended_is_read_in_order(tmp_path):
    some = [{"type": "user", "n": n} for n in range(50)]
    await written(tmp_path / "s", *some)
    assert list(records(tmp_path / "s")) == some
    assert (tmp_path / "s" / NAME).stat().st_mode & 0o777 == 0o600


@pytest.mark.asyncio
async def test_a_record_can_be_read_before_anybody_waited_for_the_disk(tmp_path):
    log = Transcript(tmp_path)
    log.append({"type": "block"})
    assert list(records(tmp_path)) == [{"type": "block"}]
    await log.flushed()
    await log.flushed()
    await log.aclose()


def test_there_is_no_file_before_the_first_record_and_no_record_without_a_file(tmp_path):
    Transcript(tmp_path / "s")
    assert not (tmp_path / "s").exists()
    assert list(records(tmp_path / "s")) == []


@pytest.mark.asyncio
async def test_every_torn_tail_loses_at_most_the_last_record(tmp_path):
    await written(tmp_path, {"a": 1}, {"b": "é"})
    whole = (tmp_path / NAME).read_bytes()
    for cut in range(len(whole)):
        (tmp_path / NAME).write_bytes(whole[:cut])
        assert list(records(tmp_path)) == [{"a": 1}, {"b": "é"}][: whole[: cut + 1].count(b"\n")]


@pytest.mark.asyncio
async def test_a_torn_tail_does_not_swallow_the_next_record(tmp_path):
    (tmp_path / NAME).write_bytes(b'{"a":1}\n{"torn')
    await written(tmp_path, {"b": 2})
    assert list(records(tmp_path)) == [{"a": 1}, {"b": 2}]


@pytest.mark.asyncio
async def test_lines_that_are_no_records_are_passed_over(tmp_path):
    deep = b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    (tmp_path / NAME).write_bytes(
        b"\n".join([b"garbage", b"3", b"[]", b'{"a":1}', b"\xff\xfe", b'{"b":"\xff"}', deep, b""])
    )
    assert list(records(tmp_path)) == [{"a": 1}]


@pytest.mark.asyncio
async def test_long_strings_are_kept_once_beside_the_log(tmp_path):
    long = "é" * (LONG + 1)
    await written(tmp_path, {"deep": [{"x": long}]}, {"again": long, "short": "s"})
    assert (tmp_path / NAME).stat().st_size < 500
    assert len(list((tmp_path / "payloads").iterdir())) == 1
    assert list(records(tmp_path)) == [{"deep": [{"x": long}]}, {"again": long, "short": "s"}]


@pytest.mark.asyncio
async def test_a_lost_payload_is_said_and_a_crooked_name_reads_nothing_else(tmp_path):
    (tmp_path / "payloads").mkdir()
    (tmp_path / "secret").write_text("secret")
    lines = [{"x": {"$payload": "gone"}}, {"x": {"$payload": "../secret"}}]
    (tmp_path / NAME).write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert list(records(tmp_path)) == [{"x": LOST}, {"x": LOST}]


@pytest.mark.asyncio
async def test_half_a_character_is_no_obstacle(tmp_path):
    await written(tmp_path, {"x": ["a\ud83d"], "\udc00": 1})
    assert list(records(tmp_path)) == [{"x": ["a\ufffd"], "\ufffd": 1}]


@pytest.mark.asyncio
async def test_a_folder_that_cannot_be_made_ends_the_run_in_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(SessionError, match="cannot be written"):
        Transcript(tmp_path / "file" / "s").append({"a": 1})


def _write_many(folder: str, who: int) -> None:
    import asyncio

    asyncio.run(written(Path(folder), *({"who": who, "n": n, "pad": "x" * 300} for n in range(200))))


def test_two_writers_never_tear_each_others_lines(tmp_path):
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=_write_many, args=(os.fspath(tmp_path), who)) for who in (1, 2)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(60)
    found = list(records(tmp_path))
    assert len(found) == 400
    for who in (1, 2):
        assert [record["n"] for record in found if record["who"] == who] == list(range(200))
