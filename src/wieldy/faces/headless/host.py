"""The host of a session: the program at the other end of stream-json. It answers questions, runs hooks and MCP servers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias
from uuid import uuid4

from msgspec.structs import replace

from wieldy.agent.run_totals import encode_line
from wieldy.core.decision import Answer, Behavior, Question
from wieldy.core.errors import WieldyError
from wieldy.core.threads import in_thread
from wieldy.core.tool_names import RENAMED_TOOLS
from wieldy.core.user_questions import UserAnswer, UserQuestion
from wieldy.policy.hooks.config import Hook, OnError, python_hook
from wieldy.policy.hooks.events import HOOK_EVENTS
from wieldy.tools.subagents import AgentType

if TYPE_CHECKING:
    from wieldy.agent.session import Session
    from wieldy.policy.permissions.rules import Rule

Fields: TypeAlias = Mapping[str, Any]

HOST_GONE = "the program that started wieldy has closed its side"


class ControlFailure(WieldyError):
    """A control request was refused, or cannot be answered any more."""


class ControlChannel:
    """Sends requests to the host, matches its responses, and writes responses to the host's own requests."""

    def __init__(self, write: Callable[[str], object]) -> None:
        self._write = write
        self._waiting: dict[str, asyncio.Future[dict[str, Any]]] = {}
        self._closed = False

    async def request(self, subtype: str, **fields: Any) -> dict[str, Any]:
        """Send a request and return its response; when cancelled, tell the host. Raises `ControlFailure`."""
        if self._closed:
            raise ControlFailure(HOST_GONE)
        id = str(uuid4())
        future: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._waiting[id] = future
        try:
            self.write({"type": "control_request", "request_id": id, "request": {"subtype": subtype, **fields}})
            return await future
        except asyncio.CancelledError:
            if not self._closed:
                self.write({"type": "control_cancel_request", "request_id": id})
            raise
        finally:
            del self._waiting[id]

    def receive(self, response: Fields) -> None:
        """Take a response; one to an unknown request is ignored."""
        future = self._waiting.get(str(response.get("request_id")))
        if future is None or future.done():
            return
        if response.get("subtype") == "success":
            answer = response.get("response")
            future.set_result(dict(answer) if isinstance(answer, Mapping) else {})
        else:
            future.set_exception(ControlFailure(str(response.get("error") or "the host gave no reason")))

    def respond(self, request_id: Any, response: Fields) -> None:
        self._respond({"subtype": "success", "request_id": request_id, "response": dict(response)})

    def respond_error(self, request_id: Any, error: str) -> None:
        self._respond({"subtype": "error", "request_id": request_id, "error": error})

    def write(self, message: Fields) -> None:
        """Write one line."""
        self._write(encode_line(message))

    def close(self) -> None:
        """Fail every request that still waits: there will be no more responses."""
        self._closed = True
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(ControlFailure(HOST_GONE))

    def _respond(self, response: Fields) -> None:
        self.write({"type": "control_response", "response": response})


QUESTION_TOOL = "AskUserQuestion"  # what hosts know AskUser as
MAX_HEADER_CHARS = 12
ON_FAILURE: Mapping[str, OnError] = {"block": "block", "continue": "warn"}


class ControlHost:
    """What a host contributes to a session, from its `initialize` request; None where it sent none.

    `hooks`, `agents` and `servers` are what it registered, `problems` what of that cannot be used.
    """

    def __init__(self, channel: ControlChannel, initialize: Fields | None) -> None:
        self._channel = channel
        self._session: Session | None = None
        self.initialized = initialize is not None
        self.problems: list[str] = []
        fields = initialize or {}
        self.hooks = tuple(self._parse_hooks(fields.get("hooks")))
        self.agents = parse_agents(fields.get("agents"))
        servers = fields.get("sdkMcpServers")
        self.servers = {str(name): {"type": "sdk", "name": name} for name in servers or ()}

    def attach(self, session: Session) -> None:
        """Follow the session whose questions it answers."""
        self._session = session

    async def ask(self, question: Question) -> Answer:
        """Have the host answer a permission question; a failure is a no."""
        plan, decision = question.plan, question.decision
        try:
            reply = await self._channel.request(
                "can_use_tool",
                tool_name=plan.tool.name,
                input=dict(plan.input),
                permission_suggestions=[suggestion(rule) for rule in decision.suggestions],
                blocked_path=None,
                decision_reason=decision.why,
                tool_use_id=plan.call.id,
                **({"agent_id": question.agent} if question.agent else {}),
            )
            return await self.interpret(reply, question)
        except ControlFailure as failure:
            return Answer(False, f"nobody could be asked: {failure}")

    async def interpret(self, reply: Fields, question: Question) -> Answer:
        """Interpret the answer to a question, and apply the permissions that it changes. Raises `ControlFailure`."""
        is_allowed = reply.get("behavior") == "allow"
        remember = await self._apply_updates(reply.get("updatedPermissions"), is_allowed=is_allowed)
        if is_allowed:
            updated = reply.get("updatedInput")
            is_changed = isinstance(updated, Mapping) and updated != question.plan.input
            return Answer(True, remember=remember, updated_input=updated if is_changed else None)
        if reply.get("interrupt") is True and self._session is not None:
            # Once the answer is in: aborting now would cancel this very question.
            asyncio.get_running_loop().call_soon(self._session.abort, "interrupted with the answer to a question")
        return Answer(False, str(reply.get("message") or ""))

    async def answer(self, questions: Sequence[UserQuestion]) -> list[UserAnswer] | None:
        """Have the host answer the questions of AskUser; None where it gives no answers."""
        asked = [
            {
                "question": each.question,
                "header": each.question[:MAX_HEADER_CHARS],
                "options": [{"label": option, "description": ""} for option in each.options],
                "multiSelect": each.several,
            }
            for each in questions
        ]
        try:
            reply = await self._channel.request("can_use_tool", tool_name=QUESTION_TOOL, input={"questions": asked})
        except ControlFailure:
            return None
        updated = reply.get("updatedInput")
        answers = updated.get("answers") if isinstance(updated, Mapping) else None
        if reply.get("behavior") != "allow" or not isinstance(answers, Mapping):
            return None
        return [_user_answer(each, answers.get(each.question)) for each in questions]

    async def relay(self, server: str, message: Fields) -> Fields:
        """Carry a JSON-RPC message to an MCP server of the host and return its response. Raises `ControlFailure`."""
        reply = await self._channel.request("mcp_message", server_name=server, message=message)
        response = reply.get("mcp_response")
        return response if isinstance(response, Mapping) else {}

    async def _apply_updates(self, updates: Any, *, is_allowed: bool) -> tuple[str, ...]:
        """Apply the changes of permissions that came with an answer, all or none; returns the allow rules to save.

        Raises `ControlFailure` for one that cannot be applied: what a host wants forbidden must not be lost.
        """
        assert self._session is not None
        session, saved = self._session, list[str]()
        if updates is not None and not isinstance(updates, list):
            raise ControlFailure("updatedPermissions is not a list")
        changes: list[Callable[[], Awaitable[object]]] = []
        for update in updates or ():
            match update:
                case {"type": "setMode", "mode": str(mode)}:
                    require_mode(session, mode)
                    changes.append(partial(_at_once, set_mode, session, mode))
                case {"type": "addRules", "behavior": "allow", "rules": list(rules)} if is_allowed:
                    texts = [rule_text(rule) for rule in rules]
                    if update.get("destination", "session") == "session":
                        changes.append(partial(_at_once, self._grant, texts))
                    else:
                        saved += texts
                case {"type": "addRules", "behavior": "deny" | "ask" as behavior, "rules": list(rules)}:
                    texts = [rule_text(rule) for rule in rules]
                    changes.append(partial(self._restrict, behavior, texts, update.get("destination", "session")))
                    _parse_rules(texts, behavior)
                    self._settings_file(update.get("destination", "session"))
                case _:
                    shown = json.dumps(update, default=str)[:200]
                    raise ControlFailure(f"updatedPermissions cannot be applied, so the answer counts as no: {shown}")
        for change in changes:
            await change()
        return tuple(saved)

    async def _restrict(self, behavior: Behavior, texts: list[str], destination: str) -> None:
        """Deny, or ask about, what rules cover: at once, and in the settings if they are to stay."""
        from wieldy.policy.settings.store import add_rules

        assert self._session is not None
        self._session.box.policy.grant(*_parse_rules(texts, behavior))
        if (file := self._settings_file(destination)) is not None:
            await in_thread(add_rules, file, behavior, texts)

    def _settings_file(self, destination: str) -> Path | None:
        """The settings that a destination names; None for the session. Raises `ControlFailure`."""
        from wieldy.policy.settings.store import local_file, project_file, user_file

        assert self._session is not None
        project = self._session.box.policy.paths.project
        match destination:
            case "session":
                return None
            case "userSettings":
                return user_file(self._session.box.workspace.env)
            case "projectSettings":
                return project_file(project)
            case "localSettings":
                return local_file(project)
        raise ControlFailure(f"there is no destination {destination!r} for rules")

    def _grant(self, rules: list[str]) -> None:
        from wieldy.policy.permissions.rules import select_savable_rules

        assert self._session is not None
        policy = self._session.box.policy
        policy.grant(*select_savable_rules(rules, policy.paths.project).rules)

    def _parse_hooks(self, section: Any) -> list[Hook]:
        """Parse the hooks. What cannot be read is an error: a guard must not be left out unnoticed."""
        if section is None:
            return []
        hooks: list[Hook] = []
        try:
            for event, groups in section.items():
                if event not in HOOK_EVENTS:
                    self._add_unknown_event(event, groups)
                    continue
                for group in groups:
                    hooks += [self._hook(event, group, str(id)) for id in group.get("hookCallbackIds") or ()]
        except (AttributeError, TypeError, ValueError) as error:
            raise ControlFailure(f"the hooks cannot be used: {error}") from None
        return hooks

    def _add_unknown_event(self, event: str, groups: Any) -> None:
        if any(group.get("onFailure") not in (None, "continue") for group in groups):
            raise ValueError(f"wieldy has no event {event}, so that a hook for it would block nothing")
        self.problems.append(f"the hooks for {event} never run: wieldy has no such event")

    def _hook(self, event: str, group: Fields, callback_id: str) -> Hook:
        async def call(payload: dict[str, Any]) -> Fields | None:
            call_id = payload.get("tool_use_id")
            reply = await self._channel.request(
                "hook_callback", callback_id=callback_id, input=payload, tool_use_id=call_id
            )
            return None if reply.get("async") is True else reply or None

        matcher, failure, seconds = group.get("matcher"), group.get("onFailure"), group.get("timeout")
        # A word that is not known must not make a guard fail open.
        on_error = None if failure is None else ON_FAILURE.get(failure, "block")
        hook = python_hook(event, call, match=matcher if isinstance(matcher, str) else "", on_error=on_error)
        limit = float(seconds) if isinstance(seconds, int | float) and seconds > 0 else hook.seconds
        return replace(hook, name=f"{event} callback {callback_id}", seconds=limit)


def parse_agents(section: Any) -> list[AgentType]:
    """The types of subagents in an object of names and definitions, as Claude Code writes them. Raises `ControlFailure`."""
    try:
        return [_agent_type(str(name), fields) for name, fields in (section or {}).items()]
    except (AttributeError, TypeError) as error:
        raise ControlFailure(f"the agents cannot be used: {error}") from None


def _agent_type(name: str, fields: Fields) -> AgentType:
    tools, model = fields.get("tools"), fields.get("model")
    return AgentType(
        name,
        str(fields.get("prompt") or ""),
        str(fields.get("description") or ""),
        None if tools is None else [RENAMED_TOOLS.get(tool, tool) for tool in tools],
        [RENAMED_TOOLS.get(tool, tool) for tool in fields.get("disallowedTools") or ()],
        None if model in (None, "inherit") else str(model),
        fields.get("permissionMode"),
        fields.get("maxTurns"),
    )


def _user_answer(question: UserQuestion, answer: Any) -> UserAnswer:
    """An answer: labels of options, separated by commas where several are allowed, or words."""
    if isinstance(answer, list):
        answer = ", ".join(map(str, answer))
    text = str(answer or "")
    labels = [label.strip() for label in text.split(",")] if question.several else [text]
    chosen = tuple(label for label in labels if label in question.options)
    return UserAnswer(chosen) if chosen and len(chosen) == len(labels) else UserAnswer(words=text)


async def _at_once(change: Callable[..., object], *arguments: Any) -> None:
    change(*arguments)


def _parse_rules(texts: Sequence[str], behavior: Behavior) -> list[Rule]:
    from wieldy.policy.permissions.rules import Origin, RuleError, parse

    try:
        return [parse(text, behavior, Origin("session")) for text in texts]
    except RuleError as error:
        raise ControlFailure(f"a rule in updatedPermissions cannot be used: {error}") from None


def require_mode(session: Session, name: str) -> None:
    """Raise `ControlFailure` for a mode that is unknown or disabled."""
    try:
        session.box.settings.require_mode(name)
    except ValueError as error:
        raise ControlFailure(str(error)) from None


def set_mode(session: Session, name: str) -> str:
    """Change the permission mode of a session. Raises `ControlFailure` for one that is unknown or disabled."""
    try:
        session.box.mode = name
    except ValueError as error:
        raise ControlFailure(str(error)) from None
    return session.box.mode


def suggestion(rule: str) -> dict[str, Any]:
    """A rule that is offered with a question, as the permission update that would save it."""
    from wieldy.policy.permissions.rules import split_rule

    tool, specifier = split_rule(rule)
    value = {"toolName": tool} if specifier is None else {"toolName": tool, "ruleContent": specifier}
    return {"type": "addRules", "rules": [value], "behavior": "allow", "destination": "localSettings"}


def rule_text(rule: Any) -> str:
    """The text of a rule in a permission update."""
    if not isinstance(rule, Mapping) or not isinstance(rule.get("toolName"), str):
        raise ControlFailure("a rule in updatedPermissions has no toolName")
    content = rule.get("ruleContent")
    return f"{rule['toolName']}({content})" if content else rule["toolName"]


class PermissionTool:
    """Asks a tool, which answers with a JSON object like that of `can_use_tool`. Any failure is a no."""

    def __init__(self, name: str, host: ControlHost) -> None:
        self._name = name
        self._host = host
        self._session: Session | None = None

    def attach(self, session: Session) -> None:
        """Follow the session whose questions it answers."""
        self._session = session
        self._host.attach(session)

    async def ask(self, question: Question) -> Answer:
        plan = question.plan
        try:
            reply = await self._call({"tool_name": plan.tool.name, "input": plan.input, "tool_use_id": plan.call.id})
            return await self._host.interpret(reply, question)
        except WieldyError as failure:
            return Answer(False, f"nobody could be asked: {failure}")

    async def _call(self, arguments: dict[str, Any]) -> dict[str, Any]:
        from wieldy.mcp.tools import ServerTool

        assert self._session is not None
        box = self._session.box
        await box.workspace.services.mcp_servers.wait_for_tool(self._name)
        tool = box.catalog.find(self._name)
        if tool is None or not isinstance(tool := tool.unwrapped, ServerTool):
            raise ControlFailure(f"there is no tool {self._name} of an MCP server")
        result = await tool.call(arguments)
        texts = [part.text for part in result.content if part.type == "text"]
        try:
            reply = json.loads("\n".join(texts))
        except ValueError:
            reply = None
        if not isinstance(reply, dict):
            raise ControlFailure(f"{self._name} did not answer with a JSON object")
        return reply
