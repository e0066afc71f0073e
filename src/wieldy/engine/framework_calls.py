"""Runs the calls of a framework in a toolbox: those of one step share a turn, and questions become the framework's approvals."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from wieldy.core.call import ToolCall
from wieldy.core.decision import Answer, Decision, Question
from wieldy.core.errors import Refusal, WieldyError
from wieldy.core.json_values import to_json
from wieldy.core.outcome import Image, Refused, ToolResult
from wieldy.engine.pipeline import require_available
from wieldy.engine.services import NoApprover
from wieldy.engine.turn import Turn

if TYPE_CHECKING:
    from wieldy.core.tool import Tool
    from wieldy.engine.services import CallServices
    from wieldy.engine.toolbox import Toolbox

MAX_TURNS = 64
ARRIVAL_SECONDS = 5.0
"""How long a call waits for those before it in its step."""


def describe(tool: Tool) -> str:
    """The description of a tool with its guidance, which in a session is part of the system prompt."""
    return "\n\n".join(text.strip() for text in (tool.description, tool.prompt) if text.strip())


def convert_content(result: ToolResult, *, text: Callable[[str], Any], image: Callable[[Image], Any]) -> Any:
    """The content of a result in the types of a framework: text alone as text, with images a list in its order."""
    if not any(isinstance(block, Image) for block in result.content):
        return result.text
    return [image(block) if isinstance(block, Image) else text(block.text) for block in result.content]


class ApprovalNeeded(Struct, frozen=True):
    """A call that a person has to allow: its input as it would run, why, and the rules that would allow it."""

    name: str
    input: Mapping[str, Any]
    decision: Decision

    def as_dict(self) -> dict[str, Any]:
        return {
            "tool": self.name,
            "input": to_json(dict(self.input)),
            "why": self.decision.why,
            "reasons": [str(reason) for reason in self.decision.reasons],
            "suggested_rules": list(self.decision.suggestions),
        }


class FrameworkApprover:
    """Answers yes for a call that the framework's person has approved, else refuses with what to ask the person."""

    def __init__(self, *, approved: bool) -> None:
        self._approved = approved

    async def ask(self, question: Question) -> Answer:
        plan, decision = question.plan, question.decision
        if self._approved:
            return Answer(True)
        needed = ApprovalNeeded(plan.tool.name, plan.input, decision)
        raise Refusal("permission", f"A person must approve this call first: {decision.why}.", data=needed)


class ArrivalOrder:
    """Starts the calls of a step in their order where a framework asks about each one first, in a task of its own."""

    def __init__(self) -> None:
        self._expected: OrderedDict[Hashable, dict[str, asyncio.Event]] = OrderedDict()

    def announce(self, step: Hashable, call_id: str) -> None:
        """Expect a call after those that were announced before it."""
        self._expected.setdefault(step, {})[call_id] = asyncio.Event()
        while len(self._expected) > MAX_TURNS:
            self._expected.popitem(last=False)

    def withdraw(self, step: Hashable, call_id: str) -> None:
        """Expect a call no more: it has started, or it will not start now."""
        expected = self._expected.get(step, {})
        if call_id in expected:
            expected.pop(call_id).set()
        if not expected:
            self._expected.pop(step, None)

    async def wait(self, step: Hashable, call_id: str) -> None:
        """Wait for the calls before this one, but not for ever: a guardrail of the framework may have stopped them."""
        expected = self._expected.get(step, {})
        if call_id not in expected:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(ARRIVAL_SECONDS):
                while (first := next(iter(expected))) != call_id:
                    await expected[first].wait()


class FrameworkCalls:
    """The calls of one framework in one toolbox. A toolbox that was made with `ask` asks there, and not the framework."""

    def __init__(self, box: Toolbox) -> None:
        self.box = box
        self.order = ArrivalOrder()
        self._turns: OrderedDict[Hashable, tuple[Turn, object]] = OrderedDict()
        self._running: dict[Hashable, int] = {}

    async def run(
        self, step: Hashable | None, call: ToolCall, *, approved: bool = False, keep: object = None
    ) -> ToolResult | ApprovalNeeded:
        """Run a call. Calls of the same step share a turn; without a step, those that overlap in time do.

        `keep` is an object that must live as long as the step is remembered, such as one whose id is part of it.
        """
        try:
            await self.order.wait(step, call.id)
        finally:
            self.order.withdraw(step, call.id)
        self._running[step] = self._running.get(step, 0) + 1
        turn = self._turn(step, keep)
        if approved:  # ids of calls are not unique among runs, so the yes goes with this very call
            turn = Turn(self._services(approved=True), turn.message_id)
        task = turn.submit(call)
        try:
            result = await task
        except asyncio.CancelledError:
            task.cancel()
            raise
        finally:
            self._running[step] -= 1
            if not self._running[step]:
                del self._running[step]
        data = result.outcome.data if isinstance(result.outcome, Refused) else None
        return data if isinstance(data, ApprovalNeeded) else result

    async def needs_approval(self, name: str, input: Mapping[str, Any]) -> ApprovalNeeded | None:
        """What a person has to allow before this call may run; None for one that may, that is denied, or that is invalid."""
        if not isinstance(self.box.services.person, NoApprover):
            return None
        try:
            decision = await self.box.explain(name, dict(input))
        except WieldyError:
            return None
        return ApprovalNeeded(name, input, decision) if decision.behavior == "ask" else None

    def tools(self) -> list[Tool]:
        """The tools of the toolbox that can be offered now."""
        return [tool for tool in self.box.workspace.services.toolset.candidates() if self._is_enabled(tool)]

    def _is_enabled(self, tool: Tool) -> bool:
        """What the tool's own check says. One that has to wait counts as a yes: its calls then say what is missing."""
        try:
            require_available(tool, self.box.services.catalog, self.box.workspace)
        except Refusal:
            return False
        return True

    def _turn(self, step: Hashable | None, keep: object) -> Turn:
        entry = self._turns.get(step)
        is_over = step is None and self._running[None] == 1
        if entry is None or is_over:
            message_id = self.box.turn().message_id
            entry = self._turns[step] = (Turn(self._services(approved=False), message_id), keep)
            while len(self._turns) > MAX_TURNS:
                self._turns.popitem(last=False)
        return entry[0]

    def _services(self, *, approved: bool) -> CallServices:
        box = self.box
        if not isinstance(box.services.person, NoApprover):
            return box.services
        services = replace(box.services, person=FrameworkApprover(approved=approved))
        return services.configured(box.settings, box.services.abort)
