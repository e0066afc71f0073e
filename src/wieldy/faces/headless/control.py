"""The control protocol of stream-json and the host at its other end. docs/stream-json.md describes it.

The host sends prompts and requests, answers questions, runs hooks and MCP servers. Requests are answered while a prompt runs;
prompts run one after the other."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias
from uuid import uuid4

from msgspec.structs import replace

from wieldy.agent.loop import COMPACT_AT
from wieldy.agent.run_totals import encode_line
from wieldy.core.decision import Answer, Behavior, Question
from wieldy.core.errors import WieldyError
from wieldy.core.logs import log
from wieldy.core.threads import in_thread
from wieldy.core.tool_names import RENAMED_TOOLS
from wieldy.core.user_questions import UserAnswer, UserQuestion
from wieldy.policy.hooks.config import Hook, OnError, python_hook
from wieldy.policy.hooks.events import HOOK_EVENTS
from wieldy.tools.subagents import AgentType
from wieldy.tools.toolset import CHARS_PER_TOKEN, estimate_tokens, is_mcp_tool

if TYPE_CHECKING:
    from wieldy.agent.loop import Prompt
    from wieldy.agent.session import Session
    from wieldy.core.tool import Tool
    from wieldy.mcp.connection import Connection
    from wieldy.mcp.manager import McpServers, ServerReport
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
        self.session: Session  # set by whoever opens it
        self.initialized = initialize is not None
        self.problems: list[str] = []
        fields = initialize or {}
        self.hooks = tuple(self._parse_hooks(fields.get("hooks")))
        self.agents = parse_agents(fields.get("agents"))
        servers = fields.get("sdkMcpServers")
        self.servers = {str(name): {"type": "sdk", "name": name} for name in servers or ()}

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
            return Answer(False, f"the question could not be asked: {failure}")

    async def interpret(self, reply: Fields, question: Question) -> Answer:
        """Interpret the answer to a question, and apply the permissions that it changes. Raises `ControlFailure`."""
        is_allowed = reply.get("behavior") == "allow"
        if is_allowed and not isinstance(reply.get("updatedInput"), Mapping | None):
            raise ControlFailure("updatedInput is not an object, so the answer counts as no")
        remember = await self._apply_updates(reply.get("updatedPermissions"), is_allowed=is_allowed)
        if is_allowed:
            updated = reply.get("updatedInput")
            is_changed = isinstance(updated, Mapping) and updated != question.plan.input
            return Answer(True, remember=remember, updated_input=updated if is_changed else None)
        if reply.get("interrupt") is True:
            # Once the answer is in: aborting now would cancel this very question.
            asyncio.get_running_loop().call_soon(self.session.abort, "interrupted with the answer to a question")
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
        session, saved = self.session, list[str]()
        if updates is not None and not isinstance(updates, list):
            raise ControlFailure("updatedPermissions is not a list")
        changes: list[Callable[[], Awaitable[object]]] = []
        for update in updates or ():
            match update:
                case {"type": "setMode", "mode": str(mode)}:
                    require_mode(session, mode)
                    changes.append(partial(_at_once, set_mode, session, mode))
                case {"type": "addRules", "behavior": "allow" | "deny" | "ask" as behavior, "rules": list(rules)} if (
                    is_allowed or behavior != "allow"
                ):
                    texts, destination = [rule_text(rule) for rule in rules], update.get("destination", "session")
                    _parse_rules(texts, behavior)
                    file = self._settings_file(destination)
                    if behavior != "allow":
                        changes.append(partial(self._restrict, behavior, texts, file))
                    elif file is None:
                        changes.append(partial(_at_once, self._grant, texts))
                    else:
                        saved += texts
                case _:
                    shown = json.dumps(update, default=str)[:200]
                    raise ControlFailure(f"updatedPermissions cannot be applied, so the answer counts as no: {shown}")
        for change in changes:
            await change()
        return tuple(saved)

    async def _restrict(self, behavior: Behavior, texts: list[str], file: Path | None) -> None:
        """Deny, or ask about, what rules cover: at once, and in the settings if they are to stay."""
        from wieldy.policy.settings.store import add_rules

        self.session.box.policy.grant(*_parse_rules(texts, behavior))
        if file is not None:
            await in_thread(add_rules, file, behavior, texts)

    def _settings_file(self, destination: object) -> Path | None:
        """The settings that a destination names; None for the session. Raises `ControlFailure`."""
        from wieldy.policy.settings.store import settings_files

        if destination == "session":
            return None
        box = self.session.box
        for scope, file in settings_files(box.policy.paths.project, box.workspace.env).items():
            if destination == f"{scope}Settings":
                return file
        raise ControlFailure(f"updatedPermissions names {destination!r}, which is no destination for rules")

    def _grant(self, rules: list[str]) -> None:
        from wieldy.policy.permissions.rules import select_savable_rules

        policy = self.session.box.policy
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
        self.host = host

    async def ask(self, question: Question) -> Answer:
        plan = question.plan
        try:
            reply = await self._call({"tool_name": plan.tool.name, "input": plan.input, "tool_use_id": plan.call.id})
            return await self.host.interpret(reply, question)
        except WieldyError as failure:
            return Answer(False, f"the question could not be asked: {failure}")

    async def _call(self, arguments: dict[str, Any]) -> dict[str, Any]:
        from wieldy.mcp.tools import ServerTool

        box = self.host.session.box
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


OpenSession: TypeAlias = "Callable[[ControlHost], Session]"

SERVER_WAIT_SECONDS = 30.0
# A prompt runs after those that were sent before it.
ORDERED_REQUESTS = ("interrupt", "set_permission_mode", "set_model")
# The states of a connection → those of the control protocol.
SERVER_STATES = {"ready": "connected", "connecting": "pending", "needs approval": "needs-auth", "closed": "disabled"}


class MalformedInput(WieldyError):
    """A line of the input is no message."""


class ControlProtocol:
    """Reads the messages of a host and answers its requests.

    `open_session` makes the session once the first message is there: an `initialize` request brings hooks and agents.
    With `replay_prompts` each prompt is written back with its id, with `report_states` the host hears when nothing is left to do.
    """

    def __init__(
        self,
        lines: AsyncIterator[bytes],
        write: Callable[[str], object],
        open_session: OpenSession,
        *,
        replay_prompts: bool = False,
        report_states: bool = False,
    ) -> None:
        self._lines = lines
        self._channel = ControlChannel(write)
        self._open_session = open_session
        self._replay_prompts = replay_prompts
        self._report_states = report_states
        self._state = "idle"
        # Each with the requests that came before it and must be carried out first.
        self._prompts: asyncio.Queue[tuple[Fields | Exception | None, list[asyncio.Task[None]]]] = asyncio.Queue()
        loop = asyncio.get_running_loop()
        self._first_message: asyncio.Future[Fields | None] = loop.create_future()
        self._session: asyncio.Future[Session] = loop.create_future()
        self._reader: asyncio.Task[None] | None = None
        self._handlers: dict[str, asyncio.Task[None]] = {}
        self._ordered: list[asyncio.Task[None]] = []
        self.is_hosted = False
        self.prompt_numbers: dict[str, int] = {}

    async def open(self) -> Session:
        """Wait for the first message and make the session. Raises `WieldyError`."""
        self._reader = asyncio.get_running_loop().create_task(self._read())
        first = await self._first_message
        request = first["request"] if first is not None else None
        try:
            host = ControlHost(self._channel, request)
            session = self._open_session(host)
        except (WieldyError, ValueError) as error:
            if first is not None:
                self._channel.respond_error(first.get("request_id"), str(error))
            raise error if isinstance(error, WieldyError) else ControlFailure(str(error)) from None
        host.session = session
        self.is_hosted = host.initialized
        if first is not None:
            self._channel.respond(first.get("request_id"), _describe(session, host))
        self._session.set_result(session)
        return session

    async def prompts(self) -> AsyncIterator[Prompt]:
        """The prompts in order; the next one is asked for when the last one has run. Raises `MalformedInput`."""
        while True:
            if self._prompts.empty():
                self._change_state("idle")
            message, earlier = await self._prompts.get()
            if message is None:
                return
            if isinstance(message, Exception):
                raise message
            if earlier:
                await asyncio.wait(earlier)
            self._change_state("running")
            await self._wait_for_servers()
            self._number(message)
            yield message["message"]["content"]

    async def aclose(self) -> None:
        self._channel.close()
        tasks = [task for task in (self._reader, *self._handlers.values()) if task is not None]
        for task in tasks:
            task.cancel()
        for task in tasks:
            with suppress(asyncio.CancelledError):
                await task

    async def _read(self) -> None:
        try:
            async for line in self._lines:
                if line.strip():
                    self._receive(_parse(line))
        except MalformedInput as error:
            self._prompts.put_nowait((error, []))
        finally:
            self._begin(None)
            self._prompts.put_nowait((None, []))
            self._channel.close()

    def _receive(self, message: Fields) -> None:
        match message["type"]:
            case "user":
                self._begin(None)
                self._prompts.put_nowait((message, list(self._ordered)))
                self._ordered.clear()
            case "control_request":
                if not self._begin(message if message["request"].get("subtype") == "initialize" else None):
                    task = asyncio.get_running_loop().create_task(self._answer(message))
                    self._handlers[str(message.get("request_id"))] = task
                    if message["request"].get("subtype") in ORDERED_REQUESTS:
                        self._ordered.append(task)
            case "control_response":
                self._channel.receive(message["response"])
            case "control_cancel_request":
                if (handler := self._handlers.get(str(message.get("request_id")))) is not None:
                    handler.cancel()

    def _begin(self, initialize: Fields | None) -> bool:
        """Let the session be made; whether this was the message that it waited for."""
        if self._first_message.done():
            return False
        self._first_message.set_result(initialize)
        return initialize is not None

    async def _answer(self, message: Fields) -> None:
        id, request = message.get("request_id"), message["request"]
        try:
            session = await asyncio.shield(self._session)
            handler = getattr(self, f"_on_{request.get('subtype')}", None)
            if handler is None:
                raise ControlFailure(f"wieldy knows no control request `{request.get('subtype')}`")
            self._channel.respond(id, await handler(session, request))
        except WieldyError as error:
            self._channel.respond_error(id, str(error))
        except Exception as error:  # a host must not wait for ever because of a mistake of ours
            log.exception("control request failed")
            self._channel.respond_error(id, f"{type(error).__name__}: {error}")
        finally:
            self._handlers.pop(str(id), None)

    async def _wait_for_servers(self) -> None:
        """Wait for the MCP servers that the host runs itself: its first prompt counts on their tools."""
        if self.is_hosted and (servers := _servers(self._session.result())) is not None:
            for name, connection in servers.connections.items():
                if connection.config.kind == "sdk":
                    await servers.wait_settled(SERVER_WAIT_SECONDS, name)

    def _number(self, message: Fields) -> None:
        """Note which prompt of the session this will be, and write it back with its id where the host wants that."""
        session, id = self._session.result(), str(message.get("uuid") or uuid4())
        self.prompt_numbers[id] = len(session.conversation.prompts) + 1
        if self._replay_prompts:
            line = {"parent_tool_use_id": None, **message, "session_id": session.id, "uuid": id, "isReplay": True}
            self._channel.write(line)

    def _change_state(self, state: str) -> None:
        if self._report_states and state != self._state and self._session.done():
            session = self._session.result().id
            self._channel.write(
                {
                    "type": "system",
                    "subtype": "session_state_changed",
                    "state": state,
                    "sdk_host_only": True,
                    "session_id": session,
                    "uuid": str(uuid4()),
                }
            )
        self._state = state

    # The requests of a host, by their names

    async def _on_initialize(self, session: Session, request: Fields) -> Fields:
        raise ControlFailure("the session has begun; `initialize` comes first, and once")

    async def _on_interrupt(self, session: Session, request: Fields) -> Fields:
        if session.running:
            session.abort("interrupted by the user")
        return {}

    async def _on_set_permission_mode(self, session: Session, request: Fields) -> Fields:
        return {"mode": set_mode(session, str(request.get("mode")))}

    async def _on_set_model(self, session: Session, request: Fields) -> Fields:
        model = request.get("model")
        session.set_model(None if model in (None, "default") else str(model))
        return {"model": session.model_name}

    async def _on_get_context_usage(self, session: Session, request: Fields) -> Fields:
        """Estimate the tokens of system prompt, tools and messages; the total is the provider's count where there is one."""
        provider, conversation = session.provider, session.conversation
        offering = await session.box.offering(provider.context_window)
        system = sum(map(len, session.system_prompt)) // CHARS_PER_TOKEN
        own = [tool for tool in offering.tools if not is_mcp_tool(tool)]
        servers = [tool for tool in offering.tools if is_mcp_tool(tool)]
        tools, mcp_tools = sum(map(estimate_tokens, own)), sum(map(estimate_tokens, servers))
        messages = sum(len(str(message.content)) for message in conversation.messages) // CHARS_PER_TOKEN
        if conversation.tokens:
            messages = max(conversation.tokens - system - tools - mcp_tools, 0)
        total, window = system + tools + mcp_tools + messages, provider.context_window
        counts = {"System prompt": system, "System tools": tools, "MCP tools": mcp_tools, "Messages": messages}
        categories = [{"name": name, "tokens": tokens, "color": ""} for name, tokens in counts.items() if tokens]
        return {
            "categories": [*categories, {"name": "Free space", "tokens": max(window - total, 0), "color": ""}],
            "totalTokens": total,
            "maxTokens": window,
            "rawMaxTokens": window,
            "percentage": round(100 * total / window, 1),
            "model": provider.model,
            "isAutoCompactEnabled": True,
            "autoCompactThreshold": int(COMPACT_AT * window),
            "memoryFiles": [],
            "mcpTools": [_tool(tool, "serverName", tool.name.split("__")[1]) for tool in servers],
            "systemTools": [_tool(tool) for tool in own],
            "agents": [],
            "gridRows": [],
        }

    async def _on_rewind_files(self, session: Session, request: Fields) -> Fields:
        """Bring files back to their state before a prompt; the conversation stays."""
        number = self.prompt_numbers.get(str(request.get("user_message_id")))
        if number is None:
            raise ControlFailure("no prompt of this connection has that id; send prompts with a `uuid`")
        result = await session.rewind.restore(number, conversation=False)
        return {
            "canRewind": True,
            "filesChanged": [] if result.files is None else [file.path for file in result.files.files],
        }

    async def _on_stop_task(self, session: Session, request: Fields) -> Fields:
        """End a subagent or a background shell."""
        id, services = str(request.get("task_id")), session.box.workspace.services
        if (agent := services.subagent_registry.find(id)) is not None:
            await agent.stop("stopped by the user")
        else:
            await services.background_shells.kill(id)
        return {}

    async def _on_mcp_status(self, session: Session, request: Fields) -> Fields:
        servers = _servers(session)
        return {"mcpServers": list(map(_server_status, servers.reports().values())) if servers else []}

    async def _on_mcp_reconnect(self, session: Session, request: Fields) -> Fields:
        connection = _connection(session, request)
        connection.reconnect(sign_in=True)
        await connection.wait_settled()
        if connection.state.name == "failed":
            raise ControlFailure(f"the MCP server {connection.config.name} is not available: {connection.state.why}")
        return {}

    async def _on_mcp_toggle(self, session: Session, request: Fields) -> Fields:
        name, servers = str(request.get("serverName")), _servers(session)
        try:
            if servers is None:
                raise KeyError(name)
            servers.enable(name, request.get("enabled") is True)
        except KeyError:
            raise ControlFailure(f"there is no MCP server `{name}`") from None
        return {}


def _parse(line: bytes) -> dict[str, Any]:
    try:
        message = json.loads(line)
        kind = message["type"]
        if kind == "user" and not isinstance(message["message"]["content"], str | list):
            raise TypeError
        if kind in ("control_request", "control_response"):
            body = message["request" if kind == "control_request" else "response"]
            if not isinstance(body, dict):
                raise TypeError
    except (ValueError, KeyError, TypeError, RecursionError):
        shown = line[:80].decode("utf-8", "replace")
        raise MalformedInput(f"stdin holds a line that is not a user message: {shown!r}") from None
    return message  # type: ignore[no-any-return]


def _describe(session: Session, host: ControlHost) -> dict[str, Any]:
    """The response to `initialize`."""
    agents = session.box.workspace.services.agent_types.definitions.values()
    return {
        "commands": [],
        "agents": [{"name": agent.name, "description": agent.description} for agent in agents],
        "output_style": "default",
        "available_output_styles": ["default"],
        "models": [{"value": session.model_name, "displayName": session.model_name, "description": ""}],
        "account": {},
        "pid": os.getpid(),
        "hook_on_failure_supported": True,
        "hooks_applied": True,
        "warnings": list(host.problems),
    }


def _servers(session: Session) -> McpServers | None:
    return session.box.workspace.services.mcp_servers if session.box.settings.get("mcpServers") else None


def _connection(session: Session, request: Fields) -> Connection:
    servers = _servers(session)
    name = str(request.get("serverName"))
    if servers is None or name not in servers.connections:
        raise ControlFailure(f"there is no MCP server `{name}`")
    return servers.connections[name]


def _server_status(report: ServerReport) -> dict[str, Any]:
    status: dict[str, Any] = {"name": report.name, "status": SERVER_STATES.get(report.state, report.state)}
    if report.state == "failed":
        status["error"] = report.problem
    if report.kind:
        url = {} if report.kind in ("stdio", "sdk") else {"url": report.where}
        status["config"] = {"type": report.kind, "name": report.name, **url}
        status["tools"] = [
            {"name": tool.definition.name, "annotations": {"readOnly": tool.read_only}}
            for tool in report.tools.values()
        ]
    return status


def _tool(tool: Tool, *more: str) -> dict[str, Any]:
    extra = {more[0]: more[1], "isLoaded": True} if more else {}
    return {"name": tool.name, "tokens": estimate_tokens(tool), **extra}
