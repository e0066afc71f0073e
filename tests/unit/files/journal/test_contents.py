"""Contents are hashed and compressed once, whoever needs them first."""

from __future__ import annotations

import threading
import zlib

from wieldy.files.journal.contents import MAX_REMEMBERED, MAX_REMEMBERED_BYTES, RecentContents
from wieldy.files.journal.entries import content_hash


def test_a_content_that_was_just_recorded_is_not_hashed_again():
    recent = RecentContents()
    first = recent.get(b"one")
    assert first.hash == content_hash(b"one")
    assert recent.get(bytes(bytearray(b"one"))) is first
    assert recent.get(b"two") is not first


def test_only_a_few_small_contents_are_remembered():
    recent = RecentContents()
    first, large = recent.get(b"0"), recent.get(b"x" * (MAX_REMEMBERED_BYTES + 1))
    assert recent.get(large.data) is not large
    for number in range(1, MAX_REMEMBERED + 1):
        recent.get(str(number).encode())
    assert recent.get(b"0") is not first


def test_many_threads_get_the_same_compressed_form():
    data = bytes(range(256)) * 500
    recent = RecentContents()
    recent.prepare(data)
    results: list[bytes] = []
    threads = [threading.Thread(target=lambda: results.append(recent.get(data).compress())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(map(id, results))) == 1
    assert zlib.decompress(results[0]) == data


def test_an_empty_content_is_stored_like_any_other():
    assert zlib.decompress(RecentContents().get(b"").compress()) == b""
