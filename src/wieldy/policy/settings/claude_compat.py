"""Translates settings written for Claude Code: what is the same, what has another name here, and what has no counterpart."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from msgspec.structs import replace

from wieldy.core.setting_keys import OBJECT_KINDS, find_key
from wieldy.policy.settings.check import RESTRICTING, dotted, validate
from wieldy.policy.settings.sources import SettingsProblem, SettingsSource

# Claude Code's names → ours, where the meaning is the same.
RENAMED = {
    "sandbox.autoAllowBashIfSandboxed": "sandbox.autoAllow",
    "sandbox.allowUnsandboxedCommands": "sandbox.allowUnsandboxed",
    "sandbox.filesystem.allowWrite": "sandbox.allowWrite",
    "sandbox.filesystem.allowRead": "sandbox.allowRead",
    "sandbox.filesystem.denyRead": "sandbox.denyRead",
    "sandbox.network.allowedDomains": "sandbox.allowedDomains",
    "fileCheckpointingEnabled": "journal.enabled",
}


def translate(source: SettingsSource) -> tuple[SettingsSource, list[SettingsProblem]]:
    """Translate a source, and report everything that changed or was left out."""
    report: list[SettingsProblem] = []
    values: dict[str, Any] = {}
    for path, value in _flatten(source.values):
        name = dotted(path)
        ours = RENAMED.get(name, name)
        if find_key(ours) is None:
            report.append(source.problem(f"`{name}` has no counterpart here and was left out", path))
            continue
        if ours != name:
            report.append(source.problem(f"`{name}` was taken as `{ours}`", path))
        if name == "model" and "/" not in str(value):
            report.append(source.problem(f"the model `{value}` is not used: here a model is `provider/name`", path))
            continue
        is_auto_mode = name == "permissions.defaultMode" and value == "auto"
        if is_auto_mode:
            report.append(source.problem("mode `auto` was taken as `default`", path))
        section = values
        *sections, last = ours.split(".")
        for section_name in sections:
            if not isinstance(section.get(section_name), dict):
                section[section_name] = {}
            section = section[section_name]
        section[last] = "default" if is_auto_mode else value  # the nearest on the safe side
    valid, invalid = validate(values)
    report += [source.problem(one.text, one.path) for one in invalid if not one.fatal]
    lost = [source.problem(one.text, one.path, fatal=True) for one in invalid if one.fatal]
    return replace(source, values=valid, problems=(*source.problems, *lost)), report


def only_restrictions(source: SettingsSource) -> tuple[SettingsSource, list[SettingsProblem]]:
    """Keep the rules that deny or ask, which always apply; say what else `compat.claude` would use."""
    permissions = source.values.get("permissions")
    rules = permissions if isinstance(permissions, Mapping) else {}
    values, invalid = validate({"permissions": {name: rules[name] for name in RESTRICTING if name in rules}})
    problems = [source.problem(one.text, one.path, fatal=one.fatal) for one in invalid]
    unused = [*(f"permissions.{name}" for name in rules if name not in RESTRICTING), *source.values]
    unused = [name for name in unused if name not in ("permissions", "$schema")]
    report = []
    if unused:
        text = f"of this file deny and ask rules apply; `compat.claude: true` also uses {', '.join(map(str, unused))}"
        report.append(SettingsProblem(text, source.file))
    return replace(source, values=values, problems=(*source.problems, *problems)), report


def _flatten(values: Mapping[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, value in values.items():
        here = (*path, name)
        key = find_key(dotted(here))
        if isinstance(value, Mapping) and value and (key is None or key.kind not in OBJECT_KINDS):
            yield from _flatten(value, here)
        else:
            yield here, value
