"""`wieldy -p`: run a prompt from the command line or stdin without interaction."""

from __future__ import annotations

import argparse
import asyncio
import os
import select
import signal
import stat
import sys
from collections.abc import AsyncIterator, Mapping
from types import FrameType
from typing import TYPE_CHECKING, Any

from wieldy.cli.arguments import add_ignored, command_parser
from wieldy.cli.session_options import (
    UsageError,
    add_session_options,
    answer_schema,
    resumed_session,
    session_arguments,
)
from wieldy.core.console import encode_json, print_error, require_stdout, write, write_json_text
from wieldy.core.errors import WieldyError

if TYPE_CHECKING:
    from wieldy.agent.prompts import Prompt
    from wieldy.agent.session import Session
    from wieldy.faces.headless.control import ControlProtocol, OpenSession
    from wieldy.faces.headless.host import ControlHost
    from wieldy.faces.headless.permission_tool import PermissionTool

MAX_STDIN_BYTES = 10 * 1024 * 1024
STDIN_SECONDS = 3.0  # how long an open pipe may stay silent when a prompt was given
USAGE_ERROR = 2
SIGNAL_EXIT_CODES = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGHUP: 129}

EXAMPLES = """examples:
  wieldy -p "what does this project do?" --model anthropic/claude-sonnet-5-5
  git diff | wieldy -p "review this" --allowed-tools "Read Grep Bash(git log:*)"
  wieldy -p "fix the failing test" --permission-mode acceptEdits --output-format stream-json --max-turns 20

exit codes: 0 done, 1 error, 2 usage, 3 a call was denied, 4 a limit was reached, 130 interrupted, 129 or 143 terminated"""


def main(command: str, argv: list[str]) -> int:
    """Run `wieldy -p`."""
    # Words after `--` are the prompt even if they look like options; parse_intermixed_args does not support that.
    words, prompt_words = (argv[: argv.index("--")], argv[argv.index("--") + 1 :]) if "--" in argv else (argv, [])
    options = _parser().parse_intermixed_args(words)
    for option in options.ignored:
        print_error(f"{option} has no effect here")
    require_stdout()
    try:
        arguments = session_arguments(options)
        options.returns = answer_schema(options.json_schema)
        name = options.permission_prompt_tool
        if name is not None and name != "stdio" and not name.startswith("mcp__"):
            raise UsageError(f"--permission-prompt-tool is stdio or mcp__SERVER__TOOL, not {name}")
        prompt = _prompt(" ".join([*options.prompt, *prompt_words]), options.input_format)
        with SignalHandler() as signals:
            return asyncio.run(_run(options, arguments, prompt, signals))
    except UsageError as error:
        print_error(error)
        return USAGE_ERROR


def _parser() -> argparse.ArgumentParser:
    parser = command_parser(
        "wieldy -p",
        "Run a prompt and print the result. Text on stdin is appended to the prompt.",
        EXAMPLES,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("prompt", nargs="*", metavar="PROMPT", help="what to do")
    add("-p", "--print", action="store_true", help=argparse.SUPPRESS)
    add("--verbose", action="store_true", help=argparse.SUPPRESS)
    add("--output-format", choices=("text", "json", "stream-json"), default="text", help="what to write to stdout")
    add("--input-format", choices=("text", "stream-json"), default="text", help="what to read from stdin")
    add("--include-partial-messages", action="store_true", help="with stream-json: write text deltas as they arrive")
    add_session_options(parser)
    add("--json-schema", metavar="FILE", help="answer with JSON that fits this schema: a file, or its JSON")
    add(
        "--permission-prompt-tool",
        metavar="NAME",
        help="who answers questions: stdio for the control protocol, or mcp__SERVER__TOOL",
    )
    add("--replay-user-messages", action="store_true", help="with stream-json: write each prompt back with its id")
    add("--include-hook-events", action="store_true", help=argparse.SUPPRESS)  # always written
    add_ignored(parser)
    return parser


def _prompt(words: str, input_format: str) -> str:
    if input_format == "stream-json":
        if words:
            raise UsageError("with --input-format stream-json, prompts come on stdin only")
        return ""
    prompt = "\n\n".join(part for part in (words, _read_stdin(bool(words.strip()))) if part.strip())
    if not prompt:
        raise UsageError("there is no prompt: give one after -p, or on stdin")
    return prompt


def _read_stdin(has_prompt: bool) -> str:
    """Read stdin to its end; empty for a terminal, a closed stream, or a silent pipe beside a prompt."""
    try:
        kind = os.fstat(0).st_mode
    except OSError:
        return ""
    if os.isatty(0):
        return ""
    if has_prompt and not stat.S_ISREG(kind) and not select.select([0], [], [], STDIN_SECONDS)[0]:
        print_error("nothing came on stdin; continuing without it (close it with </dev/null)")
        return ""
    data = bytearray()
    while chunk := os.read(0, 1 << 16):
        data += chunk
        if len(data) > MAX_STDIN_BYTES:
            limit = MAX_STDIN_BYTES // 1024 // 1024
            raise UsageError(f"stdin holds more than {limit} MB; put it into a file and name that")
    return data.decode("utf-8", "replace")


async def _run(options: argparse.Namespace, arguments: Mapping[str, Any], prompt: str, signals: SignalHandler) -> int:
    from wieldy.agent.session import Session
    from wieldy.engine.workspace_services import HostServices

    resume = resumed_session(options)
    prompt_tool = options.permission_prompt_tool
    is_asked = prompt_tool == "stdio"

    def open_session(host: ControlHost | None = None) -> Session:
        asked = _permission_tool(prompt_tool, host) if prompt_tool and not is_asked else None
        if host is None:
            session = Session(**arguments, resume=resume, ask=asked.ask if asked is not None else None)
        else:
            for problem in host.problems:
                print_error(problem)
            given = {**arguments, "agents": [*arguments["agents"], *host.agents]}
            session = Session(
                **{**given, "settings": _with_servers(arguments["settings"], host.servers)},
                resume=resume,
                hooks=host.hooks,
                ask=host.ask if is_asked else asked.ask if asked is not None else None,
                host=HostServices(mcp_relay=host.relay, question_handler=host if is_asked else None),
            )
        if asked is not None:
            asked.attach(session)
        session.box.settings.require_rules()
        return session

    protocol: ControlProtocol | None = None
    try:
        if options.input_format == "stream-json":
            protocol = _control_protocol(options, open_session)
            session = await protocol.open()
        else:
            session = open_session()
    except WieldyError as failure:
        if options.output_format != "text":
            result = {"type": "result", "subtype": "error_during_execution", "is_error": True, "errors": [str(failure)]}
            write_json_text(encode_json(result) + "\n")
        raise
    try:
        async with session:
            signals.interrupt_session(session)
            _report_problems(session)
            code = await _converse(session, options, prompt, protocol)
    except asyncio.CancelledError:
        if signals.exit_code is None:
            raise
        code = signals.exit_code
    finally:
        if protocol is not None:
            await protocol.aclose()
    return signals.exit_code or code


def _permission_tool(name: str, host: ControlHost | None) -> PermissionTool:
    from wieldy.faces.headless.control_channel import ControlChannel
    from wieldy.faces.headless.host import ControlHost
    from wieldy.faces.headless.permission_tool import PermissionTool

    return PermissionTool(name, host or ControlHost(ControlChannel(lambda text: None), None))


def _with_servers(settings: Mapping[str, Any], servers: Mapping[str, Any]) -> Mapping[str, Any]:
    return {**settings, "mcpServers": {**settings.get("mcpServers", {}), **servers}} if servers else settings


def _report_problems(session: Session) -> None:
    settings = session.box.settings
    for problem in (*settings.errors, *settings.warnings, *session.box.hook_problems):
        print_error(problem)
    if (default := session.default_model) is not None:
        print_error(f"the model is {default.name}, because {default.variable} is set; --model names another")


async def _converse(
    session: Session, options: argparse.Namespace, prompt: str, protocol: ControlProtocol | None
) -> int:
    from wieldy.faces.headless import converse

    async def prompts() -> AsyncIterator[Prompt]:
        if protocol is None:
            yield prompt
            return
        try:
            async for each in protocol.prompts():
                yield each
        except WieldyError as error:
            raise UsageError(str(error)) from None

    is_hosted = protocol is not None and protocol.is_hosted
    partial = options.include_partial_messages
    output = _write_text if options.output_format == "text" else write_json_text
    return await converse(
        session,
        prompts(),
        options.output_format,
        output,
        partial=partial,
        hosted=is_hosted,
        returns=options.returns,
    )


def _control_protocol(options: argparse.Namespace, open_session: OpenSession) -> ControlProtocol:
    from wieldy.faces.headless.control import ControlProtocol

    return ControlProtocol(
        _stdin_lines(),
        write_json_text if options.output_format == "stream-json" else lambda text: None,
        open_session,
        replay_prompts=options.replay_user_messages,
        report_states=os.environ.get("CLAUDE_CODE_SDK_READS_SESSION_STATE") == "1",
    )


async def _stdin_lines() -> AsyncIterator[bytes]:
    """Yield lines of stdin. Reads the descriptor: a thread that is blocked in `sys.stdin` would hold its lock at exit."""
    from wieldy.core.threads import in_thread

    rest = b""
    while data := await in_thread(os.read, 0, 1 << 16):
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            yield line
    if rest:
        yield rest


def _write_text(text: str) -> None:
    write(text, end="", flush=True)


class SignalHandler:
    """Handles SIGINT, SIGTERM and SIGHUP: the first ends the run in order, a second one ends the process at once.

    `exit_code` is that of the signal that came. Installed before the event loop, so that asyncio adds no handler of its own.
    """

    def __init__(self) -> None:
        self.exit_code: int | None = None
        self._session: Session | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[Any] | None = None
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> SignalHandler:
        for number in SIGNAL_EXIT_CODES:
            if number == signal.SIGHUP and signal.getsignal(number) is signal.SIG_IGN:
                continue  # started by nohup
            self._previous[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(self, *exc: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def interrupt_session(self, session: Session) -> None:
        """From now on abort this session's run, or cancel the current task while it waits between two runs."""
        self._session = session
        self._task = asyncio.current_task()
        self._loop = asyncio.get_running_loop()

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        code = SIGNAL_EXIT_CODES[signal.Signals(number)]
        if self._loop is not None and not self._loop.is_closed():
            name = signal.Signals(number).name
            reason = "interrupted by the user" if number == signal.SIGINT else f"ended by {name}"
            self._loop.call_soon_threadsafe(self._interrupt, code, reason)
        elif number == signal.SIGINT:
            raise KeyboardInterrupt
        else:
            sys.exit(code)

    def _interrupt(self, code: int, reason: str) -> None:
        if self.exit_code is not None:
            os._exit(code)
        self.exit_code = code
        if self._session is not None and self._session.running:
            self._session.abort(reason)
        elif self._task is not None:
            self._task.cancel()
