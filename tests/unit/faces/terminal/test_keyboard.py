"""Keys as terminals report them when they are asked to, and which of them are asked."""

from __future__ import annotations

import pytest
from prompt_toolkit.input.vt100_parser import Vt100Parser
from prompt_toolkit.key_binding import KeyPress
from prompt_toolkit.keys import Keys

from wieldy.faces.terminal.input import known_keys
from wieldy.faces.terminal.screen import key_protocol

BREAK = [Keys.Escape, Keys.ControlM]


def keys_of(data: str, piece: int = 1000) -> list[str]:
    """The keys of some input, read in pieces."""
    read: list[KeyPress] = []
    parser = Vt100Parser(read.append)
    for start in range(0, len(data), piece):
        parser.feed(data[start : start + piece])
    parser.flush()
    return [key.key for key in known_keys(read)]


REPORTS = [
    ("\x1b[13;2u", BREAK),
    ("\x1b[27;2;13~", BREAK),
    ("\x1bOM", BREAK),  # of Konsole
    ("\x1b[13;5u", BREAK),
    ("\x1b[13;130u", BREAK),  # with Num Lock
    ("\x1b[13u", [Keys.ControlM]),
    ("\x1b[57414u", [Keys.ControlM]),  # of the keypad
    ("\x1b[27u", [Keys.Escape]),
    ("\x1b[27;129u", [Keys.Escape]),
    ("\x1b[99;5u", [Keys.ControlC]),
    ("\x1b[27;5;99~", [Keys.ControlC]),
    ("\x1b[67;6u", [Keys.ControlC]),
    ("\x1b[106;5u", [Keys.ControlJ]),
    ("\x1b[91;5u", [Keys.Escape]),
    ("\x1b[98;3u", [Keys.Escape, "b"]),
    ("\x1b[9;2u", [Keys.BackTab]),
    ("\x1b[127;3u", [Keys.Escape, Keys.ControlH]),
    ("\x1b[127;2u", [Keys.ControlH]),
    ("\x1b[32;2u", [" "]),
    ("\x1b[27;2;32~", [" "]),
    ("\x1b[97;2u", ["A"]),
    ("\x1b[1;129A", [Keys.Up]),
    ("\x1b[1;133D", [Keys.ControlLeft]),
    ("\x1b[3;129~", [Keys.Delete]),
    ("\x1b[57419u", [Keys.Up]),
    ("\x1b[59;5u", [Keys.Ignore]),
]


@pytest.mark.parametrize(("sequence", "keys"), REPORTS)
@pytest.mark.parametrize("piece", [1000, 2])
def test_a_reported_key_is_understood_whole_or_in_pieces(sequence: str, keys: list[str], piece: int) -> None:
    assert keys_of(sequence, piece) == keys


@pytest.mark.parametrize("sequence", ["\x1b[27;2;32~", "\x1b[97;2u", "\x1b[98;3u"])
def test_a_reported_character_is_typed_and_not_its_sequence(sequence: str) -> None:
    read: list[KeyPress] = []
    Vt100Parser(read.append).feed(sequence)
    last = known_keys(read)[-1]
    assert last.data == last.key


@pytest.mark.parametrize("report", ["\x1b[?1u", "\x1b[?62;4c", "\x1b]11;rgb:0000/0000/0000\x1b\\", "\x1b[200;9x"])
def test_other_reports_of_a_terminal_are_no_keys(report: str) -> None:
    assert keys_of(report) == []


@pytest.mark.parametrize(
    ("env", "protocol"),
    [
        ({"TERM": "xterm-kitty"}, "kitty"),
        ({"TERM": "xterm-256color", "KITTY_WINDOW_ID": "1"}, "kitty"),
        ({"TERM": "alacritty"}, "kitty"),
        ({"TERM": "foot"}, "modifyOtherKeys"),
        ({"TERM": "xterm-256color", "XTERM_VERSION": "XTerm(379)"}, "modifyOtherKeys"),
        ({"TERM": "xterm-ghostty"}, "modifyOtherKeys"),
        ({"TERM": "xterm-256color", "TERM_PROGRAM": "WezTerm"}, "modifyOtherKeys"),
        ({"TERM": "tmux-256color", "TMUX": "/tmp/tmux,1,0", "KITTY_WINDOW_ID": "1"}, "modifyOtherKeys"),
        ({"TERM": "screen.xterm-256color", "STY": "1.pts", "XTERM_VERSION": "XTerm(379)"}, None),
        ({"TERM": "linux"}, None),
        ({"TERM": "xterm-256color"}, None),
    ],
)
def test_only_a_terminal_that_is_known_to_report_keys_is_asked(env: dict[str, str], protocol: str | None) -> None:
    assert key_protocol(env) == protocol
