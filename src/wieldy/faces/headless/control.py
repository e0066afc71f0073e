"""The control protocol of stream-json: prompts and requests of a host. docs/stream-json.md describes it.

Requests are answered while a prompt runs. Prompts run one after the other.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeAlias
from uuid import uuid4

from wieldy.agent.loop import COMPACT_AT
from wieldy.core.errors import WieldyError
from wieldy.core.logs import log
from wieldy.faces.headless.host import ControlChannel, ControlFailure, ControlHost, Fields, set_mode
from wieldy.tools.toolset import CHARS_PER_TOKEN, estimate_tokens, is_mcp_tool

if TYPE_CHECKING:
    from wieldy.agent.loop import Prompt
    from wieldy.agent.session import Session
    from wieldy.core.tool import Tool
    from wieldy.mcp.connection import Connection
    from wieldy.mcp.manager import McpServers

OpenSession: TypeAlias = "Callable[[ControlHost], Session]"
Handler: TypeAlias = "Callable[[ControlProtocol, Session, Fields], Awaitable[Fields]]"

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
        self._first_message: asyncio.Future[Fields | None] | None = None
        self._session: asyncio.Future[Session] | None = None
        self._reader: asyncio.Task[None] | None = None
        self._handlers: dict[str, asyncio.Task[None]] = {}
        self._ordered: list[asyncio.Task[None]] = []
        self.is_hosted = False
        self.prompt_numbers: dict[str, int] = {}

    async def open(self) -> Session:
        """Wait for the first message and make the session. Raises `WieldyError`."""
        loop = asyncio.get_running_loop()
        self._first_message, self._session = loop.create_future(), loop.create_future()
        self._reader = loop.create_task(self._read())
        first = await self._first_message
        request = first["request"] if first is not None else None
        try:
            host = ControlHost(self._channel, request)
            session = self._open_session(host)
        except (WieldyError, ValueError) as error:
            if first is not None:
                self._channel.respond_error(first.get("request_id"), str(error))
            raise error if isinstance(error, WieldyError) else ControlFailure(str(error)) from None
        host.attach(session)
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
        """Stop reading and answering."""
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
        assert self._first_message is not None
        if self._first_message.done():
            return False
        self._first_message.set_result(initialize)
        return initialize is not None

    async def _answer(self, message: Fields) -> None:
        assert self._session is not None
        id, request = message.get("request_id"), message["request"]
        try:
            session = await asyncio.shield(self._session)
            handler = _HANDLERS.get(str(request.get("subtype")))
            if handler is None:
                raise ControlFailure(f"wieldy knows no control request `{request.get('subtype')}`")
            self._channel.respond(id, await handler(self, session, request))
        except WieldyError as error:
            self._channel.respond_error(id, str(error))
        except Exception as error:  # a host must not wait for ever because of a mistake of ours
            log.exception("control request failed")
            self._channel.respond_error(id, f"{type(error).__name__}: {error}")
        finally:
            self._handlers.pop(str(id), None)

    async def _wait_for_servers(self) -> None:
        """Wait for the MCP servers that the host runs itself: its first prompt counts on their tools."""
        assert self._session is not None
        if self.is_hosted and (servers := _servers(self._session.result())) is not None:
            for name, connection in servers.connections.items():
                if connection.config.kind == "sdk":
                    await servers.wait_settled(SERVER_WAIT_SECONDS, name)

    def _number(self, message: Fields) -> None:
        """Note which prompt of the session this will be, and write it back with its id where the host wants that."""
        assert self._session is not None
        session, id = self._session.result(), str(message.get("uuid") or uuid4())
        self.prompt_numbers[id] = len(session.conversation.prompts) + 1
        if self._replay_prompts:
            line = {"parent_tool_use_id": None, **message, "session_id": session.id, "uuid": id, "isReplay": True}
            self._channel.write(line)

    def _change_state(self, state: str) -> None:
        if self._report_states and state != self._state and self._session is not None:
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


async def _initialize(protocol: ControlProtocol, session: Session, request: Fields) -> Fields:
    raise ControlFailure("the session has begun; `initialize` comes first, and once")


async def _interrupt(protocol: ControlProtocol, session: Session, request: Fields) -> Fields:
    if session.running:
        session.abort("interrupted by the user")
    return {}


async def _set_permission_mode(protocol: ControlProtocol, session: Session, request: Fields) -> Fields:
    return {"mode": set_mode(session, str(request.get("mode")))}


async def _set_model(protocol: ControlProtocol, session: Session, request: Fields) -> Fields:
    model = request.get("model")
    session.set_model(None if model in (None, "default") else str(model))
    return {"model": session.model_name}


async def _get_context_usage(protocol: ControlProtocol, session: Session, request: Fields) -> Fields:
    return await context_usage(session)


async def _stop_task(protocol: ControlProtocol, session: Session, request: Fields) -> Fields:
    """End a subagent or a background shell."""
    id, services = str(request.get("task_id")), session.box.workspace.services
    if (agent := services.subagent_registry.find(id)) is not None:
        await agent.stop("stopped by the user")
    else:
        await services.background_shells.kill(id)
    return {}


async def _rewind_files(protocol: ControlProtocol, session: Session, request: Fields) -> Fields:
    """Bring files back to their state before a prompt; the conversation stays."""
    number = protocol.prompt_numbers.get(str(request.get("user_message_id")))
    if number is None:
        raise ControlFailure("no prompt of this connection has that id; send prompts with a `uuid`")
    result = await session.rewind.restore(number, conversation=False)
    return {
        "canRewind": True,
        "filesChanged": [] if result.files is None else [file.path for file in result.files.files],
    }


async def _mcp_status(protocol: ControlProtocol, session: Session, request: Fields) -> Fields:
    servers = _servers(session)
    return {"mcpServers": [_server_status(servers, name) for name in servers.states()] if servers else []}


async def _mcp_reconnect(protocol: ControlProtocol, session: Session, request: Fields) -> Fields:
    connection = _connection(session, request)
    connection.reconnect()
    await connection.wait_settled()
    if connection.state.name == "failed":
        raise ControlFailure(f"the MCP server {connection.config.name} is not available: {connection.state.why}")
    return {}


async def _mcp_toggle(protocol: ControlProtocol, session: Session, request: Fields) -> Fields:
    name, servers = str(request.get("serverName")), _servers(session)
    try:
        if servers is None:
            raise KeyError(name)
        servers.enable(name, request.get("enabled") is True)
    except KeyError:
        raise ControlFailure(f"there is no MCP server `{name}`") from None
    return {}


def _servers(session: Session) -> McpServers | None:
    return session.box.workspace.services.mcp_servers if session.box.settings.get("mcpServers") else None


def _connection(session: Session, request: Fields) -> Connection:
    servers = _servers(session)
    name = str(request.get("serverName"))
    if servers is None or name not in servers.connections:
        raise ControlFailure(f"there is no MCP server `{name}`")
    return servers.connections[name]


def _server_status(servers: McpServers, name: str) -> dict[str, Any]:
    state = servers.states()[name]
    status: dict[str, Any] = {"name": name, "status": SERVER_STATES.get(state.name, state.name)}
    if state.name == "failed":
        status["error"] = state.why
    if (server := servers.servers.get(name)) is not None:
        config = server.connection.config
        status["config"] = {"type": config.kind, "name": name, **({"url": config.url} if config.url else {})}
        status["tools"] = [
            {"name": tool.definition.name, "annotations": {"readOnly": tool.read_only}}
            for tool in server.tools.values()
        ]
    return status


_HANDLERS: Mapping[Any, Handler] = {
    "initialize": _initialize,
    "interrupt": _interrupt,
    "set_permission_mode": _set_permission_mode,
    "set_model": _set_model,
    "get_context_usage": _get_context_usage,
    "rewind_files": _rewind_files,
    "stop_task": _stop_task,
    "mcp_status": _mcp_status,
    "mcp_reconnect": _mcp_reconnect,
    "mcp_toggle": _mcp_toggle,
}


async def context_usage(session: Session) -> dict[str, Any]:
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


def _tool(tool: Tool, *more: str) -> dict[str, Any]:
    extra = {more[0]: more[1], "isLoaded": True} if more else {}
    return {"name": tool.name, "tokens": estimate_tokens(tool), **extra}
