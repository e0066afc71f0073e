"""The files that commands of the settings name: hooks, the status line and MCP servers run them without a question.

Consent to a command is bound to the content of the project's files that it names, but for those that it writes itself.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from msgspec import Struct, field

from wieldy.core.project_text import open_regular, read_project_text

CommandLine: TypeAlias = str | Sequence[str]
"""A line for a shell, or a program with its arguments."""

_PROJECT_VARIABLE = re.compile(r"\$\{?(WIELDY_PROJECT_DIR|CLAUDE_PROJECT_DIR|PWD)\b(:-[^}]*)?\}?")
_HOME_VARIABLE = re.compile(r"^~(?=/|$)|\$\{?HOME\b\}?")
_MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
_PROGRAM_SUFFIXES = (".sh", ".bash", ".py", ".js", ".mjs", ".cjs", ".ts", ".rb", ".pl", ".php", ".lua")
# Files that a script starts or reads as code: by their suffix, or as what a word for loading names.
_CODE_NAMES = re.compile(
    r"([\w./-]*\w\.(?:sh|bash|py|[mc]?[jt]s|rb|pl|php|lua))\b"
    r"|(?:\b(?:source|require|require_relative|import|from)\b[\s('\"]*|^\s*\.\s+)['\"]?(\.{0,2}/?[\w./-]+)",
    re.MULTILINE,
)
_PYTHON_IMPORT = re.compile(r"^[ \t]*(?:import|from)[ \t]+(\w[\w, \t]*)", re.MULTILINE)
_SUFFIXES_LEFT_OUT = ((".js", ".mjs", ".cjs", ".ts"), (".rb",))
MAX_LOADED = 200
MAX_DEPTH = 3
MAX_HASHED_BYTES = 64 << 20
MISSING = "missing"
WrittenFiles: TypeAlias = Callable[[CommandLine, str], Collection[str]]
"""The files that a command which starts in a folder writes by itself, such as its log."""


def nothing_written(command: CommandLine, folder: str) -> Collection[str]:
    """Take no file for one that the command writes."""
    return ()


class CommandPlace(Struct, frozen=True):
    """Where a command is written. `is_shared`: with the project, so that everything it names counts, not only programs."""

    layer: str
    file: str = ""
    is_shared: bool = False


class ActiveCommands(Struct, frozen=True):
    """The commands of the settings in force: the project's root, in which they start, and the files of it as consented to.

    `digests` is None where nothing was loaded from files. `places` are keyed by the text of a command.
    """

    root: str
    home: str = ""
    digests: Mapping[str, str] | None = None
    places: Mapping[str, CommandPlace] = field(default_factory=dict)
    written_by: WrittenFiles = nothing_written

    def problem(self, setting: str, command: CommandLine, folder: str = "") -> str | None:
        """Why a command must not start; None if the files of the project that it names are as consented to. Blocks."""
        place = self.places.get(setting) or self.places.get(command_text(command), CommandPlace("code"))
        known: dict[str, str] = {}
        folder = folder or self.root
        found = project_digests(command, folder, self.root, self.home, known, place.is_shared, self.written_by)
        for path, digest in found.items() if self.digests is not None else ():
            before = self.digests.get(path) if self.digests is not None else None
            if digest == before:
                continue
            what = "needs your consent" if before is None else "has changed since you consented to it"
            way_on = (
                "start again" if place.layer in ("code", "command line", "managed") else "`wieldy permissions trust`"
            )
            where = f" in {place.file}" if place.file else ""
            name = os.path.relpath(path, self.root)
            return f"not run: {name} of the project {what} (`{setting}`{where}); look at it, then {way_on}"
        return None


def command_text(command: CommandLine) -> str:
    return command if isinstance(command, str) else "\0".join(command)


def project_digests(
    command: CommandLine,
    folder: str,
    root: str,
    home: str,
    known: dict[str, str],
    is_shared: bool,
    written_by: WrittenFiles,
) -> dict[str, str]:
    """The content of each file of a project that a command names, or of each program where the command is the person's own.

    `known` keeps digests, so that one look at the files decides.
    """
    prefix = root.rstrip(os.sep) + os.sep
    named = [path for path in files_named_by(command, folder, home) if path.startswith(prefix)]
    data = [path for path in named if not _is_program(path)]
    data = [path for path in data if not is_shared or path in written_by(command, folder)]
    digests: dict[str, str] = {}
    for path in named:
        if path not in data:
            if path not in known:
                known[path] = _digest(path)
            if is_shared or known[path] != MISSING:
                digests[path] = known[path]
    return digests


def _is_program(path: str) -> bool:
    return path.endswith(_PROGRAM_SUFFIXES) or os.access(path, os.X_OK)


def _digest(path: str) -> str:
    """A hash of a file's content; of what a link leads to."""
    import hashlib

    try:
        descriptor = open_regular(path)
    except FileNotFoundError:
        return MISSING
    except OSError as error:
        return f"unreadable: {error.strerror}"
    with open(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if status.st_size > MAX_HASHED_BYTES:
            return f"large: {status.st_size} {status.st_mtime_ns} {status.st_ctime_ns}"
        return hashlib.file_digest(file, "sha256").hexdigest()


def files_named_by(command: CommandLine, folder: str, home: str = "") -> tuple[str, ...]:
    """The files that a command which starts in `folder` names: programs, scripts, modules, configuration.

    A file that does not exist yet is named only by a path with a slash. Links are named as themselves and by their targets.
    """
    paths = dict.fromkeys(path for path in _candidates(command, folder, home) if not os.path.isdir(path))
    prefix = folder.rstrip(os.sep) + os.sep
    pending = [path for path in paths if path.startswith(prefix) and _is_program(path)]
    while pending and len(paths) < MAX_LOADED:
        for path in _loaded_by(pending.pop(), folder):
            if path not in paths and os.path.isfile(path):
                paths[path] = None
                pending.append(path)
    return tuple(dict.fromkeys(name for path in paths for name in (path, os.path.realpath(path))))


def _loaded_by(script: str, folder: str) -> Iterator[str]:
    """The files that may be run or loaded with a script, as far as its text and its folder show."""
    try:
        text = read_project_text(script, max_bytes=1 << 18)
    except (OSError, ValueError):
        return
    beside = os.path.dirname(script)
    if script.endswith(".py") or "python" in text.partition("\n")[0]:
        names = {name.split()[0] for line in _PYTHON_IMPORT.findall(text) for name in line.split(",") if name.strip()}
        yield from _modules_in(beside, names | sys.stdlib_module_names)
    suffixes = next((each for each in _SUFFIXES_LEFT_OUT if script.endswith(each)), ())
    for suffixed, loaded in _CODE_NAMES.findall(text):
        for place in dict.fromkeys((beside, folder)):
            path = os.path.normpath(os.path.join(place, (suffixed or loaded).lstrip("/")))
            yield path
            yield from (path + suffix for suffix in suffixes if not suffixed)


def _modules_in(folder: str, names: Collection[str]) -> Iterator[str]:
    """The Python files by which a folder offers modules of these names, before all other folders."""
    try:
        found = [entry for entry in os.scandir(folder) if entry.name.partition(".")[0] in names]
    except OSError:
        return
    for entry in found:
        if not entry.is_dir():
            yield from (entry.path,) if entry.name.endswith((".py", ".pyc", ".so")) else ()
            continue
        for place, _, files in os.walk(entry.path):
            yield from (os.path.join(place, name) for name in files if name.endswith((".py", ".so")))


def active_files(settings: Mapping[str, Any], root: str, home: str = "") -> tuple[str, ...]:
    """The files that the commands of some settings name."""
    files = (files_named_by(command, folder, home) for command, folder in active_commands(settings, root))
    return tuple(dict.fromkeys(path for paths in files for path in paths))


def active_commands(settings: Mapping[str, Any], root: str) -> Iterator[tuple[CommandLine, str]]:
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
        if position and words[position - 1] in ("cd", "pushd"):
            below = os.path.join(folder, with_project_folder(word, folder))
            if depth < MAX_DEPTH and os.path.isdir(below):
                yield from _candidates(words[position + 1 :], below, home, depth + 1)
        expanded = with_project_folder(word, folder)
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
            yield from _modules_in(folder, sys.stdlib_module_names)


def with_project_folder(text: str, folder: str) -> str:
    """Spell out the variables that name the project."""
    return _PROJECT_VARIABLE.sub(lambda match: folder, text)


def _split(command: str) -> list[str]:
    import shlex

    try:
        lexer = shlex.shlex(command, posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        lexer.commenters = ""
        return list(lexer)
    except ValueError:  # an unclosed quote
        return command.split()


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
