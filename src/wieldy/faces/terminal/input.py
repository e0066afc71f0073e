"""The input box: an editing buffer of prompt_toolkit, drawn by grapheme, with pastes, bursts of keys, history and completion.

Some keys, such as Shift-Enter, are reported only when asked for, in kitty's form (`CSI code ; modifiers u`) or that of xterm's
modifyOtherKeys (`CSI 27 ; modifiers ; code ~`). kitty's also changes how Esc and Ctrl-C arrive, so every modified key is known.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import subprocess
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, cast

from prompt_toolkit.buffer import Buffer, CompletionState
from prompt_toolkit.completion import Completer, Completion, ThreadedCompleter
from prompt_toolkit.filters import Condition
from prompt_toolkit.history import FileHistory, History
from prompt_toolkit.input.ansi_escape_sequences import ANSI_SEQUENCES
from prompt_toolkit.key_binding import KeyPress
from prompt_toolkit.keys import Keys
from prompt_toolkit.search import SearchState

from wieldy.core.state_dirs import make_private_folder, state_home
from wieldy.core.text import escape_controls
from wieldy.faces.terminal.commands import COMMANDS
from wieldy.faces.terminal.screen import Caret
from wieldy.faces.terminal.text import (
    Row,
    TextSpan,
    clip_row,
    display_width,
    graphemes,
    make_printable,
    merge_spans,
    to_line,
)
from wieldy.faces.terminal.view_model import INDENT, PROMPT_MARK

if TYPE_CHECKING:
    from prompt_toolkit.completion import CompleteEvent
    from prompt_toolkit.document import Document

    from wieldy.faces.terminal.chat import Chat

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


MAX_PASTED_LINES = 20
MAX_PASTED_CHARS = 4_000
MAX_MENU_ROWS = 6
BURST_KEYS = 8  # as many keys in one read, with an Enter among them, come from no person
LONG_BURST_KEYS = 200

learn_key_reports()


class InputBox:
    """The draft of the person. Long pastes are folded to a mark and sent whole."""

    def __init__(self, completer: Completer | None, history: History | None) -> None:
        self._pastes: dict[str, str] = {}
        self.buffer = Buffer(
            completer=completer,
            complete_while_typing=Condition(self._completes_while_typing),
            history=history,
            multiline=True,
            tempfile_suffix=".md",
            on_text_changed=self._on_text_changed,
            on_text_insert=self._on_text_insert,
            on_completions_changed=self._on_completions_changed,
        )
        self._menu: list[Row] = []  # as it was last drawn
        self._completing = False  # completions of the new text are being looked for
        self._searched = ""  # the text of the last search

    @property
    def is_empty(self) -> bool:
        return not self.buffer.text

    def _completes_while_typing(self) -> bool:
        """Offer completions while a command or a path is typed, and not in prose."""
        document = self.buffer.document
        word = document.get_word_before_cursor(WORD=True)
        return word.startswith("@") or (document.text.startswith("/") and "\n" not in document.text)

    def _on_text_changed(self, buffer: Buffer) -> None:
        self._completing = False

    def _on_text_insert(self, buffer: Buffer) -> None:
        """Called after `_on_text_changed`. Only typed text starts a search: a deletion or a prompt from the history does not."""
        self._completing = self._completes_while_typing()

    def _on_completions_changed(self, buffer: Buffer) -> None:
        """Called when a search begins, with no completions, and when it has found some or has ended without any.

        prompt_toolkit runs one search at a time and does not search again when text was deleted meanwhile, so we do.
        """
        if buffer.complete_state is not None:
            self._searched = buffer.complete_state.original_document.text
            self._completing = not buffer.complete_state.completions
        elif self._completing and self._searched != buffer.text:
            asyncio.get_running_loop().call_soon(buffer.start_completion)
        else:
            self._completing = False

    def paste(self, text: str) -> None:
        """Insert pasted text at once; a long one as a mark."""
        text = text.replace("\r\n", "\n").replace("\r", "\n")
        lines = text.count("\n") + (not text.endswith("\n"))
        if lines > MAX_PASTED_LINES or len(text) > MAX_PASTED_CHARS:
            size = f"{lines} lines" if lines > MAX_PASTED_LINES else f"{len(text)} characters"
            mark = f"[Pasted {size}]"
            number = 2
            while mark in self._pastes:
                mark = f"[Pasted {size} #{number}]"
                number += 1
            self._pastes[mark] = text
            text = mark
        self.buffer.insert_text(text)

    def take(self) -> str:
        """Return the whole text with its pastes, remember it in the history, and empty the box."""
        text = self.expand(self.buffer.text)
        self.buffer.append_to_history()
        self.buffer.reset()
        return text

    def expand(self, text: str) -> str:
        """Put pasted texts back in place of their marks."""
        for mark, pasted in self._pastes.items():
            text = text.replace(mark, pasted)
        return text

    def set_text(self, text: str) -> None:
        self.buffer.reset()
        if text.count("\n") >= MAX_PASTED_LINES or len(text) > MAX_PASTED_CHARS:
            self.paste(text)
        else:
            self.buffer.insert_text(text)

    def delete_mark(self) -> bool:
        """Delete the mark of a paste before the cursor as one character; false where there is none."""
        before = self.buffer.document.text_before_cursor
        mark = next((mark for mark in self._pastes if before.endswith(mark)), None)
        if mark is None:
            return False
        self.buffer.delete_before_cursor(len(mark))
        return True

    def delete_backwards(self, count: int = 1) -> None:
        """Delete the mark of a paste, or characters, before the cursor; what is left of a command or path is completed again."""
        if self.delete_mark():
            return
        self.buffer.delete_before_cursor(count)
        if self._completes_while_typing():
            self._completing = True
            self.buffer.start_completion()

    def rows(
        self, width: int, most: int, *, placeholder: str = "", search: SearchState | None = None
    ) -> tuple[list[Row], Caret]:
        """Lay out the draft and say where the caret is; of a long one, the rows around the caret.

        While the history is searched, what was found is shown in place of the draft.
        """
        room = max(width - 1 - len(INDENT), 10)
        document = self.buffer.document if search is None else self.buffer.document_for_search(search)
        if not document.text:
            hint = TextSpan(placeholder if display_width(placeholder) <= room else "", "dim")
            return [(TextSpan(PROMPT_MARK, "cyan bold"), hint)], Caret(0, len(INDENT))
        lines, caret = layout_draft(document.text, document.cursor_position, room, self._selection())
        start = max(min(caret.row - most + 2, len(lines) - most), 0) if len(lines) > most else 0
        shown = lines[start : start + most]
        rows: list[Row] = [
            (TextSpan(PROMPT_MARK if start + number == 0 else INDENT, "cyan bold"), *line)
            for number, line in enumerate(shown)
        ]
        return rows, Caret(caret.row - start, caret.column + len(INDENT))

    def _selection(self) -> set[int]:
        if self.buffer.selection_state is None:
            return set()
        ranges = self.buffer.document.selection_ranges()
        return {position for start, end in ranges for position in range(start, min(end, start + 10_000))}

    def menu_rows(self, width: int) -> list[Row]:
        """The completions that can be chosen, around the current one. The last menu stays until there is a new one."""
        state = self.buffer.complete_state
        if state is not None and state.completions:
            self._menu = self._completion_rows(state, width)
        elif not self._completing:
            self._menu = []
        return list(self._menu)

    def _completion_rows(self, state: CompletionState, width: int) -> list[Row]:
        current = state.complete_index or 0
        start = max(min(current - MAX_MENU_ROWS // 2, len(state.completions) - MAX_MENU_ROWS), 0)
        shown = state.completions[start : start + MAX_MENU_ROWS]
        size = min(max(display_width(to_line(item.display_text, 80)) for item in shown), 40)
        rows: list[Row] = []
        for number, item in enumerate(shown, start):
            name = to_line(item.display_text, 80)
            style = "reverse" if number == state.complete_index else "cyan"
            about = to_line(item.display_meta_text, 200)
            pad = " " * max(size - display_width(name), 0)
            rows.append(
                clip_row(
                    (TextSpan(INDENT), TextSpan(name + pad, style), TextSpan(f"  {about}", "dim")), max(width - 1, 10)
                )
            )
        if len(state.completions) > len(shown):
            rows.append((TextSpan(f"{INDENT}… {len(state.completions)} in all", "dim"),))
        return rows


def layout_draft(text: str, cursor: int, width: int, selected: set[int]) -> tuple[list[Row], Caret]:
    """Break a draft into rows of graphemes; the caret never stands inside one."""
    rows: list[list[TextSpan]] = [[]]
    used = position = 0
    caret: Caret | None = None
    for grapheme in graphemes(text):
        if caret is None and cursor < position + len(grapheme):
            caret = Caret(len(rows) - 1, used)
        if grapheme in ("\n", "\r\n"):
            rows.append([])
            used = 0
        else:
            shown = make_printable(grapheme).replace("\n", "⏎")
            columns = display_width(shown)
            if used + columns > width:
                if caret is not None and caret.row == len(rows) - 1 and cursor == position:
                    caret = Caret(len(rows), 0)
                rows.append([])
                used = 0
            rows[-1].append(TextSpan(shown, "reverse" if position in selected else ""))
            used += columns
        position += len(grapheme)
    return [merge_spans(row) for row in rows], caret or Caret(len(rows) - 1, used)


_SURROGATE = re.compile("[\ud800-\udfff]")
_REPORT = re.compile("\x1b(?:\\[[0-?]*[ -/]*[@-~]|\\][^\x07\x1b]*(?:\x07|\x1b\\\\)|O[A-Za-z])")
_TYPED = re.compile(r"[^\x00-\x1f\x7f]")


def known_keys(keys: Sequence[KeyPress]) -> list[KeyPress]:
    """Leave out reports of the terminal that prompt_toolkit does not know: they would count as Esc and text.

    A character that was reported as a sequence stands for itself. Bytes that are no text are replaced.
    """
    known: list[KeyPress] = []
    position = 0
    while position < len(keys):
        key = keys[position]
        length = _report_length(keys, position) if key.key == Keys.Escape and key.data == "\x1b" else 0
        if length:
            position += length
            continue
        if not isinstance(key.key, Keys) and len(key.key) == 1 and key.data != key.key:
            key = KeyPress(key.key, key.key)
        if _SURROGATE.search(key.data):
            text = _SURROGATE.sub("\ufffd", key.data)
            key = KeyPress(key.key if isinstance(key.key, Keys) else text, text)
        known.append(key)
        position += 1
    return known


def _report_length(keys: Sequence[KeyPress], start: int) -> int:
    """The number of keys that an unknown control sequence or operating system command takes; 0 where there is none."""
    data = "".join(key.data for key in keys[start : start + 200])
    match = _REPORT.match(data)
    if match is None:
        return 0
    count = used = 0
    while used < match.end():
        used += len(keys[start + count].data)
        count += 1
    return count


class BurstDetector:
    """Tells pasted text from typed text where the terminal does not mark pastes: many keys in one read.

    An Enter inside a burst is a line break. One at its end is held back for `hold` seconds: if more follows, it is one, too.
    """

    def __init__(self) -> None:
        self.held_enter = False

    def convert(self, keys: Sequence[KeyPress]) -> list[KeyPress]:
        """Return the keys with a burst of text replaced by one paste. An Enter that is held back is left out."""
        keys = list(keys)
        inside = self.held_enter and bool(keys) and _is_text(keys[0])
        if inside:
            self.held_enter = False
            keys.insert(0, KeyPress(Keys.ControlM, "\r"))
        if not all(_is_text(key) or key.key == Keys.ControlM for key in keys):
            return keys
        if inside:
            return [_paste_key(keys)]
        enters = sum(key.key == Keys.ControlM for key in keys)
        if len(keys) < (BURST_KEYS if enters else LONG_BURST_KEYS):
            return keys
        if enters == 1 and keys[-1].key == Keys.ControlM:
            self.held_enter = True
            return keys[:-1]
        return [_paste_key(keys)]

    def release(self) -> list[KeyPress]:
        """Return the Enter that was held back, since nothing followed it."""
        held, self.held_enter = self.held_enter, False
        return [KeyPress(Keys.ControlM, "\r")] if held else []


def _is_text(key: KeyPress) -> bool:
    return not isinstance(key.key, Keys) and _TYPED.match(key.data) is not None


def _paste_key(keys: Sequence[KeyPress]) -> KeyPress:
    return KeyPress(Keys.BracketedPaste, "".join("\n" if key.key == Keys.ControlM else key.data for key in keys))


def open_history(root: str) -> History:
    """Open the history of what was typed in a project; one that cannot be saved lasts for this session."""
    digest = hashlib.sha256(os.fsencode(os.path.realpath(root))).hexdigest()[:12]
    return PromptHistory(state_home() / "prompts" / f"{os.path.basename(root) or 'root'}-{digest}")


class PromptHistory(FileHistory):
    """A history in a private file; a file that cannot be read or written is left alone."""

    def __init__(self, file: Path) -> None:
        self._file = file
        super().__init__(str(file))

    def load_history_strings(self) -> Iterable[str]:
        try:
            return super().load_history_strings()
        except OSError:
            return []

    def store_string(self, string: str) -> None:
        with suppress(OSError):
            make_private_folder(self._file.parent)
            super().store_string(string)


MAX_SHOWN = 30
MAX_SCORED = 2_000
MAX_PATHS = 500_000
FRESH_SECONDS = 15.0
LIST_SECONDS = 20.0
_MENTION = re.compile(r"(?:^|(?<=\s))@(?:\"([^\"\n]*)|([^\s\"]*))$")


class FileIndex:
    """The paths of a project that no ignore rule hides, listed by ripgrep in the background and kept for some seconds."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._paths: Sequence[str] = ()
        self._listed_at = float("-inf")
        self._lock = threading.Lock()

    def search(self, query: str) -> list[str]:
        """The paths that contain the characters of a query in order, best first. Blocks: call it in a thread."""
        paths = self.paths()
        if not query:
            return sorted(paths, key=lambda path: (path.count("/"), path.lower()))[:MAX_SHOWN]
        pattern = re.compile(".*?".join(map(re.escape, query)), re.IGNORECASE)
        candidates = [path for path in paths if pattern.search(path)]
        return rank(query, candidates)[:MAX_SHOWN]

    def paths(self) -> Sequence[str]:
        """Files and folders, relative to the root; folders end with a slash."""
        with self._lock:
            if time.monotonic() - self._listed_at > FRESH_SECONDS:
                self._paths = self._list()
                self._listed_at = time.monotonic()
            return self._paths

    def _list(self) -> Sequence[str]:
        from wieldy.core.programs import run_limited
        from wieldy.files.search.patterns import endless_ignore_file
        from wieldy.files.search.ripgrep import SearchFailure, find_ripgrep

        try:
            ripgrep = find_ripgrep(os.environ)
            quiet = ("--null", "--no-messages", "--no-config", "--no-ignore-messages")
            command = [ripgrep.path, "--files", "--hidden", "--glob", "!.git", *quiet]
            if endless_ignore_file(os.path.realpath(self._root)) is not None:
                return ()
            done = run_limited(command, self._root, LIST_SECONDS)
        except (SearchFailure, OSError, subprocess.TimeoutExpired):
            return ()
        names = done.stdout.decode("utf-8", "surrogateescape").split("\0")[:MAX_PATHS]
        files = [name for name in names if name and escape_controls(name) == name and "\n" not in name]
        folders = {f"{folder}/" for folder in map(os.path.dirname, files) if folder}
        return [*files, *folders]


def rank(query: str, paths: Sequence[str]) -> list[str]:
    """Sort paths by how well they match: the name begins with the query, contains it, the path does, then similarity."""
    from rapidfuzz import fuzz

    wanted = query.lower()

    def coarse(path: str) -> tuple[int, int, str]:
        name = path.rstrip("/").rpartition("/")[2].lower()
        lower = path.lower()
        if wanted in (name, lower):
            grade = 0
        elif name.startswith(wanted):
            grade = 1
        elif wanted in name:
            grade = 2
        else:
            grade = 3 if wanted in lower else 4 if wanted in lower.replace("/", "") else 5
        return (grade, len(path), path)

    best = sorted(paths, key=coarse)[:MAX_SCORED]
    return sorted(best, key=lambda path: (coarse(path)[0], -fuzz.partial_ratio(wanted, path.lower()), len(path), path))


class PathCompleter(Completer):
    """Completes `@path`. A path with blanks is written in quotation marks."""

    def __init__(self, index: FileIndex) -> None:
        self._index = index

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        match = _MENTION.search(document.text_before_cursor)
        if match is None:
            return
        query = match[1] if match[1] is not None else match[2]
        for path in self._index.search(query):
            text = f'@"{path}"' if re.search(r"\s", path) else f"@{path}"
            yield Completion(text, start_position=match.start() - len(document.text_before_cursor), display=path)


class CommandCompleter(Completer):
    """Completes the names of commands and of named prompts, and the arguments of a command."""

    def __init__(self, chat: Chat) -> None:
        self._chat = chat

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        text = document.text_before_cursor
        if not text.startswith("/") or "\n" in text:
            return
        name, blank, argument = text.partition(" ")
        if not blank:
            named = {f"/{each}": about for each, about in self._chat.named_prompts.items()}
            for each, about in {**{key: command.about for key, command in COMMANDS.items()}, **named}.items():
                if each.startswith(text):
                    yield Completion(each, start_position=-len(text), display_meta=about)
        elif (command := COMMANDS.get(name)) is not None and command.complete is not None:
            for value in command.complete(self._chat):
                if value.startswith(argument):
                    yield Completion(value, start_position=-len(argument))


class InputCompleter(Completer):
    """Commands at the beginning of the line, files after `@`."""

    def __init__(self, chat: Chat) -> None:
        self._commands = CommandCompleter(chat)
        self._paths = PathCompleter(FileIndex(str(chat.session.box.workspace.root)))

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        yield from self._commands.get_completions(document, complete_event)
        yield from self._paths.get_completions(document, complete_event)


def create_completer(chat: Chat) -> Completer:
    """The completer of the input box. It works in a thread: a large tree must not hold up the keys."""
    return ThreadedCompleter(InputCompleter(chat))
