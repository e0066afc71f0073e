"""Settings written for Claude Code, in our terms: what carries over exactly, what under another name, and what does not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from wieldy.settings.check import checked, dotted
from wieldy.settings.keys import OBJECTS, find
from wieldy.settings.sources import SettingsProblem, SettingsSource

# Theirs → ours, where the meaning is the same.
RENAMED = {
    "sandbox.autoAllowBashIfSandboxed": "sandbox.autoAllow",
    "sandbox.filesystem.allowWrite": "sandbox.allowWrite",
    "sandbox.filesystem.allowRead": "sandbox.allowRead",
    "sandbox.filesystem.denyRead": "sandbox.denyRead",
    "sandbox.network.allowedDomains": "sandbox.allowedDomains",
    "fileCheckpointingEnabled": "journal.enabled",
}


def translated(source: SettingsSource) -> tuple[SettingsSource, list[SettingsProblem]]:
    """A foreign source in our terms, and a report of everything that changed or was left out."""
    report: list[SettingsProblem] = []
    values: dict[str, Any] = {}
    for path, value in _flat(source.values):
        name = dotted(path)
        line = source.document.line(path) if source.document else None
        target = RENAMED.get(name, name)
        if find(target) is None:
            report.append(SettingsProblem(f"`{name}` has no counterpart here and was left out", source.file, line))
            continue
        if target != name:
            report.append(SettingsProblem(f"`{name}` was taken as `{target}`", source.file, line))
        ours = value
        if name == "permissions.defaultMode" and value == "auto":
            ours = "default"  # nearest on the safe side
            report.append(SettingsProblem("mode `auto` was taken as `default`", source.file, line))
        _put(values, target.split("."), ours)
    fit, flaws = checked(values)
    report += [
        SettingsProblem(flaw.text, source.file, source.document.line(flaw.path) if source.document else None)
        for flaw in flaws
    ]
    return replace(source, values=fit), report


def _flat(values: Mapping[str, Any], path: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], Any]]:
    found: list[tuple[tuple[str, ...], Any]] = []
    for name, value in values.items():
        here = (*path, name)
        key = find(dotted(here))
        if isinstance(value, Mapping) and value and (key is None or key.kind not in OBJECTS):
            found += _flat(value, here)
        else:
            found.append((here, value))
    return found


def _put(values: dict[str, Any], names: list[str], value: Any) -> None:
    for name in names[:-1]:
        held = values.get(name)
        if not isinstance(held, dict):
            held = values[name] = {}
        values = held
    values[names[-1]] = value
