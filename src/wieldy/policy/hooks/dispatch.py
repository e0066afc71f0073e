"""Runs the hooks of a workspace: all hooks of an event in parallel, their replies in the order of the configuration.

Rewrites of an input are chained: the hooks configured after one that rewrote run again, on the new input.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from wieldy.core.call import PlannedCall
from wieldy.core.decision import Advice, Answer, Approver, Question
from wieldy.core.events import HookEnded, HookStarted, Notice
from wieldy.core.outcome import Done, Failed, Interrupted, Outcome, Text, text_of
from wieldy.core.session_files import TRANSCRIPT_NAME
from wieldy.core.threads import call_function, in_thread
from wieldy.core.workspace import Workspace
from wieldy.policy.hooks.events import Notification, PermissionRequest, PostToolUse, PostToolUseFailure

if TYPE_CHECKING:
    from wieldy.policy.hooks.config import Hook
    from wieldy.policy.hooks.events import HookEvent, PreToolUse
    from wieldy.policy.hooks.reply import HookReplies, HookReply
    from wieldy.policy.permissions.rules import Rule
    from wieldy.shell.running.program_output import ProgramOutput


class Hooks:
    """The hooks in force. `rule_matches` says whether an `if` rule covers a call; `halt` ends the run when a hook asks for it."""

    def __init__(
        self,
        hooks: Sequence[Hook],
        workspace: Workspace,
        *,
        mode: Callable[[], str],
        rule_matches: Callable[[Rule, PlannedCall], bool],
        halt: Callable[[str], None],
    ) -> None:
        self.configure(hooks)
        self._workspace = workspace
        self._mode = mode
        self._rule_matches = rule_matches
        self._halt = halt

    def snapshot(self) -> Hooks:
        """Copy the hooks for a call that keeps them when the settings change."""
        return Hooks(self.hooks, self._workspace, mode=self._mode, rule_matches=self._rule_matches, halt=self._halt)

    def configure(self, hooks: Sequence[Hook]) -> None:
        """Replace the hooks in force."""
        self.hooks = tuple(hooks)
        self.event_names = frozenset(hook.event for hook in hooks)

    def common_fields(self) -> dict[str, Any]:
        """The fields of every event's payload."""
        workspace = self._workspace
        return {
            "session_id": workspace.session_dir.name,
            "transcript_path": str(workspace.session_dir / TRANSCRIPT_NAME),
            "cwd": workspace.cwd,
            "permission_mode": self._mode(),
        }

    def tool_fields(self, plan: PlannedCall) -> dict[str, Any]:
        """The fields of the payload of every event about a call."""
        return {
            **self.common_fields(),
            "cwd": plan.cwd,
            "tool_name": plan.tool.name,
            "tool_input": plan.input,
            "tool_use_id": plan.call.id,
        }

    def wants(self, plan: PlannedCall) -> bool:
        return "PreToolUse" in self.event_names

    async def advise(self, plan: PlannedCall) -> Advice:
        """Run the PreToolUse hooks of a call."""
        from wieldy.policy.hooks.events import PreToolUse
        from wieldy.policy.hooks.reply import as_advice, combine

        event = PreToolUse(**self.tool_fields(plan))
        replies = _without_stale_allows(await self._run_chained(self._hooks_for(event, plan), event))
        self._report(combine(replies))
        return as_advice(replies)

    async def fire(self, event: HookEvent, plan: PlannedCall | None = None) -> HookReplies:
        """Run the hooks of an event."""
        from wieldy.policy.hooks.reply import combine

        hooks = self._hooks_for(event, plan)
        replies = combine(await asyncio.gather(*(self._run(hook, event) for hook in hooks)))
        self._report(replies)
        return replies

    @asynccontextmanager
    async def notifying(
        self, notification_type: str, message: str, plan: PlannedCall | None = None
    ) -> AsyncIterator[None]:
        """Run the Notification hooks while the body waits for a person; none if it ends without waiting."""
        if "Notification" not in self.event_names:
            yield
            return
        is_waiting = False

        async def notify() -> None:
            nonlocal is_waiting
            is_waiting = True
            fields = self.common_fields() if plan is None else {**self.common_fields(), "cwd": plan.cwd}
            event = Notification(**fields, message=message, notification_type=notification_type)
            await self.fire(event)

        task = asyncio.create_task(notify())
        try:
            yield
            if is_waiting:
                await asyncio.wait((task,))
        finally:
            task.cancel()
            await asyncio.wait((task,))

    def _hooks_for(self, event: HookEvent, plan: PlannedCall | None) -> list[Hook]:
        return [hook for hook in self.hooks if hook.wants(event) and self._covers(hook.only_if, plan)]

    def _covers(self, rule: Rule | None, plan: PlannedCall | None) -> bool:
        return rule is None or (plan is not None and self._rule_matches(rule, plan))

    async def _run_chained(self, hooks: Sequence[Hook], event: PreToolUse) -> list[HookReply]:
        replies = list(await asyncio.gather(*(self._run(hook, event) for hook in hooks)))
        for index, reply in enumerate(replies[:-1]):
            if reply.updated_input is not None:
                rewritten = replace(event, tool_input=reply.updated_input)
                return [*replies[: index + 1], *await self._run_chained(hooks[index + 1 :], rewritten)]
        return replies

    async def _run(self, hook: Hook, event: HookEvent) -> HookReply:
        emit = self._workspace.emit
        emit(HookStarted(hook_event=event.event, hook=hook.name))
        started = time.perf_counter()
        reply = await self._reply_of(hook, event)
        milliseconds = int((time.perf_counter() - started) * 1000)
        detail = reply.reason or reply.message or f"{milliseconds} ms"
        emit(HookEnded(hook_event=event.event, hook=hook.name, outcome=reply.outcome, detail=detail))
        return reply

    async def _reply_of(self, hook: Hook, event: HookEvent) -> HookReply:
        from wieldy.policy.hooks.reply import failed_reply, interpret_answer, interpret_output

        if hook.call is None:
            return interpret_output(hook, await self._run_command(hook, event))
        try:
            async with asyncio.timeout(hook.seconds):
                return interpret_answer(hook, await call_function(hook.call, event.payload()))
        except TimeoutError:
            return failed_reply(hook, f"did not end within {hook.seconds:g} s")
        except (Exception, SystemExit) as error:
            return failed_reply(hook, f"failed: {type(error).__name__}: {error}")

    async def _run_command(self, hook: Hook, event: HookEvent) -> ProgramOutput:
        """Run the hook's command in the project's root. Never raises for what the hook does."""
        from wieldy.shell.running.program_output import ProgramOutput, run_for_output

        root, commands = self._workspace.project_root, self._workspace.commands
        if commands is not None and hook.command is not None:
            problem = await in_thread(commands.problem, f"hooks.{hook.event}", hook.command)
            if problem is not None:
                return ProgramOutput(None, failure=problem)
        return await run_for_output(
            ("/bin/sh", "-c", hook.command) if isinstance(hook.command, str) else hook.command or (),
            json.dumps(event.payload(), ensure_ascii=False, default=str).encode("utf-8", "replace"),
            cwd=root if os.path.isdir(root) else os.sep,
            env={**self._environment(), "WIELDY_PROJECT_DIR": root, "CLAUDE_PROJECT_DIR": root},
            tag="WIELDY_HOOK",
            seconds=hook.seconds,
            grace=0.2,
        )

    def _environment(self) -> Mapping[str, str]:
        configured: dict[str, Any] = self._workspace.setting("env")
        return {**self._workspace.env, **{str(name): str(value) for name, value in configured.items()}}

    def _report(self, replies: HookReplies) -> None:
        for message in replies.messages:
            self._workspace.emit(Notice(text=message))
        if replies.halt is not None:
            self._halt(replies.halt)


def _without_stale_allows(replies: Sequence[HookReply]) -> list[HookReply]:
    """Drop every "allow" for an input that a later hook has rewritten."""
    rewrites = [index for index, reply in enumerate(replies) if reply.updated_input is not None]
    last = rewrites[-1] if rewrites else 0
    return [
        replace(reply, behavior=None) if index < last and reply.behavior == "allow" else reply
        for index, reply in enumerate(replies)
    ]


class HookApprover:
    """Asks PermissionRequest hooks first, then the person; Notification hooks run while the person is asked."""

    def __init__(self, hooks: Hooks, person: Approver) -> None:
        self._hooks = hooks
        self._person = person

    async def ask(self, question: Question) -> Answer:
        plan = question.plan
        if "PermissionRequest" in self._hooks.event_names:
            suggestions = question.decision.suggestions
            rules = [{"type": "addRules", "behavior": "allow", "rules": [rule]} for rule in suggestions]
            event = PermissionRequest(**self._hooks.tool_fields(plan), permission_suggestions=rules)
            replies = await self._hooks.fire(event, plan)
            if replies.behavior == "allow":
                return Answer(True, updated_input=replies.updated_input)
            if replies.behavior == "deny":
                return Answer(False, replies.reason or "a hook said no")
        message = f"wieldy needs your permission to use {plan.tool.name}"
        async with self._hooks.notifying("permission_prompt", message, plan):
            return await self._person.ask(question)


class HookReviewer:
    """Runs PostToolUse and PostToolUseFailure hooks on outcomes."""

    def __init__(self, hooks: Hooks) -> None:
        self._hooks = hooks

    async def review(self, plan: PlannedCall, outcome: Outcome, seconds: float) -> Outcome:
        """Return the outcome with what the hooks add to it."""
        duration_ms = int(seconds * 1000)
        if isinstance(outcome, Done) and not outcome.is_error:
            return await self._review_success(plan, outcome, duration_ms)
        if isinstance(outcome, Done | Failed | Interrupted):
            return await self._review_failure(plan, outcome, duration_ms)
        return outcome

    async def _review_success(self, plan: PlannedCall, outcome: Done, duration_ms: int) -> Outcome:
        if "PostToolUse" not in self._hooks.event_names:
            return outcome
        response = outcome.data if outcome.data is not None else text_of(outcome.content)
        event = PostToolUse(**self._hooks.tool_fields(plan), tool_response=response, duration_ms=duration_ms)
        replies = await self._hooks.fire(event, plan)
        content = outcome.content if replies.updated_output is None else (Text(str(replies.updated_output)),)
        lines = [f"A hook objects: {replies.blocked}"] if replies.blocked else []
        return Done((*content, *map(Text, [*lines, *replies.context])), outcome.data)

    async def _review_failure(
        self, plan: PlannedCall, outcome: Done | Failed | Interrupted, duration_ms: int
    ) -> Outcome:
        if "PostToolUseFailure" not in self._hooks.event_names:
            return outcome
        event = PostToolUseFailure(
            **self._hooks.tool_fields(plan),
            error=_error_text(outcome),
            is_interrupt=isinstance(outcome, Interrupted),
            duration_ms=duration_ms,
        )
        replies = await self._hooks.fire(event, plan)
        lines = [*([replies.blocked] if replies.blocked else []), *replies.context]
        if not lines:
            return outcome
        match outcome:
            case Done(content, data, is_error):
                return Done((*content, *map(Text, lines)), data, is_error)
            case Failed(message, data, person):
                return Failed("\n".join([message, *lines]), data, person or message)
        return outcome


def _error_text(outcome: Done | Failed | Interrupted) -> str:
    match outcome:
        case Done(content):
            return text_of(content)
        case Failed(message):
            return message
        case Interrupted(reason):
            return reason
