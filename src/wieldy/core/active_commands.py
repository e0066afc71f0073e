"""The files that commands of the settings name: hooks, the status line and MCP servers run them without a question."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

CommandLine: TypeAlias = str | Sequence[str]
"""A line for a shell, or a program with its arguments."""

_PROJECT_VARIABLE = re.compile(r"\$\{?(WIELDY_PROJECT_DIR|CLAUDE_PROJECT_DIR|PWD)\b(:-[^}]*)?\}?")
_HOME_VARIABLE = re.compile(r"^~(?=/|$)|\$\{?HOME\b\}?")
_MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
MAX_DEPTH = 3


def files_named_by(command: CommandLine, folder: str, home: str = "") -> tuple[str, ...]:
    """The files that a command which starts in `folder` names: programs, scripts, modules, configuration.

    A file that does not exist yet is named only by a path with a slash. Links are named as themselves and by their targets.
    """
    paths = dict.fromkeys(path for path in _candidates(command, folder, home) if not os.path.isdir(path))
    return tuple(dict.fromkeys(name for path in paths for name in (path, os.path.realpath(path))))


def active_files(settings: Mapping[str, Any], root: str, home: str = "") -> tuple[str, ...]:
    """The files that the commands of some settings name."""
    files = (files_named_by(command, folder, home) for command, folder in _active_commands(settings, root))
    return tuple(dict.fromkeys(path for paths in files for path in paths))


def _active_commands(settings: Mapping[str, Any], root: str) -> Iterator[tuple[CommandLine, str]]:
    """Each command with the folder that it starts in."""
    for groups in _mapping(settings.get("hooks")).values():
        for group in groups if isinstance(groups, list | tuple) else [groups]:
            hooks = _mapping(group).get("hooks")
            for hook in hooks if isinstance(hooks, list | tuple) else ():
                yield from ((command, root) for command in _command_lines(hook))
    yield from ((command, root) for command in _command_lines(settings.get("statusLine")))
    for server in _mapping(settings.get("mcpServers")).values():
        cwd = _mapping(server).get("cwd")
        folder = os.path.join(root, cwd) if isinstance(cwd, str) else root
        yield from ((command, folder) for command in _command_lines(server))


def _command_lines(entry: Any) -> Iterator[CommandLine]:
    command, arguments = _mapping(entry).get("command"), _mapping(entry).get("args")
    words = [word for word in arguments if isinstance(word, str)] if isinstance(arguments, list | tuple) else []
    if isinstance(command, str) and command:
        yield [command, *words] if words else command
    elif isinstance(command, list | tuple):
        yield [*(word for word in command if isinstance(word, str)), *words]


def _candidates(command: CommandLine, folder: str, home: str, depth: int = 0) -> Iterator[str]:
    words = _split(command) if isinstance(command, str) else list(command)
    for position, word in enumerate(words):
        expanded = _PROJECT_VARIABLE.sub(lambda match: folder, word)
        expanded = _HOME_VARIABLE.sub(lambda match: home, expanded) if home else expanded
        if depth < MAX_DEPTH and re.search(r"[\s;&|<>()]", expanded):
            yield from _candidates(expanded, folder, home, depth + 1)
        for text in dict.fromkeys((expanded, expanded.partition("=")[2])):
            path = os.path.normpath(os.path.join(folder, text))
            if text and "\0" not in text and ("/" in text or os.path.lexists(path)):
                yield path
        if position and words[position - 1] == "-m" and _MODULE.fullmatch(word):
            module = os.path.join(folder, *word.split("."))
            yield from filter(os.path.lexists, (f"{module}.py", f"{module}/__main__.py", f"{module}/__init__.py"))


def _split(command: str) -> list[str]:
    try:
        lexer = shlex.shlex(command, posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        lexer.commenters = ""
        return list(lexer)
    except ValueError:  # an unclosed quote
        return command.split()


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
