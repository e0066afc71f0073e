"""Writes settings: one key at a time, under a lock, so that any number of processes may do it at once."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from wieldy.core.decision import Behavior
from wieldy.core.errors import WieldyError
from wieldy.core.state_dirs import config_home
from wieldy.files.writing.locked_update import update_locked
from wieldy.permissions.paths import is_below
from wieldy.permissions.rules import Rule, parse
from wieldy.permissions.trust import ConsentItem, Trust
from wieldy.settings.document import DocumentError, ShapeError, with_items, with_value
from wieldy.settings.sources import FOLDER, LOCAL, SHARED


class SettingsNotSaved(WieldyError):
    """A settings file was not changed; one line for the person says why."""


def local_file(root: str | os.PathLike[str]) -> Path:
    """The settings of one person in one project."""
    return Path(os.path.realpath(root), FOLDER, LOCAL)


def project_file(root: str | os.PathLike[str]) -> Path:
    """The settings that a project shares."""
    return Path(os.path.realpath(root), FOLDER, SHARED)


def user_file(env: Mapping[str, str] = os.environ) -> Path:
    """The settings of one person everywhere."""
    return config_home(env) / SHARED


def add_rules(file: Path, behavior: Behavior, rules: Sequence[str]) -> None:
    """Add rules to a settings file. Raises `RuleProblem` for one that could not be read back. Blocks on disk and lock."""
    for text in rules:
        parse(text, behavior)
    _change(file, lambda text: with_items(text, ("permissions", behavior), list(rules)))


def set_value(file: Path, dotted: str, value: Any) -> None:
    """Set one value in a settings file. Blocks on disk and lock."""
    _change(file, lambda text: with_value(text, dotted.split("."), value))


def remember(
    root: str | os.PathLike[str], rules: Sequence[Rule], *, file: Path | None = None, trust: Trust | None = None
) -> Path:
    """Keep rules the person has just agreed to: written to the local file, or another, and consented to.

    Blocks on disk and lock.
    """
    file = file or local_file(root)
    if is_below(str(file), os.path.realpath(root)) and not is_below(os.path.realpath(file), os.path.realpath(root)):
        raise SettingsNotSaved(f"{file}: a link that leads out of the project; nothing was saved")
    for behavior in ("deny", "ask", "allow"):
        texts = [rule.text for rule in rules if rule.behavior == behavior]
        if texts:
            add_rules(file, behavior, texts)
    allowed = [ConsentItem.for_value("permissions.allow", rule.text) for rule in rules if rule.behavior == "allow"]
    (trust or Trust()).accept(os.path.realpath(root), allowed)
    return file


def _change(file: Path, change: Callable[[str | None], str]) -> None:
    try:
        update_locked(file, change)
    except DocumentError as problem:
        raise SettingsNotSaved(
            f"{file}:{problem.line}:{problem.column}: {problem.message}; nothing was saved"
        ) from None
    except ShapeError as problem:
        raise SettingsNotSaved(f"{file}: {problem}; nothing was saved") from None
    except UnicodeDecodeError:
        raise SettingsNotSaved(f"{file}: not UTF-8 text; nothing was saved") from None
    except OSError as problem:
        raise SettingsNotSaved(f"{file}: {problem.strerror or problem}; nothing was saved") from None
