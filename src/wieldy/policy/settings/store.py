"""Writes settings files: one key at a time, comments and layout kept, under a lock for any number of processes."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from wieldy.core.decision import Behavior
from wieldy.core.errors import WieldyError
from wieldy.core.project_text import read_project_text, resolve_inside
from wieldy.core.schema.json_positions import JsonDocument, JsonNode, JsonSyntaxError, comma_after, parse_json
from wieldy.core.state_dirs import config_home
from wieldy.files.writing.locked_update import update_locked
from wieldy.policy.permissions.paths import is_below
from wieldy.policy.permissions.rules import Rule, parse
from wieldy.policy.settings.consent import ConsentItem, Trust
from wieldy.policy.settings.sources import FOLDER, LOCAL, SHARED, find_project_root

INDENT = "  "


class SettingsNotSaved(WieldyError):
    """A settings file was not changed; one line for the person says why."""


class ShapeError(ValueError):
    """The file holds something else where the change belongs."""


def local_file(root: str | os.PathLike[str]) -> Path:
    """The settings of one person in one project."""
    return Path(find_project_root(root), FOLDER, LOCAL)


def project_file(root: str | os.PathLike[str]) -> Path:
    """The settings that a project shares."""
    return Path(find_project_root(root), FOLDER, SHARED)


def user_file(env: Mapping[str, str] = os.environ) -> Path:
    """The settings of one person in all projects."""
    return config_home(env) / SHARED


def settings_files(root: str | os.PathLike[str], env: Mapping[str, str] = os.environ) -> dict[str, Path]:
    """The files that a person may write to, by their scope."""
    return {"local": local_file(root), "project": project_file(root), "user": user_file(env)}


def add_rules(file: Path, behavior: Behavior, rules: Sequence[str]) -> None:
    """Add rules to a settings file. Raises `RuleError` for one that could not be read back. Blocks on disk and lock."""
    for text in rules:
        parse(text, behavior)
    _update(file, lambda text: with_items(text, ("permissions", behavior), list(rules)))


def remove_rules(file: Path, rules: Sequence[str]) -> list[str]:
    """Remove rules from every list of a settings file; return those it held. Blocks on disk and lock."""
    if not file.exists():
        return []
    removed: list[str] = []

    def change(text: str | None) -> str:
        for behavior in ("deny", "ask", "allow"):
            text, items = without_items(text, ("permissions", behavior), rules)
            removed.extend(items)
        return text or "{}\n"

    _update(file, change)
    return removed


def remove_value(file: Path, path: Sequence[str]) -> bool:
    """Remove one value from a settings file; return whether it was there. Blocks on disk and lock."""
    if not file.exists():
        return False
    held = []

    def change(text: str | None) -> str:
        held.append(_parse(text).node(tuple(path)) is not None)
        return without_member(text, path)

    _update(file, change)
    return held[-1]


def set_value(file: Path, name: str, value: Any) -> None:
    """Set one value, by its dotted name, in a settings file. Blocks on disk and lock."""
    _update(file, lambda text: with_value(text, name.split("."), value))


def remember(
    root: str | os.PathLike[str], rules: Sequence[Rule], *, file: Path | None = None, trust: Trust | None = None
) -> Path:
    """Save rules the person has agreed to, in the local file or another, with their consent. Blocks on disk and lock."""
    real_root = find_project_root(root)
    file = file or local_file(root)
    if is_below(str(file), real_root) and not is_below(os.path.realpath(file), real_root):
        raise SettingsNotSaved(f"{file}: a link that leads out of the project; nothing was saved")
    for behavior in ("deny", "ask", "allow"):
        texts = [rule.text for rule in rules if rule.behavior == behavior]
        if texts:
            add_rules(file, behavior, texts)
    allowed = [ConsentItem.for_value("permissions.allow", rule.text) for rule in rules if rule.behavior == "allow"]
    (trust or Trust()).accept(real_root, allowed)
    return file


def _exclude_from_git(file: Path) -> None:
    """Keep the settings of one person out of the repository, by git's own list for this clone."""
    from wieldy.shell.sandbox.policy import repository_folders

    top = next((folder for folder in file.parents if (folder / ".git").exists()), None)
    if top is None:
        return
    pattern = f"/{file.relative_to(top).as_posix()}"
    with contextlib.suppress(OSError, UnicodeDecodeError):
        folder = next(iter(repository_folders(str(top))[1:]), None)
        if folder is None:
            return
        exclude = Path(folder, "info", "exclude")
        lines = read_project_text(exclude, [folder]) if os.path.lexists(exclude) else ""
        if pattern not in lines.splitlines():
            exclude.parent.mkdir(exist_ok=True)
            descriptor = os.open(
                resolve_inside(str(exclude), [folder]),
                os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW,
                0o666,
            )
            with open(descriptor, "a", encoding="utf-8") as stream:
                stream.write(("" if not lines or lines.endswith("\n") else "\n") + pattern + "\n")


def _update(file: Path, change: Callable[[str | None], str]) -> None:
    try:
        update_locked(file, change)
        if (file.parent.name, file.name) == (FOLDER, LOCAL):
            _exclude_from_git(file)
    except JsonSyntaxError as error:
        problem = f"{file}:{error.line}:{error.column}: {error.message}"
    except ShapeError as error:
        problem = f"{file}: {error}"
    except UnicodeDecodeError:
        problem = f"{file}: not UTF-8 text"
    except OSError as error:
        problem = f"{file}: {error.strerror or error}"
    else:
        return
    raise SettingsNotSaved(f"{problem}; nothing was saved")


def with_items(text: str | None, path: Sequence[str], items: Sequence[Any]) -> str:
    """Add items to the end of a list in a JSON text; those it holds already are not added again."""
    for item in items:
        document = _parse(text)
        node = document.node(tuple(path))
        if node is None:
            text = _add_member(document, path, [item])
        elif not isinstance(node.value, list):
            raise ShapeError(f"`{'.'.join(path)}` is not a list")
        elif item not in node.value:
            text = _insert(document.text, node, node.items, _dump(item))
    return text or "{}\n"


def without_items(text: str | None, path: Sequence[str], rules: Sequence[str]) -> tuple[str, list[str]]:
    """Remove rules from a list in a JSON text, each with its comma; return the text and what was removed."""
    removed: list[str] = []
    result = _parse(text).text
    while (node := _parse(result).node(tuple(path))) is not None and isinstance(node.value, list):
        values = [value.get("rule") if isinstance(value, dict) else value for value in node.value]
        index = next((index for index, rule in enumerate(values) if rule in rules), None)
        if index is None:
            break
        removed.append(str(values[index]))
        result = _cut(result, node, [(item.start, item.end) for item in node.items], index)
    return result, removed


def without_member(text: str | None, path: Sequence[str]) -> str:
    """Remove one member of an object in a JSON text; comments stay."""
    document = _parse(text)
    section = document.node(tuple(path[:-1]))
    names = [member.name for member in section.members] if section is not None else []
    if section is None or path[-1] not in names:
        return document.text
    ranges = [(member.start, member.node.end) for member in section.members]
    return without_member(_cut(document.text, section, ranges, names.index(path[-1])), path)


def _cut(text: str, container: JsonNode, ranges: Sequence[tuple[int, int]], index: int) -> str:
    """Remove one range of a container with the comma that separates it, and the line it leaves empty."""
    start, end = ranges[index]
    comma = comma_after(text, end)
    before, after = text[:start], text[end:]
    if comma is not None:
        after = text[end:comma] + text[comma + 1 :]
    elif index:
        comma = comma_after(text, ranges[index - 1][1])
        before = text[:comma] + text[comma + 1 : start] if comma is not None else before
    if len(ranges) == 1 and not before[container.start + 1 :].strip():
        return before[: container.start + 1] + after.lstrip()
    line = before.rpartition("\n")[2]
    if not line.strip() and after.startswith("\n") and "\n" in before:
        return before[: len(before) - len(line)] + after[1:]
    return (
        before + after.lstrip(" ")
        if after.startswith(" ") and before.endswith((" ", "{", "["))
        else before.rstrip(" ") + after
    )


def with_value(text: str | None, path: Sequence[str], value: Any) -> str:
    """Set one value in a JSON text."""
    document = _parse(text)
    node = document.node(tuple(path))
    if node is None:
        return _add_member(document, path, value)
    return document.text[: node.start] + _dump(value) + document.text[node.end :]


def _parse(text: str | None) -> JsonDocument:
    return parse_json(text if text is not None and text.strip() else "{}\n", relaxed=True)


def _add_member(document: JsonDocument, path: Sequence[str], value: Any) -> str:
    """Add a value, and the sections it is missing, to the innermost section that exists."""
    depth = len(path)
    while (section := document.node(tuple(path[:depth]))) is None:
        depth -= 1
    if not isinstance(section.value, dict):
        raise ShapeError(f"`{'.'.join(path[:depth])}` is not an object" if depth else "the file is not an object")
    for name in reversed(path[depth + 1 :]):
        value = {name: value}
    indent = _indent_at(document.text, section.start) + INDENT
    member = f"{_dump(path[depth])}: {_dump(value, indent)}"
    return _insert(document.text, section, [member.node for member in section.members], member)


def _insert(text: str, container: JsonNode, members: Sequence[JsonNode], new: str) -> str:
    """Insert a member at the end of an object or list, laid out as its neighbors are."""
    if members:
        first, last = members[0], members[-1]
        has_own_line = "\n" in text[container.start : first.start]
        separator = ",\n" + _indent_at(text, last.start) if has_own_line else ", "
        return text[: last.end] + separator + new + text[last.end :]
    indent = _indent_at(text, container.start)
    rest = text[container.start + 1 :]
    is_empty = rest.lstrip(" \t\n")[:1] in "]}"
    closing = f"\n{indent}{rest.lstrip()}" if is_empty else rest
    return f"{text[: container.start + 1]}\n{indent}{INDENT}{new}{closing}"


def _indent_at(text: str, position: int) -> str:
    line = text[text.rfind("\n", 0, position) + 1 : position]
    return line[: len(line) - len(line.lstrip(" \t"))]


def _dump(value: Any, indent: str = "") -> str:
    if not isinstance(value, list | dict):
        return json.dumps(value, ensure_ascii=False)
    return json.dumps(value, ensure_ascii=False, indent=INDENT).replace("\n", "\n" + indent)
