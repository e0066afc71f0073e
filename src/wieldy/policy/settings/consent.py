"""The user's consent to what a project's settings would run or allow, item by item and bound to a hash of each.

Consent to a command is also consent to the content of the project's files that it names.
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from wieldy.core.active_commands import CommandLine, active_commands, project_digests, with_project_folder
from wieldy.core.effects import Writes
from wieldy.core.state_dirs import config_home
from wieldy.core.text import escape_to_line
from wieldy.files.writing.locked_update import read_json_object, update_json_object
from wieldy.policy.settings.check import dotted, leaves
from wieldy.policy.settings.sources import SettingsSource

FILE_NAME = "trust.json"
TRUST_ALL_VARIABLE = "WIELDY_TRUST"


class ConsentItem(Struct, frozen=True):
    """One thing a project's files ask for: the setting's name, its value, and where it is written.

    `files` are the digests of the project's files that commands in it name.
    """

    name: str
    value: str
    where: str = ""
    files: Mapping[str, str] = field(default_factory=dict)
    layer: str = ""

    @classmethod
    def for_value(
        cls, name: str, value: Any, where: str = "", files: Mapping[str, str] | None = None, layer: str = ""
    ) -> ConsentItem:
        """Make an item with a canonical spelling of its value."""
        text = value if isinstance(value, str) else json.dumps(value, sort_keys=True, ensure_ascii=True, default=str)
        return cls(name, text, where, files or {}, layer)

    @property
    def digest(self) -> str:
        """The hash that consent is bound to; where the item is written does not count."""
        import hashlib

        parts = [self.name, self.value, *([sorted(self.files.items())] if self.files else [])]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()

    def __str__(self) -> str:
        files = f", with the content of {', '.join(self.files)}" if self.files else ""
        return escape_to_line(f"{self.name}: {self.value}{files}" + (f" ({self.where})" if self.where else ""))


class Trust:
    """The consents recorded for each project root. Nothing else is trusted, unless `trust_all` or WIELDY_TRUST is set."""

    def __init__(
        self, file: Path | None = None, env: Mapping[str, str] = os.environ, *, trust_all: bool = False
    ) -> None:
        self._file = config_home(env) / FILE_NAME if file is None else file
        self._trust_all = trust_all or env.get(TRUST_ALL_VARIABLE, "").strip().lower() in {"1", "true", "yes"}

    def pending(self, root: str, items: Iterable[ConsentItem]) -> tuple[ConsentItem, ...]:
        """Return the items that need consent before they take effect."""
        requested = tuple(items)
        if self._trust_all or not requested:
            return ()
        accepted = _recorded_digests(read_json_object(self._file), root)
        return tuple(item for item in requested if item.digest not in accepted)

    def accept(self, root: str, items: Iterable[ConsentItem]) -> None:
        """Record consent to exactly these items."""
        digests = {item.digest for item in items}
        if digests:
            self._update(root, lambda accepted: accepted | digests)

    def revoke(self, root: str) -> None:
        """Forget every consent given for a project."""
        self._update(root, lambda accepted: set())

    def _update(self, root: str, change: Callable[[set[str]], set[str]]) -> None:
        def update(records: dict[str, Any]) -> None:
            accepted = change(_recorded_digests(records, root))
            key = os.path.realpath(root)
            if accepted:
                records[key] = sorted(accepted)
            else:
                records.pop(key, None)

        update_json_object(self._file, update)


def _recorded_digests(records: Mapping[str, Any], root: str) -> set[str]:
    digests = records.get(os.path.realpath(root))
    return {digest for digest in digests if isinstance(digest, str)} if isinstance(digests, list) else set()


class FileDigests:
    """The project's files that commands name, each looked at once."""

    def __init__(self, root: str, home: str) -> None:
        self.root = root
        self._home = home
        self._digests: dict[str, str] = {}

    def named_in(self, path: tuple[str, ...], value: Any, *, is_shared: bool) -> dict[str, str]:
        """The digests of the files that the commands of a setting name."""
        section = path[0]
        for name in reversed(path):
            value = {name: value}
        digests: dict[str, str] = {}
        # Servers of the person's own settings do not start in the project: only absolute paths lead into it.
        start = os.sep if section == "mcpServers" and not is_shared else self.root
        for command, folder in active_commands(value, start):
            digests |= project_digests(
                command, folder, self.root, self._home, self._digests, is_shared, self.written_by
            )
        return digests

    def written_by(self, command: CommandLine, folder: str) -> set[str]:
        """The files, such as a log, that a command whose effects are all known writes: consent does not cover their content."""
        from wieldy.shell.effects.analysis import analyze

        text = with_project_folder(command if isinstance(command, str) else shlex.join(command), folder)
        analysis = analyze(text, cwd=folder, home=self._home)
        if analysis.verdict == "unknown":
            return set()
        return {effect.path for effect in analysis.effects if isinstance(effect, Writes)}


def consent_items(source: SettingsSource, files: FileDigests) -> Iterator[ConsentItem]:
    """Yield everything in a project's file that takes effect only after the user has seen it.

    Of the user's own file, these are the commands that would run programs of the project.
    """
    for path, key, value in leaves(source.values):
        if source.from_project and (key is None or not key.project_may_set):
            yield from (item for _, item in _items(source, path, value, files))
        elif not source.from_project and path[0] in ("hooks", "statusLine", "mcpServers"):
            yield from (item for _, item in _items(source, path, value, files) if item.files)


def without_pending(source: SettingsSource, pending: Collection[ConsentItem], files: FileDigests) -> SettingsSource:
    """Return a project's source without the pending items."""
    digests = {item.digest for item in pending}
    values: dict[str, Any] = {}
    for path, key, value in leaves(source.values):
        needs_consent = key is None or not key.project_may_set
        accepted = _without(source, path, value, digests, files) if needs_consent else value
        if accepted is not None:
            section = values
            for name in path[:-1]:
                section = section.setdefault(name, {})
            section[path[-1]] = accepted
    return replace(source, values=values)


def _without(source: SettingsSource, path: tuple[str, ...], value: Any, digests: set[str], files: FileDigests) -> Any:
    accepted = [member for member, item in _items(source, path, value, files) if item.digest not in digests]
    if isinstance(value, list):
        return [value[index] for index in accepted] or None
    if isinstance(value, Mapping):
        return {name: value[name] for name in accepted} or None
    return value if accepted else None


def _items(
    source: SettingsSource, path: tuple[str, ...], value: Any, files: FileDigests
) -> Iterator[tuple[Any, ConsentItem]]:
    """Yield the index or name of each member of a value, and its item; None for a scalar."""
    name = dotted(path)
    if isinstance(value, list):
        for index, (member, origin) in enumerate(source.items(path)):
            yield index, ConsentItem.for_value(name, member, str(origin), layer=source.layer)
    elif isinstance(value, Mapping):
        for member_name, member in value.items():
            origin = source.origin((*path, member_name))
            named = files.named_in((*path, member_name), member, is_shared=source.from_project)
            yield member_name, ConsentItem.for_value(f"{name}.{member_name}", member, str(origin), named, source.layer)
    else:
        yield None, ConsentItem.for_value(name, value, str(source.origin(path)), layer=source.layer)
