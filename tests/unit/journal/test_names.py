"""Names of contents: always those of the content, whatever was remembered."""

from __future__ import annotations

from wieldy.journal.frame import digest_of
from wieldy.journal.names import LARGEST, REMEMBERED, Names


def test_a_name_is_the_digest_of_the_content_and_of_nothing_remembered():
    names = Names()
    for data in (b"one", b"other", b"one", b"", b"x" * (LARGEST + 1), b"one"):
        assert names.of("/p", data) == digest_of(data)


def test_paths_do_not_mix_and_the_oldest_is_forgotten():
    names = Names()
    for number in range(REMEMBERED * 2):
        assert names.of(f"/{number}", b"%d" % number) == digest_of(b"%d" % number)
    for number in range(REMEMBERED * 2):
        assert names.of(f"/{number}", b"%d" % (number + 1)) == digest_of(b"%d" % (number + 1))
