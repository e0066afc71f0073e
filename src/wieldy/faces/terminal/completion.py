"""Completion in the input box: commands with their arguments after `/`, files after `@`."""

from __future__ import annotations

import os
import re
import subprocess
import threading
import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from prompt_toolkit.completion import Completer, Completion, ThreadedCompleter

from wieldy.core.text import escape_controls
from wieldy.faces.terminal.commands import COMMANDS

if TYPE_CHECKING:
    from prompt_toolkit.completion import CompleteEvent
    from prompt_toolkit.document import Document

    from wieldy.faces.terminal.chat import Chat

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
