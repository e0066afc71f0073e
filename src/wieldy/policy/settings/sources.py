"""The files that settings come from, and the values of each with where they are written."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from wieldy.core.errors import SettingsError
from wieldy.core.project_text import MAX_BYTES, UnfitText, read_project_bytes, upward_folders
from wieldy.core.state_dirs import config_home, why_foreign
from wieldy.policy.permissions.rules import Layer, Origin

if TYPE_CHECKING:
    from wieldy.core.schema.json_positions import JsonDocument, JsonPath

FOLDER = ".wieldy"
SHARED = "settings.json"
LOCAL = "settings.local.json"
CLAUDE_FOLDER = ".claude"
PROJECT_MARKS = (FOLDER, CLAUDE_FOLDER, ".git")
MCP_FILE = ".mcp.json"
MANAGED_FILE = "managed-settings.json"

MAX_PROJECT_VALUES = 2_000
# In rules about paths, whose patterns are compiled: two for each rule, as in `src/**`.
MAX_PROJECT_WILDCARDS = 2 * MAX_PROJECT_VALUES
"""Of one section of a project's settings: each may cost every call a comparison (80 000 rules: 18 s) or a look at the disk."""


class SettingsProblem(Struct, frozen=True):
    """Something a person should fix: one line, with its place.

    `lost`: what was written is not in force; `fatal`: a rule that forbids may be lost.
    """

    text: str
    file: str | None = None
    line: int | None = None
    column: int | None = None
    fatal: bool = False
    lost: bool = False

    def __str__(self) -> str:
        from wieldy.core.text import escape_to_line

        place = ":".join(str(part) for part in (self.file, self.line, self.column) if part is not None)
        return escape_to_line(f"{place}: {self.text}" if place else self.text)


class SettingsLocation(Struct, frozen=True):
    """A file that may hold settings; `from_claude` means Claude Code's."""

    layer: Layer
    file: Path
    folder: str
    from_claude: bool = False


class SettingsSource(Struct, frozen=True):
    """The valid values of one layer, and how to find where each is written."""

    layer: Layer
    folder: str
    values: Mapping[str, Any]
    file: str | None = None
    document: JsonDocument | None = None
    problems: tuple[SettingsProblem, ...] = ()
    error: SettingsProblem | None = None

    @property
    def from_project(self) -> bool:
        """Whether this comes from the project."""
        return self.layer in ("project", "local")

    def origin(self, path: JsonPath) -> Origin:
        """Return where a value is written."""
        return Origin(self.layer, self.file, self._line(path), self.folder)

    def problem(self, text: str, path: JsonPath, *, fatal: bool = False) -> SettingsProblem:
        """Make a problem with a value."""
        return SettingsProblem(text, self.file, self._line(path), fatal=fatal)

    def _line(self, path: JsonPath) -> int | None:
        return self.document.line(path) if self.document else None

    def items(self, path: tuple[str, ...]) -> Iterator[tuple[Any, Origin]]:
        """Yield the items of a list with where each is written, also where invalid neighbors were dropped."""
        items: Any = self.values
        for name in path:
            items = items.get(name, {}) if isinstance(items, Mapping) else {}
        node = self.document.node(path) if self.document else None
        # Validation keeps the parsed objects, so identity tells which item of the file each one is.
        indexes = {id(item.value): index for index, item in enumerate(node.items)} if node else {}
        for item in items if isinstance(items, list) else ():
            index = indexes.get(id(item))
            yield item, self.origin(path if index is None else (*path, index))


def find_project_root(start: str | os.PathLike[str], env: Mapping[str, str] = os.environ) -> str:
    """Find the folder whose settings apply: the nearest one upward with `.wieldy`, `.claude` or `.git`, else the start itself.

    The home folder, and folders of other users or that others may write to, count only where they are the start.
    """
    start = os.path.realpath(start)
    home = os.path.realpath(env.get("HOME") or os.path.expanduser("~"))
    marked = (
        folder
        for folder in upward_folders(start, home)
        if any(os.path.lexists(os.path.join(folder, mark)) for mark in PROJECT_MARKS)
    )
    return next(marked, start)


def own_locations(root: str, env: Mapping[str, str], managed: Path | None = None) -> Iterator[SettingsLocation]:
    """Yield our files, strongest first."""
    managed = managed or _managed_folder("wieldy") / MANAGED_FILE
    yield SettingsLocation("managed", managed, str(managed.parent))
    yield SettingsLocation("local", Path(root, FOLDER, LOCAL), root)
    yield SettingsLocation("project", Path(root, FOLDER, SHARED), root)
    yield SettingsLocation("user", config_home(env) / SHARED, str(config_home(env)))


def claude_locations(root: str, env: Mapping[str, str]) -> Iterator[SettingsLocation]:
    """Yield the files of Claude Code, strongest first."""
    home = env.get("CLAUDE_CONFIG_DIR") or os.path.join(env.get("HOME") or os.path.expanduser("~"), CLAUDE_FOLDER)
    managed = _managed_folder("claude-code") / MANAGED_FILE
    yield SettingsLocation("managed", managed, str(managed.parent), from_claude=True)
    yield SettingsLocation("local", Path(root, CLAUDE_FOLDER, LOCAL), root, from_claude=True)
    yield SettingsLocation("project", Path(root, CLAUDE_FOLDER, SHARED), root, from_claude=True)
    yield SettingsLocation("user", Path(home, SHARED), home, from_claude=True)


def _managed_folder(name: str) -> Path:
    """Where an administrator puts settings that no other file overrides."""
    if sys.platform == "darwin":
        return Path("/Library/Application Support", "ClaudeCode" if name == "claude-code" else name)
    if sys.platform == "win32":
        return Path(os.environ.get("PROGRAMFILES", "C:/Program Files"), name)
    return Path("/etc", name)


def load_source(location: SettingsLocation) -> SettingsSource | None:
    """Read one file; None where there is none. A file that cannot be read is an error, never taken as empty."""

    def broken(text: str, line: int | None = None, column: int | None = None) -> SettingsSource:
        error = SettingsProblem(text, str(location.file), line, column)
        return SettingsSource(location.layer, location.folder, {}, str(location.file), error=error)

    is_of_project = location.layer in ("project", "local")
    try:
        if location.layer == "user" and location.file.exists() and (why := why_foreign(location.file.parent)):
            return broken(f"not read: {why}, so they could have written it; `chmod go-w` takes that right away")
        limit = MAX_BYTES if is_of_project else 4 * MAX_BYTES
        data = read_project_bytes(location.file, [location.folder] if is_of_project else None, limit)
        text = data.decode("utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except UnicodeDecodeError as error:
        return broken(f"not UTF-8 text (byte {error.start})")
    except UnfitText as error:
        return broken(str(error.strerror))
    except OSError as error:
        return broken(f"cannot be read: {error.strerror or error}")
    from wieldy.core.schema.json_positions import JsonSyntaxError, parse_json

    try:
        document = parse_json(text, relaxed=True)
    except JsonSyntaxError as error:
        return broken(error.message, error.line, error.column)
    if not isinstance(document.value, dict):
        return broken("settings must be an object: {…}", 1, 1)
    source = _make_source(location, document)
    for name, section in source.values.items() if is_of_project else ():
        if (bound := _exceeded_bound(section)) is not None:
            text = f"a project may give {bound} in `{name}`, and there are more; nothing is used"
            return replace(source, values={}, error=source.problem(text, (name,), fatal=True))
    return source


def _exceeded_bound(section: Any) -> str | None:
    """Of what a section has more than a project may give, and how many that are."""
    values, wildcards, pending = 0, 0, [section]
    while pending and values <= MAX_PROJECT_VALUES:
        value = pending.pop()
        if isinstance(value, Mapping | list):
            pending += value.values() if isinstance(value, Mapping) else value
            continue
        values += 1
        if isinstance(value, str) and not value.lstrip().startswith("Bash("):
            wildcards += sum(map(value.count, "*?["))
    if values > MAX_PROJECT_VALUES:
        return f"{MAX_PROJECT_VALUES} values"
    return (
        f"{MAX_PROJECT_WILDCARDS} wildcards outside rules for commands" if wildcards > MAX_PROJECT_WILDCARDS else None
    )


def _make_source(location: SettingsLocation, document: JsonDocument) -> SettingsSource:
    source = SettingsSource(location.layer, location.folder, document.value, str(location.file), document)
    problems = [
        SettingsProblem(f"`{key}` is given twice; the last one counts", source.file, line)
        for key, line in document.duplicates
    ]
    if location.from_claude:
        return replace(source, problems=tuple(problems))
    from wieldy.policy.settings.check import validate

    values, invalid = validate(document.value)
    problems += [source.problem(one.text, one.path, fatal=one.fatal) for one in invalid]
    return replace(source, values=values, problems=tuple(problems))


def load_mcp_file(root: str) -> SettingsSource | None:
    """Read the MCP servers of a project's `.mcp.json` as settings."""
    source = load_source(SettingsLocation("project", Path(root, MCP_FILE), root))
    if source is None or source.error is not None:
        return source
    servers = source.values.get("mcpServers")
    return replace(source, values={"mcpServers": servers} if isinstance(servers, Mapping) else {})


def load_named_file(file: Path) -> SettingsSource:
    """Read a file named on the command line; that it is missing is an error too."""
    location = SettingsLocation("command line", file, str(file.parent))
    missing = SettingsProblem("there is no such file", str(file))
    return load_source(location) or SettingsSource("command line", location.folder, {}, str(file), error=missing)


def source_from_values(values: Mapping[str, Any], root: str, layer: Layer = "code") -> SettingsSource:
    """Make a source of settings given in code or by options."""
    if not isinstance(values, Mapping):
        raise SettingsError(f"settings are a mapping, not {type(values).__name__}")
    if not values:
        return SettingsSource(layer, root, {})
    from wieldy.policy.settings.check import validate

    valid, invalid = validate(values)
    problems = tuple(SettingsProblem(f"settings: {one.text}", fatal=one.fatal, lost=True) for one in invalid)
    return SettingsSource(layer, root, valid, problems=problems)
