"""The files settings come from, strongest first, each read once."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from wieldy.core.state_dirs import config_home
from wieldy.permissions.rules import Layer, Origin

if TYPE_CHECKING:
    from wieldy.settings.document import Document
    from wieldy.settings.document import Path as ValuePath


FOLDER = ".wieldy"
SHARED = "settings.json"
LOCAL = "settings.local.json"
FOREIGN_FOLDER = ".claude"
MCP_FILE = ".mcp.json"
MOST_BYTES = 4 << 20


class SettingsProblem(Struct, frozen=True):
    """Something a person should mend: one line, with its place."""

    text: str
    file: str | None = None
    line: int | None = None
    column: int | None = None

    def __str__(self) -> str:
        from wieldy.core.invisible_text import escape_to_line

        place = ":".join(str(p) for p in (self.file, self.line, self.column) if p is not None)
        return escape_to_line(f"{place}: {self.text}" if place else self.text)


class SettingsSource(Struct, frozen=True):
    """One layer's values, checked, and how to find where each is written."""

    layer: Layer
    folder: str
    values: Mapping[str, Any]
    file: str | None = None
    document: Document | None = None
    problems: tuple[SettingsProblem, ...] = ()
    error: SettingsProblem | None = None
    foreign: bool = False

    @property
    def from_project(self) -> bool:
        """Whether whoever wrote the project wrote this."""
        return self.layer in ("project", "local")

    def origin(self, path: ValuePath) -> Origin:
        """Where a value is written."""
        line = self.document.line(path) if self.document else None
        return Origin(self.layer, self.file, line, self.folder)

    def items(self, path: tuple[str, ...]) -> Iterator[tuple[Any, Origin]]:
        """The items of a list with where each is written, also where flawed neighbours were left out."""
        kept: Any = self.values
        for name in path:
            kept = kept.get(name, {}) if isinstance(kept, Mapping) else {}
        node = self.document.node(path) if self.document else None
        positions = {id(item.value): index for index, item in enumerate(node.items)} if node else {}
        for value in kept if isinstance(kept, list) else ():
            at = positions.get(id(value))
            yield value, self.origin(path if at is None else (*path, at))


class SettingsLocation(Struct, frozen=True):
    """A file that may hold settings."""

    layer: Layer
    file: Path
    folder: str
    foreign: bool = False


def own_places(root: str, env: Mapping[str, str], managed: Path | None = None) -> Iterator[SettingsLocation]:
    """Our files, strongest first."""
    first = managed_folder("wieldy") / "managed-settings.json" if managed is None else managed
    yield SettingsLocation("managed", first, str(first.parent))
    yield SettingsLocation("local", Path(root, FOLDER, LOCAL), root)
    yield SettingsLocation("project", Path(root, FOLDER, SHARED), root)
    yield SettingsLocation("user", config_home(env) / SHARED, str(config_home(env)))


def foreign_places(root: str, env: Mapping[str, str]) -> Iterator[SettingsLocation]:
    """The files of the other program whose format ours follows."""
    home = env.get("CLAUDE_CONFIG_DIR") or os.path.join(env.get("HOME") or os.path.expanduser("~"), FOREIGN_FOLDER)
    first = managed_folder("claude-code") / "managed-settings.json"
    yield SettingsLocation("managed", first, str(first.parent), foreign=True)
    yield SettingsLocation("local", Path(root, FOREIGN_FOLDER, LOCAL), root, foreign=True)
    yield SettingsLocation("project", Path(root, FOREIGN_FOLDER, SHARED), root, foreign=True)
    yield SettingsLocation("user", Path(home, SHARED), home, foreign=True)


def managed_folder(name: str) -> Path:
    """Where an administrator puts settings that nobody overrides."""
    if sys.platform == "darwin":
        return Path("/Library/Application Support", "ClaudeCode" if name == "claude-code" else name)
    if sys.platform == "win32":
        return Path(os.environ.get("PROGRAMFILES", "C:/Program Files"), name)
    return Path("/etc", name)


def load(place: SettingsLocation) -> SettingsSource | None:
    """Read one file; None where there is none. What cannot be read is an error, never an empty file."""
    name = str(place.file)
    try:
        found = place.file.stat()
        if not stat.S_ISREG(found.st_mode):
            return _broken(place, SettingsProblem("not a regular file", name))
        if found.st_size > MOST_BYTES:
            return _broken(place, SettingsProblem(f"larger than {MOST_BYTES >> 20} MB", name))
        text = place.file.read_bytes().decode("utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except UnicodeDecodeError as problem:
        return _broken(place, SettingsProblem(f"not UTF-8 text (byte {problem.start})", name))
    except OSError as problem:
        return _broken(place, SettingsProblem(f"cannot be read: {problem.strerror or problem}", name))
    from wieldy.settings.document import DocumentError, read

    try:
        document = read(text)
    except DocumentError as problem:
        return _broken(place, SettingsProblem(problem.message, name, problem.line, problem.column))
    if not isinstance(document.value, dict):
        return _broken(place, SettingsProblem("settings must be an object: {…}", name, 1, 1))
    return source_of(place, document)


def project_servers(root: str) -> SettingsSource | None:
    """The MCP servers of a project's `.mcp.json`, as settings."""
    source = load(SettingsLocation("project", Path(root, MCP_FILE), root))
    if source is None or source.error is not None:
        return source
    servers = source.values.get("mcpServers")
    return replace(source, values={"mcpServers": servers} if isinstance(servers, Mapping) else {})


def required(file: Path) -> SettingsSource:
    """Read a file that was named; that it is missing is an error too."""
    place = SettingsLocation("command line", file, str(file.parent))
    return load(place) or _broken(place, SettingsProblem("there is no such file", str(file)))


def source_of(place: SettingsLocation, document: Document) -> SettingsSource:
    """A document's values, checked, with a line for each flaw."""
    name = str(place.file)
    problems = [
        SettingsProblem(f"`{key}` is given twice; the last one counts", name, line) for key, line in document.duplicates
    ]
    if place.foreign:
        return SettingsSource(place.layer, place.folder, document.value, name, document, tuple(problems), foreign=True)
    from wieldy.settings.check import checked

    values, flaws = checked(document.value)
    problems += [SettingsProblem(flaw.text, name, document.line(flaw.path)) for flaw in flaws]
    return SettingsSource(place.layer, place.folder, values, name, document, tuple(problems))


def given(values: Mapping[str, Any], root: str, layer: Layer = "code") -> SettingsSource:
    """Settings given by the caller."""
    if not values:
        return SettingsSource(layer, root, {})
    from wieldy.settings.check import checked

    fit, flaws = checked(values)
    said = "on the command line" if layer == "command line" else "in code"
    return SettingsSource(
        layer, root, fit, problems=tuple(SettingsProblem(f"settings given {said}: {flaw.text}") for flaw in flaws)
    )


def _broken(place: SettingsLocation, error: SettingsProblem) -> SettingsSource:
    return SettingsSource(place.layer, place.folder, {}, str(place.file), error=error, foreign=place.foreign)
