"""Whatever text is written, a terminal shows it and obeys none of it; styles and commands are values of our own."""

from __future__ import annotations

import io
import json
import re
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wieldy.core.console import (
    GuardedStream,
    StyledText,
    TerminalCommand,
    encode_json,
    guard_streams,
    notify,
    print_error,
    redirect_errors,
    render,
    set_clipboard,
    through_tmux,
    uses_color,
    write,
    write_json,
)
from wieldy.core.text import escape_controls

ESCAPES: dict[str, str] = json.loads((Path(__file__).parents[2] / "corpora/terminal/escapes.json").read_text())
DANGEROUS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]")


@pytest.mark.parametrize("name", ESCAPES)
def test_no_escape_sequence_survives(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = ESCAPES[name]
    write(f"before {text} after", StyledText(text, ("bold",)))
    print_error(text)
    shown = capsys.readouterr()
    assert not DANGEROUS.search(shown.out + shown.err)
    assert "<U+" in shown.out
    assert "before" in shown.out


@pytest.mark.parametrize("name", ESCAPES)
def test_json_escapes_them_and_keeps_the_value(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    write_json({name: ESCAPES[name]})
    shown = capsys.readouterr().out
    assert not DANGEROUS.search(shown)
    assert json.loads(shown) == {name: ESCAPES[name]}


@given(st.text(alphabet=st.characters(), max_size=60))
def test_any_text_is_shown_without_controls_and_escaping_again_changes_nothing(text: str) -> None:
    escaped = escape_controls(text)
    assert not DANGEROUS.search(escaped)
    assert escape_controls(escaped) == escaped
    assert json.loads(encode_json(text)) == text


@pytest.mark.parametrize(
    "text", ["größe 日本語", "👨‍👩‍👧 🏳️‍🌈", "می‌خواهم", "क्‍ष", "a\u00a0b\u202fc　d", "tab\there\nnext"]
)
def test_what_languages_and_emoji_need_stays(text: str) -> None:
    assert render(text, color=True) == text


def test_the_flag_of_england_stays_and_tags_elsewhere_are_spelled_out() -> None:
    flag = "\U0001f3f4\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f"
    assert escape_controls(flag) == flag
    assert escape_controls("x\U000e0067") == "x<U+E0067>"


def test_a_line_break_of_windows_is_a_line_break() -> None:
    assert escape_controls("a\r\nb\rc") == "a\nb<U+000D>c"


def test_further_lines_of_an_error_cannot_pass_for_another_one(capsys: pytest.CaptureFixture[str]) -> None:
    print_error("no file a\nwieldy: all is well")
    assert capsys.readouterr().err == "wieldy: no file a\n  wieldy: all is well\n"


def test_styles_are_written_only_in_color() -> None:
    spans = ("a ", StyledText("b\x1b[0m", ("bold", "red")))
    assert render(*spans, color=True) == "a \x1b[1;31mb<U+001B>[0m\x1b[0m"
    assert render(*spans, color=False) == "a b<U+001B>[0m"


@pytest.mark.parametrize(("env", "expected"), [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)])
def test_color_needs_a_terminal_that_has_it(env: dict[str, str], expected: bool) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    assert uses_color(Terminal(), env) is expected
    assert not uses_color(io.StringIO(), {})


def test_the_clipboard_gets_the_text_encoded_and_nothing_too_long() -> None:
    assert set_clipboard("a\x07\x1b]") == TerminalCommand("\x1b]52;c;YQcbXQ==\x07")
    assert set_clipboard("x" * 100_000) is None


def test_a_notification_is_one_line_without_commands() -> None:
    command = notify("wieldy", "a;b\x07\n\x1b]0;x", protocol="osc777")
    assert command.sequence == "\x1b]777;notify;wieldy;a,b<U+0007> <U+001B>]0,x\x07"
    assert through_tmux(command).sequence.startswith("\x1bPtmux;\x1b\x1b]777;")


def test_a_guarded_stream_escapes_what_others_print() -> None:
    stream = io.StringIO()
    guarded = GuardedStream(stream)
    print("a\x1b[2Jb", file=guarded)
    guarded.writelines(["c\x9b", "d\n"])
    assert stream.getvalue() == "a<U+001B>[2Jb\nc<U+009B>d\n"


def test_redirected_errors_come_line_by_line() -> None:
    lines: list[str] = []
    with redirect_errors(lines.append):
        sys.stderr.write("one\ntw")
        assert lines == ["one"]
        sys.stderr.writelines(["o\n", "\n", "three\n"])
    assert lines == ["one", "two", "three"]


def test_no_error_is_lost_where_the_redirection_ends(capsys: pytest.CaptureFixture[str]) -> None:
    lines: list[str] = []
    with redirect_errors(lines.append):
        stream = sys.stderr  # a log handler keeps it
        stream.write("not ended")
    stream.write("later\x1b[2J\n")
    assert lines == []
    assert capsys.readouterr().err == "not ended\nlater<U+001B>[2J\n"


@pytest.mark.parametrize(
    ("encoding", "shown"), [("ascii", "> x - b~ ?"), ("latin-1", "> x · b~ ?"), ("utf-8", "› ✗ · b… 日")]
)
def test_a_terminal_without_our_characters_gets_similar_ones(
    monkeypatch: pytest.MonkeyPatch, encoding: str, shown: str
) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding=encoding))
    monkeypatch.setattr(sys, "stderr", io.TextIOWrapper(io.BytesIO(), encoding=encoding))
    guard_streams()
    write("› ✗ · b… 日", end="", flush=True)
    assert raw.getvalue().decode(encoding) == shown
