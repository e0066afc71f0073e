"""Claude Agent SDK: the tools of a toolbox as an MCP server of its, and a whole session in place of its program."""

from __future__ import annotations

import asyncio
import inspect
import json
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from claude_agent_sdk import CLIConnectionError, HookMatcher, Transport

from wieldy.agent.session import Session
from wieldy.core.call import ToolCall
from wieldy.core.errors import WieldyError
from wieldy.engine.framework_calls import ApprovalNeeded, FrameworkCalls
from wieldy.engine.mcp_tools import convert_result
from wieldy.engine.mcp_tools import list_tools as list_box_tools
from wieldy.engine.services import NoApprover
from wieldy.engine.toolbox import ToolboxOptions
from wieldy.engine.workspace_services import HostServices
from wieldy.faces.headless import converse
from wieldy.faces.headless.control import ControlHost, ControlProtocol

if TYPE_CHECKING:
    from wieldy.engine.toolbox import Toolbox

CLOSE_SECONDS = 10.0
MAX_ASKED = 100


class InProcessTransport(Transport):
    """Runs `claude_agent_sdk.query()` and `ClaudeSDKClient` on a session in this process, with any model.

        transport = InProcessTransport(root=".", model="openai/gpt-5.5")
        async for message in query(prompt="…", options=options, transport=transport): …

    The SDK gives a transport no more than its callbacks: hooks, agents and `can_use_tool` come from `ClaudeAgentOptions`, all
    else from the options of `Session` given here. `mcp_servers` is that of `ClaudeAgentOptions`, or the names of its SDK MCP
    servers. A transport serves one connection.
    """

    def __init__(
        self,
        root: str | os.PathLike[str] = ".",
        *,
        model: Any = None,
        mcp_servers: Any = (),
        include_partial_messages: bool = False,
        replay_user_messages: bool = False,
        **session_options: Any,
    ) -> None:
        known = {*inspect.signature(Session).parameters, *ToolboxOptions.__annotations__}
        if unknown := [name for name in session_options if name not in known]:
            raise TypeError(f"a session has no option `{unknown[0]}`")
        self._root = root
        self._model = model
        self._servers = _server_settings(mcp_servers)
        self._partial = include_partial_messages
        self._replay = replay_user_messages
        self._options = session_options
        self._input: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._output: asyncio.Queue[dict[str, Any] | Exception | None] = asyncio.Queue()
        self._task: asyncio.Task[None] | None = None
        self._is_open = False
        self.session: Session | None = None

    async def connect(self) -> None:
        """Start the session, which waits for its first message."""
        if self._task is None:
            self._is_open = True
            self._task = asyncio.get_running_loop().create_task(self._serve())

    async def write(self, data: str) -> None:
        if not self._is_open:
            raise CLIConnectionError("this transport is not connected")
        self._input.put_nowait(data.encode())

    async def read_messages(self) -> AsyncIterator[dict[str, Any]]:
        """Yield the messages of the session until it ends. Raises what ended it too early."""
        while (message := await self._output.get()) is not None:
            if isinstance(message, Exception):
                raise message
            yield message

    async def end_input(self) -> None:
        """Send no more prompts: the session ends after the last one."""
        self._input.put_nowait(None)

    def is_ready(self) -> bool:
        return self._is_open

    async def close(self) -> None:
        """Interrupt what runs and close the session."""
        self._is_open = False
        self._input.put_nowait(None)
        if self._task is None:
            return
        if self.session is not None:
            self.session.abort("the connection was closed")
        _, running = await asyncio.wait((self._task,), timeout=CLOSE_SECONDS)
        for task in running:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def _serve(self) -> None:
        protocol = ControlProtocol(self._lines(), self._write, self._open, replay_prompts=self._replay)
        try:
            session = await protocol.open()
            async with session:
                await converse(
                    session, protocol.prompts(), "stream-json", self._write, partial=self._partial, hosted=True
                )
        except WieldyError as error:
            self._output.put_nowait(CLIConnectionError(str(error)))
        finally:
            await protocol.aclose()
            self._is_open = False
            self._output.put_nowait(None)

    def _open(self, host: ControlHost) -> Session:
        options = dict(self._options)
        settings = options.pop("settings", None)
        servers = {**self._servers, **host.servers}
        if servers:
            settings = {**(settings or {}), "mcpServers": {**(settings or {}).get("mcpServers", {}), **servers}}
            options.setdefault("load_settings", self._options.get("settings") is None)
        options.setdefault("ask", host.ask)
        self.session = Session(
            self._root,
            model=self._model,
            settings=settings,
            hooks=(*options.pop("hooks", ()), *host.hooks),
            agents=(*options.pop("agents", ()), *host.agents),
            host=HostServices(mcp_relay=host.relay, question_handler=host),
            **options,
        )
        return self.session

    async def _lines(self) -> AsyncIterator[bytes]:
        rest = b""
        while (data := await self._input.get()) is not None:
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                yield line

    def _write(self, text: str) -> None:
        self._output.put_nowait(json.loads(text))


def _server_settings(servers: Any) -> dict[str, Any]:
    """MCP servers as settings; an SDK server without its instance, which stays on the SDK's side."""
    if not isinstance(servers, Mapping):
        return {str(name): {"type": "sdk", "name": name} for name in servers}
    return {name: {key: value for key, value in each.items() if key != "instance"} for name, each in servers.items()}


class ClaudeSdkServer(dict[str, Any]):
    """An SDK MCP server for `ClaudeAgentOptions(mcp_servers={"wieldy": …})`.

    Pass `hooks` on, too: they tell the SDK's agent what is denied, and what its own permission question must be asked about.
    Without them, what needs permission is an error result.
    """

    def __init__(self, box: Toolbox, name: str) -> None:
        self.box = box
        self._prefix = f"mcp__{name}__"
        self._calls = FrameworkCalls(box)
        self._asked: list[tuple[str, dict[str, Any]]] = []
        super().__init__(type="sdk", name=name, instance=self._make_server(name))

    @property
    def hooks(self) -> dict[str, list[HookMatcher]]:
        """The value for `ClaudeAgentOptions(hooks=…)`."""
        return {"PreToolUse": [HookMatcher(matcher=f"{self._prefix}.*", hooks=[self._judge], on_failure="block")]}

    def _make_server(self, name: str) -> Any:
        import mcp_types as types
        from mcp.server.lowlevel import Server

        from wieldy import __version__

        async def list_tools(ctx: Any, params: Any) -> types.ListToolsResult:
            return types.ListToolsResult(tools=await list_box_tools(self.box))

        async def call_tool(ctx: Any, params: types.CallToolRequestParams) -> dict[str, Any]:
            return await self._call(params.name, dict(params.arguments or {}))

        server: Any = Server(name, version=__version__, on_list_tools=list_tools)
        server.add_request_handler("tools/call", types.CallToolRequestParams, call_tool)
        return server

    async def _judge(self, event: Any, call_id: str | None, context: Any) -> Any:
        """A PreToolUse hook: our decision comes before that of the SDK's agent."""
        name, input = str(event["tool_name"]).removeprefix(self._prefix), dict(event["tool_input"])
        output = {"hookEventName": "PreToolUse"}
        try:
            decision = await self.box.explain(name, input)
        except WieldyError:
            return {}  # the call says what is wrong with it
        is_asked_here = decision.behavior == "ask" and not isinstance(self.box.services.person, NoApprover)
        behavior = "allow" if is_asked_here else decision.behavior
        if behavior == "ask":
            self._asked.append((name, input))
            del self._asked[:-MAX_ASKED]
        return {
            "hookSpecificOutput": {
                **output,
                "permissionDecision": behavior,
                "permissionDecisionReason": decision.why,
            }
        }

    async def _call(self, name: str, input: dict[str, Any]) -> dict[str, Any]:
        # A call that the hook wanted a question about comes only if the answer was yes.
        approved = (name, input) in self._asked
        if approved:
            self._asked.remove((name, input))
        outcome = await self._calls.run(None, ToolCall(f"claude_{uuid4().hex}", name, input), approved=approved)
        if isinstance(outcome, ApprovalNeeded):
            rules = "".join(
                f" The user can allow it with the rule `{rule}`." for rule in outcome.decision.suggestions[:1]
            )
            text = f"Permission denied for {name}: {outcome.decision.why}, and nobody was asked.{rules}"
            return {"content": [{"type": "text", "text": text}], "isError": True, "resultType": "complete"}
        return convert_result(outcome)
