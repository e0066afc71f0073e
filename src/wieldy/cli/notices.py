"""What a person should hear of while a command runs, on stderr."""

from __future__ import annotations

import sys

from wieldy.core.events import Event, Notice
from wieldy.toolbox import Toolbox


def with_notices(box: Toolbox) -> Toolbox:
    """A toolbox that is about to be opened, whose notices are printed."""
    box.subscribe(_tell)
    return box


def _tell(event: Event) -> None:
    if isinstance(event, Notice) and not event.data:
        print(f"wieldy: {event.text}", file=sys.stderr)
