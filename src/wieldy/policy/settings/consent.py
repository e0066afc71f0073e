"""What a project's settings ask for, item by item, and the settings without the items that wait for consent.

Consent to a command is also consent to the content of the project's files that it names.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from msgspec.structs import replace

from wieldy.core.active_commands import CommandLine, active_commands, project_digests, with_project_folder
from wieldy.core.effects import Writes
from wieldy.policy.permissions.trust import ConsentItem
from wieldy.policy.settings.check import dotted, leaves
from wieldy.policy.settings.sources import SettingsSource


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
