"""The collaborators that one call needs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

from wieldy.core.abort import Abort
from wieldy.core.catalog import Catalog
from wieldy.core.decision import Adviser, Approver, Judge, Reviewer
from wieldy.core.supervise import Supervisor
from wieldy.core.tool import Options
from wieldy.core.workspace import Workspace
from wieldy.engine.events import Events
from wieldy.engine.queue import Queue
from wieldy.engine.results import Spill

if TYPE_CHECKING:
    from wieldy.engine.tool_limits import ToolLimits


class Services(Struct, eq=False):
    """What `handle` works with. `session_catalog` has all tools of the session, also those a subagent has not."""

    catalog: Catalog
    session_catalog: Catalog
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
    options: Callable[[], Options] = Options
    deps: Any = None
