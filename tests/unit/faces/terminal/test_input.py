"""The input box: folded pastes, bursts, keys that are none."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable

import pytest
from prompt_toolkit.buffer import CompletionState
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.input.vt100_parser import Vt100Parser
from prompt_toolkit.key_binding import KeyPress
from prompt_toolkit.keys import Keys

from wieldy.faces.terminal.input import BurstDetector, InputBox, known_keys
from wieldy.faces.terminal.text import row_text


def keys_of(data: str) -> list[KeyPress]:
    keys: list[KeyPress] = []
    parser = Vt100Parser(keys.append)
    parser.feed_and_flush(data)
    return keys


@pytest.mark.parametrize(
    "report",
    ["\x1b[57441u", "\x1b[I", "\x1b[?1;2c", "\x1b]11;rgb:1e1e/2121/2727\x07", "\x1b]11;rgb:0/0/0\x1b\\", "\x1bOZ"],
)
def test_reports_of_the_terminal_are_no_keys(report: str) -> None:
    keys = known_keys(keys_of(f"a{report}b"))
    assert "".join(key.data for key in keys) == "ab"


@pytest.mark.parametrize("typed", ["\x1b", "\x1bb", "\x1b\r", "\x1b[A", "\x1b[", "\x1b[13;2u", "\x1b[1;3A"])
def test_keys_with_escape_stay(typed: str) -> None:
    assert "".join(key.data for key in known_keys(keys_of(typed))) == typed


def test_bytes_that_are_no_text_are_replaced() -> None:
    assert [key.data for key in known_keys([KeyPress("\udcff", "\udcff"), KeyPress("a", "a")])] == ["\ufffd", "a"]


def test_a_burst_with_line_breaks_is_one_paste() -> None:
    [key] = BurstDetector().convert(keys_of("first\rsecond"))
    assert (key.key, key.data) == (Keys.BracketedPaste, "first\nsecond")


def test_an_enter_at_the_end_of_a_burst_counts_only_when_nothing_follows() -> None:
    detector = BurstDetector()
    assert "".join(key.data for key in detector.convert(keys_of("a whole line\r"))) == "a whole line"
    assert [key.key for key in detector.release()] == [Keys.ControlM]
    assert detector.release() == []
    detector.convert(keys_of("a whole line\r"))
    [key] = detector.convert(keys_of("another one"))
    assert key.data == "\nanother one"


def test_typing_is_no_burst() -> None:
    detector = BurstDetector()
    for key in "hello\r":
        assert [pressed.data for pressed in detector.convert(keys_of(key))] == [key]


def test_a_long_paste_is_a_mark_that_is_deleted_at_once_and_sent_whole() -> None:
    box = InputBox(None, None)
    text = "\n".join(map(str, range(100)))
    box.paste(text)
    box.paste(text)
    assert box.buffer.text == "[Pasted 100 lines][Pasted 100 lines #2]"
    assert box.delete_mark()
    assert box.buffer.text == "[Pasted 100 lines]"
    assert box.take() == text
    assert box.is_empty


@pytest.mark.parametrize("end", ["", "\n"])
def test_a_line_break_at_the_end_of_a_paste_is_no_further_line(end: str) -> None:
    box = InputBox(None, None)
    box.paste("\n".join(["line"] * 5000) + end)
    assert box.buffer.text == "[Pasted 5000 lines]"


def test_a_draft_longer_than_the_screen_shows_the_rows_around_the_caret() -> None:
    box = InputBox(None, None)
    box.buffer.insert_text("\n".join(f"row {number}" for number in range(30)))
    rows, caret = box.rows(40, 5)
    assert [row_text(row).strip() for row in rows][-1] == "row 29"
    assert len(rows) == 5
    assert rows[caret.row] == rows[-1]
    box.buffer.cursor_position = 0
    rows, caret = box.rows(40, 5)
    assert row_text(rows[0]) == "› row 0"
    assert caret == (0, 2)


def test_the_rows_of_the_menu_belong_to_the_caller() -> None:
    box = InputBox(None, None)
    box.buffer.insert_text("/he", fire_event=False)
    box.buffer.complete_state = CompletionState(box.buffer.document, [Completion("/help", -3)])
    box.menu_rows(80).append(())
    box.buffer.insert_text("l", fire_event=False)
    box.buffer.on_text_insert.fire()  # its completions are being looked for: the last menu stays
    assert box.menu_rows(80) == box.menu_rows(80)
    assert len(box.menu_rows(80)) == 1


def test_no_menu_stays_where_no_completions_are_looked_for() -> None:
    box = InputBox(None, None)
    box.buffer.insert_text("/he", fire_event=False)
    box.buffer.complete_state = CompletionState(box.buffer.document, [Completion("/help", -3)])
    assert len(box.menu_rows(80)) == 1
    box.buffer.delete_before_cursor(1)
    assert box.menu_rows(80) == []


class SlowCompleter(Completer):
    """Answers when the gate is open; keeps what it was asked for."""

    def __init__(self) -> None:
        self.searched: list[str] = []
        self.gate = asyncio.Event()

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        raise NotImplementedError

    async def get_completions_async(
        self, document: Document, complete_event: CompleteEvent
    ) -> AsyncGenerator[Completion, None]:
        self.searched.append(document.text)
        await self.gate.wait()
        if document.text != "@none":
            yield Completion(f"{document.text}.py", -len(document.text))


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


@pytest.mark.asyncio
async def test_what_was_deleted_while_a_search_ran_is_searched_for_afterwards() -> None:
    completer = SlowCompleter()
    box = InputBox(completer, None)
    box.buffer.insert_text("@abcd")
    await settle()
    for _ in range(3):
        box.delete_backwards()
        await settle()
    completer.gate.set()
    await settle()
    assert completer.searched == ["@abcd", "@a"]
    assert [row_text(row).strip() for row in box.menu_rows(80)] == ["@a.py"]


@pytest.mark.asyncio
async def test_a_search_without_a_result_is_made_once_and_leaves_no_menu() -> None:
    completer = SlowCompleter()
    box = InputBox(completer, None)
    box.buffer.insert_text("@none")
    completer.gate.set()
    await settle()
    assert completer.searched == ["@none"]
    assert box.menu_rows(80) == []
