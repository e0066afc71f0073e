"""Keys that terminals report only when asked, such as Shift-Enter, and what is written to ask for them.

Two protocols: kitty's (`CSI code ; modifiers u`) and xterm's modifyOtherKeys (`CSI 27 ; modifiers ; code ~`). kitty's also
changes how Esc and Ctrl-C arrive, so every modified key must be understood, not only Enter. Which one a terminal speaks is
told by its environment: a question to the terminal could be answered into the shell after we have left.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Literal, TypeAlias, cast

from prompt_toolkit.input.ansi_escape_sequences import ANSI_SEQUENCES
from prompt_toolkit.keys import Keys

KeyProtocol: TypeAlias = Literal["kitty", "modifyOtherKeys"]
KeyName: TypeAlias = Keys | str

SHIFT, ALT, CTRL = 1, 2, 4
LOCKS = (0, 64, 128, 192)  # Caps Lock and Num Lock, which kitty reports for keys that are no text
ENTER, TAB, ESCAPE, SPACE, BACKSPACE = 13, 9, 27, 32, 127
_KEYPAD: Mapping[int, KeyName] = {
    **{57399 + digit: str(digit) for digit in range(10)},
    **dict(enumerate(".", 57409)),
    **dict(enumerate("/*-+", 57410)),
    57414: Keys.ControlM,
    57415: "=",
    57416: ",",
    57417: Keys.Left,
    57418: Keys.Right,
    57419: Keys.Up,
    57420: Keys.Down,
    57421: Keys.PageUp,
    57422: Keys.PageDown,
    57423: Keys.Home,
    57424: Keys.End,
    57425: Keys.Insert,
    57426: Keys.Delete,
}
_CONTROL: Mapping[str, Keys] = {
    **{chr(code): Keys(f"c-{chr(code)}") for code in range(ord("a"), ord("z") + 1)},
    **{str(digit): Keys(f"c-{digit}") for digit in range(10)},
    "[": Keys.Escape,
    "\\": Keys.ControlBackslash,
    "]": Keys.ControlSquareClose,
    "^": Keys.ControlCircumflex,
    "_": Keys.ControlUnderscore,
    "/": Keys.ControlUnderscore,
    "@": Keys.ControlAt,
    " ": Keys.ControlAt,
}


def key_protocol(env: Mapping[str, str] = os.environ) -> KeyProtocol | None:
    """The protocol to ask a terminal for; None where it is not known to have one: it might show the request."""
    term, program = env.get("TERM", ""), env.get("TERM_PROGRAM", "")
    if env.get("TMUX"):
        return "modifyOtherKeys"
    if env.get("STY") or term.startswith("screen"):
        return None
    if term in ("xterm-kitty", "alacritty", "rio", "xterm-rio") or env.get("KITTY_WINDOW_ID") or program == "rio":
        return "kitty"
    if env.get("XTERM_VERSION") or term.startswith("foot") or term == "xterm-ghostty":
        return "modifyOtherKeys"
    return "modifyOtherKeys" if program in ("WezTerm", "ghostty", "iTerm.app", "mintty") else None


def learn_key_reports() -> None:
    """Teach prompt_toolkit the keys of both protocols."""
    reports = {
        **dict(_lock_variants(ANSI_SEQUENCES)),
        **{sequence: keys[0] if len(keys) == 1 else keys for sequence, keys in _reports()},
    }
    ANSI_SEQUENCES.update(cast("Mapping[str, Keys | tuple[Keys, ...]]", reports))


def _reports() -> Iterator[tuple[str, tuple[KeyName, ...]]]:
    yield "\x1bOM", _keys(ENTER, SHIFT)  # Konsole, unasked
    for code in (ENTER, TAB, ESCAPE, *range(SPACE, BACKSPACE + 1), *_KEYPAD):
        for modifiers in range(8):
            keys = _keys(code, modifiers)
            for lock in LOCKS if not SPACE < code < BACKSPACE else (0,):
                yield f"\x1b[{code};{modifiers + lock + 1}u", keys
            if modifiers:
                yield f"\x1b[27;{modifiers + 1};{code}~", keys
        yield f"\x1b[{code}u", _keys(code, 0)


def _keys(code: int, modifiers: int) -> tuple[KeyName, ...]:
    """What prompt_toolkit calls a key; Alt is Esc before it."""
    if code == ENTER:  # Shift-, Alt- and Ctrl-Enter are all Alt-Enter: a line break
        return (Keys.Escape, Keys.ControlM) if modifiers else (Keys.ControlM,)
    prefix = (Keys.Escape,) if modifiers & ALT else ()
    return (*prefix, _plain_key(code, shift=bool(modifiers & SHIFT), ctrl=bool(modifiers & CTRL)))


def _plain_key(code: int, *, shift: bool, ctrl: bool) -> KeyName:
    if code == TAB:
        return Keys.BackTab if shift else Keys.ControlI
    if code == ESCAPE:
        return Keys.Escape
    if code == BACKSPACE:
        return Keys.ControlW if ctrl else Keys.ControlH
    if code in _KEYPAD:
        return _KEYPAD[code]
    character = chr(code)
    if ctrl:
        return _CONTROL.get(character.lower(), Keys.Ignore)
    return character.upper() if shift else character


def _lock_variants(sequences: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    """Arrows and function keys, as kitty reports them with a lock on: `CSI A` becomes `CSI 1;129A`."""
    for sequence, key in list(sequences.items()):
        if not sequence.startswith("\x1b[") or sequence.startswith("\x1b[["):
            continue
        body, end = sequence[2:-1], sequence[-1]
        number, _, modifiers = body.partition(";")
        if end not in "~ABCDFHPQS" or not all(part.isdigit() for part in (number, modifiers) if part):
            continue
        if end == "~" and (not number or int(number) > 34):
            continue
        for lock in LOCKS[1:]:
            yield f"\x1b[{number or 1};{int(modifiers or 1) + lock}{end}", key
