"""The workbench: the collaborators one call needs on its way, none of them optional."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct, field

from wieldy.core.abort import Abort
from wieldy.core.catalog import Catalog
from wieldy.core.decision import Adviser, Approver, Judge, Reviewer
from wieldy.core.tool import Options, Tool, ToolContext
from wieldy.core.workspace import Workspace
from wieldy.engine.events import Events
from wieldy.engine.queue import Queue
from wieldy.engine.results import Spill
from wieldy.engine.supervise import Supervisor

if TYPE_CHECKING:
    from wieldy.engine.turn import Turn

DEFAULT_SECONDS = 600.0


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
    options: Options = field(default_factory=Options)

    def limit_of(self, tool: Tool) -> float:
        """How many seconds a tool may take."""
        return DEFAULT_SECONDS if tool.timeout is None else tool.timeout

    def context(self, call_id: str, turn: Turn | None) -> ToolContext:
        """What the running tool is handed."""
        message_id, siblings = (None, ()) if turn is None else (turn.message_id, turn.call_ids)
        return ToolContext(
            call_id, self.workspace, self.abort, self.events.emit, self.judge, message_id, siblings, self.options
        )
