"""The collaborators that one call needs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct, field

from wieldy.core.abort import Abort
from wieldy.core.catalog import Catalog
from wieldy.core.decision import Adviser, Approver, Judge, Reviewer
from wieldy.core.tool import Options
from wieldy.core.workspace import Workspace
from wieldy.engine.events import Events
from wieldy.engine.queue import Queue
from wieldy.engine.results import Spill
from wieldy.engine.supervise import Supervisor

if TYPE_CHECKING:
    from wieldy.engine.tool_limits import ToolLimits


class Services(Struct, eq=False):
    """What `handle` works with."""

    catalog: Catalog
    workspace: Workspace
    queue: Queue
    supervisor: Supervisor
    judge: Judge
    approver: Approver
    events: Events
    spill: Spill
    advisers: tuple[Adviser, ...] = ()
    reviewers: tuple[Reviewer, ...] = ()
    abort: Abort = field(default_factory=Abort)
    limits: ToolLimits | None = None
    options: Options = field(default_factory=Options)
