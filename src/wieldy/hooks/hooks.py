"""The hooks of a workspace: told of moments, run side by side, heard in the order of the configuration.

Rewrites of an input are chained: a hook that comes later in the configuration than one that rewrote is told of the new
input, so it runs after it. All others run together.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from wieldy.core.call import PlannedCall
from wieldy.core.decision import Advice
from wieldy.core.event import HookEnded, HookStarted, Notice
from wieldy.core.record import changed
from wieldy.core.tool import settle
from wieldy.core.workspace import Workspace

if TYPE_CHECKING:  # most sessions have no hooks: what runs them is loaded with the first
    from wieldy.hooks.configured import Hook
    from wieldy.hooks.fold import Said
    from wieldy.hooks.moment import Moment, PreToolUse
    from wieldy.hooks.reply import Reply
    from wieldy.permissions.rule import Rule


class Hooks:
    """Runs hooks. `applies` says whether an `if` rule covers a call; `halt` ends the run when a hook asks for it."""

    def __init__(
        self,
        hooks: Sequence[Hook],
        workspace: Workspace,
        *,
        mode: Callable[[], str],
        applies: Callable[[Rule, PlannedCall], bool],
        halt: Callable[[str], None],
    ) -> None:
        self.hooks = tuple(hooks)
        self._workspace = workspace
        self._mode = mode
        self._applies = applies
        self._halt = halt

    def now(self) -> Hooks:
        """These hooks as they are now, for a call to keep whatever is configured later."""
        return Hooks(self.hooks, self._workspace, mode=self._mode, applies=self._applies, halt=self._halt)

    def wanted(self, event: str) -> bool:
        """Whether any hook is for this event at all."""
        return any(hook.event == event for hook in self.hooks)

    def common(self) -> dict[str, Any]:
        """What every moment is told."""
        workspace = self._workspace
        return {
            "session_id": workspace.session_dir.name,
            "transcript_path": str(workspace.session_dir / "transcript.jsonl"),
            "cwd": workspace.cwd,
            "permission_mode": self._mode(),
        }

    def wants(self, plan: PlannedCall) -> bool:
        """Whether there are PreToolUse hooks at all."""
        return self.wanted("PreToolUse")

    async def advise(self, plan: PlannedCall) -> Advice:
        """Tell PreToolUse hooks of a call, before it is judged."""
        from wieldy.hooks.fold import advice, fold
        from wieldy.hooks.moment import PreToolUse

        moment = PreToolUse(**self.common(), tool_name=plan.tool.name, tool_input=plan.input, tool_use_id=plan.call.id)
        replies = _of_the_last_input(await self._chained(self._for(moment, plan), moment))
        self._tell(fold(replies))
        return advice(replies)

    async def fire(self, moment: Moment, plan: PlannedCall | None = None) -> Said:
        """Tell the hooks of a moment and give what they said."""
        from wieldy.hooks.fold import fold

        hooks = self._for(moment, plan)
        replies = await asyncio.gather(*(self._heard(hook, moment) for hook in hooks))
        said = fold(replies)
        self._tell(said)
        return said

    def _for(self, moment: Moment, plan: PlannedCall | None) -> list[Hook]:
        return [
            hook
            for hook in self.hooks
            if hook.wants(moment) and (hook.only_if is None or (plan is not None and self._applies(hook.only_if, plan)))
        ]

    async def _chained(self, hooks: Sequence[Hook], moment: PreToolUse) -> list[Reply]:
        """All together first; those behind a rewrite are told of the new input and asked again."""
        replies = list(await asyncio.gather(*(self._heard(hook, moment) for hook in hooks)))
        for index, reply in enumerate(replies):
            if reply.updated_input is None or index + 1 == len(hooks):
                continue
            moment = changed(moment, tool_input=reply.updated_input)
            later = await self._chained(hooks[index + 1 :], moment)
            return [*replies[: index + 1], *later]
        return replies

    async def _heard(self, hook: Hook, moment: Moment) -> Reply:
        emit = self._workspace.emit
        emit(HookStarted(moment=moment.event, hook=hook.name))
        started = time.perf_counter()
        reply = await self._reply(hook, moment)
        milliseconds = int((time.perf_counter() - started) * 1000)
        detail = reply.reason or reply.message or f"{milliseconds} ms"
        emit(HookEnded(moment=moment.event, hook=hook.name, outcome=reply.outcome, detail=detail))
        return reply

    async def _reply(self, hook: Hook, moment: Moment) -> Reply:
        from wieldy.hooks.command import Raw, run_command
        from wieldy.hooks.reply import from_python, interpret

        if hook.call is None:
            return interpret(hook, await run_command(hook, moment, self._environment()))
        try:
            async with asyncio.timeout(hook.seconds):
                return from_python(hook, await settle(hook.call(moment.payload())))
        except TimeoutError:
            return interpret(hook, Raw(None, trouble=f"did not end within {hook.seconds:g} s"))
        except Exception as error:
            return interpret(hook, Raw(None, trouble=f"failed: {type(error).__name__}: {error}"))

    def _environment(self) -> Mapping[str, str]:
        own: dict[str, Any] = self._workspace.setting("env", {})
        return {**self._workspace.env, **{str(name): str(value) for name, value in own.items()}}

    def _tell(self, said: Said) -> None:
        for line in said.messages:
            self._workspace.emit(Notice(text=line))
        if said.halt is not None:
            self._halt(said.halt)


def _of_the_last_input(replies: Sequence[Reply]) -> list[Reply]:
    """The replies without any "allow" that was said of an input which a later hook has replaced."""
    rewrites = [index for index, reply in enumerate(replies) if reply.updated_input is not None]
    last = rewrites[-1] if rewrites else 0
    return [
        changed(reply, behavior=None) if index < last and reply.behavior == "allow" else reply
        for index, reply in enumerate(replies)
    ]
