"""Settings problems and notices, which every command writes to stderr."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wieldy.core.console import print_error
from wieldy.core.events import Event, Notice

if TYPE_CHECKING:
    from wieldy.engine.toolbox import Toolbox


def print_settings_problems(box: Toolbox) -> None:
    """Print what is wrong with the settings on stderr: every command does, since a rule may be missing by it."""
    for problem in (*box.settings.errors, *box.settings.warnings):
        print_error(problem)


def with_notices(box: Toolbox) -> Toolbox:
    """Print the problems of its settings and the notices of a toolbox; call it before the toolbox is entered."""
    print_settings_problems(box)
    box.subscribe(_print_notice)
    return box


def _print_notice(event: Event) -> None:
    if isinstance(event, Notice) and not event.data:
        print_error(event.text)
