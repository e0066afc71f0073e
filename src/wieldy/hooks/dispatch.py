"""The hooks of a workspace: told of moments, run side by side, heard in the order of the configuration.

Rewrites of an input are chained: a hook that comes later in the configuration than one that rewrote is told of the new
input, so it runs after it. All others run together.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from wieldy.core.call import PlannedCall
from wieldy.core.content import Text, text_of
from wieldy.core.decision import Advice, Answer, Approver, Question
from wieldy.core.events import HookEnded, HookStarted, Notice
from wieldy.core.outcome import Done, Failed, Interrupted, Outcome
from wieldy.core.tool import maybe_await
from wieldy.core.workspace import Workspace
from wieldy.hooks.events import PermissionRequest, PostToolUse, PostToolUseFailure

if TYPE_CHECKING:
    from wieldy.hooks.config import Hook
    from wieldy.hooks.events import HookEvent, PreToolUse
    from wieldy.hooks.reply import HookReplies, HookReply
    from wieldy.permissions.rules import Rule


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

    def has(self, event: str) -> bool:
        """Whether any hook is for this event at all."""
        return any(hook.event == event for hook in self.hooks)

    def common_fields(self) -> dict[str, Any]:
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
        return self.has("PreToolUse")

    async def advise(self, plan: PlannedCall) -> Advice:
        """Tell PreToolUse hooks of a call, before it is judged."""
        from wieldy.hooks.events import PreToolUse
        from wieldy.hooks.reply import advice, fold

        moment = PreToolUse(
            **self.common_fields(), tool_name=plan.tool.name, tool_input=plan.input, tool_use_id=plan.call.id
        )
        replies = _of_the_last_input(await self._chained(self._for(moment, plan), moment))
        self._tell(fold(replies))
        return advice(replies)

    async def fire(self, moment: HookEvent, plan: PlannedCall | None = None) -> HookReplies:
        """Tell the hooks of a moment and give what they said."""
        from wieldy.hooks.reply import fold

        hooks = self._for(moment, plan)
        replies = await asyncio.gather(*(self._heard(hook, moment) for hook in hooks))
        said = fold(replies)
        self._tell(said)
        return said

    def _for(self, moment: HookEvent, plan: PlannedCall | None) -> list[Hook]:
        return [
            hook
            for hook in self.hooks
            if hook.wants(moment) and (hook.only_if is None or (plan is not None and self._applies(hook.only_if, plan)))
        ]

    async def _chained(self, hooks: Sequence[Hook], moment: PreToolUse) -> list[HookReply]:
        """All together first; those behind a rewrite are told of the new input and asked again."""
        replies = list(await asyncio.gather(*(self._heard(hook, moment) for hook in hooks)))
        for index, reply in enumerate(replies):
            if reply.updated_input is None or index + 1 == len(hooks):
                continue
            moment = replace(moment, tool_input=reply.updated_input)
            later = await self._chained(hooks[index + 1 :], moment)
            return [*replies[: index + 1], *later]
        return replies

    async def _heard(self, hook: Hook, moment: HookEvent) -> HookReply:
        emit = self._workspace.emit
        emit(HookStarted(hook_event=moment.event, hook=hook.name))
        started = time.perf_counter()
        reply = await self._reply(hook, moment)
        milliseconds = int((time.perf_counter() - started) * 1000)
        detail = reply.reason or reply.message or f"{milliseconds} ms"
        emit(HookEnded(hook_event=moment.event, hook=hook.name, outcome=reply.outcome, detail=detail))
        return reply

    async def _reply(self, hook: Hook, moment: HookEvent) -> HookReply:
        from wieldy.hooks.command import HookOutput, run_command
        from wieldy.hooks.reply import from_python, interpret

        if hook.call is None:
            return interpret(hook, await run_command(hook, moment, self._environment()))
        try:
            async with asyncio.timeout(hook.seconds):
                return from_python(hook, await maybe_await(hook.call(moment.payload())))
        except TimeoutError:
            return interpret(hook, HookOutput(None, trouble=f"did not end within {hook.seconds:g} s"))
        except Exception as error:
            return interpret(hook, HookOutput(None, trouble=f"failed: {type(error).__name__}: {error}"))

    def _environment(self) -> Mapping[str, str]:
        own: dict[str, Any] = self._workspace.setting("env", {})
        return {**self._workspace.env, **{str(name): str(value) for name, value in own.items()}}

    def _tell(self, said: HookReplies) -> None:
        for line in said.messages:
            self._workspace.emit(Notice(text=line))
        if said.halt is not None:
            self._halt(said.halt)


def _of_the_last_input(replies: Sequence[HookReply]) -> list[HookReply]:
    """The replies without any "allow" that was said of an input which a later hook has replaced."""
    rewrites = [index for index, reply in enumerate(replies) if reply.updated_input is not None]
    last = rewrites[-1] if rewrites else 0
    return [
        replace(reply, behavior=None) if index < last and reply.behavior == "allow" else reply
        for index, reply in enumerate(replies)
    ]


class HookApprover:
    """Asks the hooks first, then whoever comes next."""

    def __init__(self, hooks: Hooks, then: Approver) -> None:
        self._hooks = hooks
        self._then = then

    async def ask(self, question: Question) -> Answer:
        """The hooks' answer if they have one, else the next one's."""
        if not self._hooks.has("PermissionRequest"):
            return await self._then.ask(question)
        plan = question.plan
        rules = [{"type": "addRules", "behavior": "allow", "rules": [rule]} for rule in question.decision.suggestions]
        said = await self._hooks.fire(
            PermissionRequest(
                **self._hooks.common_fields(),
                tool_name=plan.tool.name,
                tool_input=plan.input,
                tool_use_id=plan.call.id,
                permission_suggestions=rules,
            ),
            plan,
        )
        if said.behavior == "allow":
            return Answer(True, updated_input=said.updated_input)
        if said.behavior == "deny":
            return Answer(False, said.reason or "a hook said no")
        return await self._then.ask(question)


class HookReviewer:
    """The reviewer of a toolbox's outcomes."""

    def __init__(self, hooks: Hooks) -> None:
        self._hooks = hooks

    async def review(self, plan: PlannedCall, outcome: Outcome, seconds: float) -> Outcome:
        """The outcome, with what the hooks had to say about it."""
        about: dict[str, Any] = {
            **self._hooks.common_fields(),
            "tool_name": plan.tool.name,
            "tool_input": plan.input,
            "tool_use_id": plan.call.id,
            "duration_ms": int(seconds * 1000),
        }
        if isinstance(outcome, Done) and not outcome.is_error:
            return await self._after_success(plan, outcome, about)
        if isinstance(outcome, Done | Failed | Interrupted):
            return await self._after_failure(plan, outcome, about)
        return outcome

    async def _after_success(self, plan: PlannedCall, outcome: Done, about: dict[str, Any]) -> Outcome:
        if not self._hooks.has("PostToolUse"):
            return outcome
        response = outcome.data if outcome.data is not None else text_of(outcome.content)
        said = await self._hooks.fire(PostToolUse(**about, tool_response=response), plan)
        content = outcome.content
        if said.updated_output is not None:
            content = (Text(said.updated_output if isinstance(said.updated_output, str) else str(said.updated_output)),)
        lines = [f"A hook objects: {said.blocked}"] if said.blocked else []
        return Done((*content, *map(Text, [*lines, *said.context])), outcome.data)

    async def _after_failure(
        self, plan: PlannedCall, outcome: Done | Failed | Interrupted, about: dict[str, Any]
    ) -> Outcome:
        if not self._hooks.has("PostToolUseFailure"):
            return outcome
        interrupted = isinstance(outcome, Interrupted)
        words = _words(outcome)
        said = await self._hooks.fire(PostToolUseFailure(**about, error=words, is_interrupt=interrupted), plan)
        lines = [*([said.blocked] if said.blocked else []), *said.context]
        if not lines:
            return outcome
        match outcome:
            case Done(content, data, is_error):
                return Done((*content, *map(Text, lines)), data, is_error)
            case Failed(message, data):
                return Failed("\n".join([message, *lines]), data)
        return outcome


def _words(outcome: Done | Failed | Interrupted) -> str:
    match outcome:
        case Done(content):
            return text_of(content)
        case Failed(message):
            return message
        case Interrupted(reason):
            return reason
