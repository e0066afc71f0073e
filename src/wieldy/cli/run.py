"""`wieldy`, `wieldy "prompt"` and `wieldy -p`: run a session, interactive or not. Both take the same options of a session."""

from __future__ import annotations

import argparse
import asyncio
import os
import select
import stat
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wieldy.cli.arguments import (
    UsageError,
    add_ignored,
    add_mode,
    add_root,
    amount,
    command_parser,
    count,
    folder,
    is_json,
    new_session_id,
    read_json,
    session_id,
    setting_layers,
    tool_names,
)
from wieldy.cli.signals import SignalHandler
from wieldy.core.console import discard_stdout, encode_json, print_error, require_stdout, write, write_json_text
from wieldy.core.errors import WieldyError
from wieldy.core.text import format_duration

if TYPE_CHECKING:
    from wieldy.agent.loop import Prompt
    from wieldy.agent.session import Session
    from wieldy.core.decision import Behavior
    from wieldy.faces.headless.control import ControlHost, ControlProtocol, OpenSession, PermissionTool
    from wieldy.faces.terminal.app import InlineSession
    from wieldy.faces.terminal.chat import Chat
    from wieldy.faces.terminal.plain import PlainSession
    from wieldy.tools.subagents import AgentType

THINKING_TOKENS = 10_000  # for `--thinking` without a number


def add_session_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that say with which model, rules, folders and servers a session works, and which one is resumed."""
    add = parser.add_argument
    add("--model", metavar="PROVIDER/NAME", help="the model, or script:FILE for a recorded one")
    add("--base-url", metavar="URL", help="the address of the model's API")
    add("--fallback-model", metavar="PROVIDER/NAME", help="the model that takes over while the other is overloaded")
    add("--max-turns", type=count, metavar="N", help="stop after this many model answers")
    add("--max-budget-usd", type=amount, metavar="USD", help="stop when this much is spent")
    add("--tools", type=tool_names, metavar="NAMES", help="the built-in tools to offer: names, default, or none at all")
    add("--allowed-tools", "--allowedTools", action="append", default=[], metavar="RULES", help="run without asking")
    add("--disallowed-tools", "--disallowedTools", action="append", default=[], metavar="RULES", help="never run")
    add_mode(parser, "--permission-mode")
    add("--dangerously-skip-permissions", action="store_true", help="the same as --permission-mode bypassPermissions")
    add("--system-prompt", metavar="TEXT", help="text in place of wieldy's own system prompt")
    add("--system-prompt-file", metavar="FILE", help="the same from a file")
    add("--append-system-prompt", default="", metavar="TEXT", help="text to append to the system prompt")
    add("--add-dir", type=folder, action="append", default=[], metavar="DIR", help="another folder to work in")
    add("--agents", metavar="JSON", help="types of subagents: a JSON object of names and definitions, or a file")
    add("--settings", metavar="FILE", help="a settings file, or its JSON, merged over the others")
    add("--mcp-config", action="append", default=[], metavar="FILE", help="MCP servers as in .mcp.json, or their JSON")
    add_root(parser)
    add("-c", "--continue", dest="resume_last", action="store_true", help="resume the last session of this folder")
    add("-r", "--resume", type=session_id, metavar="ID", help="resume this session")
    add("--fork-session", action="store_true", help="resume a copy of the session")
    add("--session-id", type=new_session_id, metavar="ID", help="the id of a new session (default: a random one)")
    add("--no-session-persistence", action="store_true", help="save no transcript")
    add("--setting-sources", type=setting_layers, metavar="LAYERS", help="settings files to read: user,project,local")
    add("--strict-mcp-config", action="store_true", help="start only the MCP servers of --mcp-config")
    add("--max-thinking-tokens", type=count, metavar="N", help="tokens for thinking")
    add("--thinking", choices=("enabled", "adaptive", "disabled"), help="whether the model thinks before it answers")


def check_session_options(options: argparse.Namespace) -> None:
    """Raise `UsageError` for options that exclude each other."""
    if options.fork_session and not (options.resume or options.resume_last):
        raise UsageError("--fork-session goes with --resume or --continue")
    if options.session_id and (options.resume or options.resume_last) and not options.fork_session:
        raise UsageError("--session-id names a new session; to resume one, leave it out")


def session_arguments(options: argparse.Namespace) -> dict[str, Any]:
    """Return the arguments of `Session` that the options stand for, without the session to resume. Raises `UsageError`."""
    check_session_options(options)
    settings = build_settings(options)
    return {
        "root": options.root,
        "model": options.model,
        "base_url": options.base_url,
        "fallback_model": options.fallback_model,
        "builtins": True if options.tools is None else options.tools,
        "agents": _agents(options.agents),
        "mode": "bypassPermissions" if options.dangerously_skip_permissions else options.permission_mode,
        "settings": settings,
        "settings_file": _settings_file(options),
        "load_settings": True if options.setting_sources is None else options.setting_sources,
        "max_turns": options.max_turns,
        "max_cost": options.max_budget_usd,
        "thinking_budget": _thinking_budget(options),
        "append_system": options.append_system_prompt,
        "system_prompt": _system_prompt(options),
        "fork": options.fork_session,
        "session_id": options.session_id,
        "persist": not options.no_session_persistence,
        "servers": tuple(settings.get("mcpServers") or ()) if options.strict_mcp_config else True,
    }


def _agents(source: str | None) -> list[AgentType]:
    if source is None:
        return []
    from wieldy.faces.headless.control import parse_agents

    try:
        return parse_agents(read_json(source, "agents"))
    except WieldyError as error:
        raise UsageError(str(error)) from None


def resumed_session(options: argparse.Namespace) -> str | None:
    """Return the id of the session to resume, if any. Raises `SessionError` where this folder has none."""
    from wieldy.agent.store import last_session

    if options.resume:
        named: str = options.resume
        return named
    return last_session(options.root) if options.resume_last else None


def build_settings(options: argparse.Namespace) -> dict[str, Any]:
    """Return the settings that the options stand for. Raises `UsageError`."""
    inline = options.settings and _is_inline(options.settings)
    settings = read_json(options.settings, "settings") if inline else {}
    permissions = dict(settings.get("permissions") or {})
    for name, values in (
        ("allow", _split_rules(options.allowed_tools, "allow")),
        ("deny", _split_rules(options.disallowed_tools, "deny")),
        ("additionalDirectories", options.add_dir),
    ):
        if values:
            permissions[name] = [*permissions.get(name, ()), *values]
    servers = dict(settings.get("mcpServers") or {})
    for source in options.mcp_config:
        servers.update(read_json(source, "MCP servers").get("mcpServers") or {})
    return {
        **settings,
        **({"permissions": permissions} if permissions else {}),
        **({"mcpServers": servers} if servers else {}),
    }


def _settings_file(options: argparse.Namespace) -> Path | None:
    if not options.settings or _is_inline(options.settings):
        return None
    from wieldy.policy.settings.sources import load_named_file

    file = Path(options.settings).absolute()
    if (problem := load_named_file(file).error) is not None:
        raise UsageError(f"the settings cannot be read: {problem}")
    return file


def _is_inline(source: str) -> bool:
    """Return whether settings are JSON text or come through a pipe, so that no file can be watched."""
    return is_json(source) or (os.path.exists(source) and not os.path.isfile(source))


def answer_schema(source: str | None) -> dict[str, Any] | None:
    """Return the JSON Schema that answers must fit, from a file or its JSON. Raises `UsageError`."""
    if source is None:
        return None
    from wieldy.agent.runs import AnswerType

    schema = read_json(source, "schema of the answer")
    try:
        AnswerType(schema)
    except ValueError as error:
        raise UsageError(str(error)) from None
    return schema


def _split_rules(words: list[str], behavior: Behavior) -> list[str]:
    """Split rules at commas and blanks outside parentheses, and check them."""
    if not words:
        return []
    from wieldy.policy.permissions.rules import RuleError, parse, split_list

    rules = split_list(",".join(words))
    try:
        for rule in rules:
            parse(rule, behavior)
    except RuleError as problem:
        raise UsageError(str(problem)) from None
    return rules


def _system_prompt(options: argparse.Namespace) -> str | None:
    if options.system_prompt_file is None:
        text: str | None = options.system_prompt
        return text
    try:
        return Path(options.system_prompt_file).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise UsageError(f"the system prompt {options.system_prompt_file} cannot be read: {reason}") from None


def _thinking_budget(options: argparse.Namespace) -> int | None:
    if options.thinking == "disabled":
        return None
    budget: int | None = options.max_thinking_tokens
    return budget or (THINKING_TOKENS if options.thinking else None)


MAX_STDIN_BYTES = 10 * 1024 * 1024
STDIN_SECONDS = 3.0  # how long an open pipe may stay silent when a prompt was given
ERROR, USAGE_ERROR, LIMIT = 1, 2, 4

EXAMPLES = """examples:
  wieldy -p "what does this project do?" --model anthropic/claude-sonnet-5-5
  git diff | wieldy -p "review this" --allowed-tools "Read Grep Bash(git log:*)"
  wieldy -p "fix the failing test" --permission-mode acceptEdits --output-format stream-json --max-turns 20

exit codes: 0 done, 1 error, 2 usage, 3 a call was denied, 4 a limit was reached, 130 interrupted, 129 or 143 terminated.
A run that was stopped, or whose output nothing reads any more (1), names the session to resume on stderr."""


def main(command: str, argv: list[str]) -> int:
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
    add("--timeout", type=amount, metavar="SECONDS", help="stop after this time, with the exit code of a limit")
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
    output = _Output(_write_text if options.output_format == "text" else write_json_text)
    deadline = _Deadline(options.timeout)
    try:
        session, protocol = await _open(options, arguments, output)
    except WieldyError as failure:
        if options.output_format != "text":
            result = {"type": "result", "subtype": "error_during_execution", "is_error": True, "errors": [str(failure)]}
            write_json_text(encode_json(result) + "\n")
        raise
    try:
        async with session:
            task = asyncio.current_task()
            assert task is not None

            def stop(reason: str) -> None:
                if session.running:
                    session.abort(reason)
                else:
                    task.cancel()

            signals.call_on_signal(stop)
            output.abort = session.abort
            _report_problems(session)
            with deadline.limit(stop):
                code = await _converse(session, options, prompt, protocol, output)
    except asyncio.CancelledError:
        if signals.exit_code is None and not deadline.passed:
            raise
        code = ERROR
    finally:
        if protocol is not None:
            await protocol.aclose()
    if output.is_broken:
        print_error("the output is incomplete: its reader has closed the pipe")
    stopped = signals.exit_code or (LIMIT if deadline.passed else ERROR if output.is_broken else None)
    if stopped and session.messages and not options.no_session_persistence:
        print_error(f"continue with: wieldy -p --resume {session.id}")
    return stopped or code


async def _open(
    options: argparse.Namespace, arguments: Mapping[str, Any], output: _Output
) -> tuple[Session, ControlProtocol | None]:
    """Make the session, and the protocol where a program sends the prompts. Raises `WieldyError`."""
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
            asked.host.session = session
        session.box.settings.require_rules()
        return session

    if options.input_format == "stream-json":
        protocol = _control_protocol(options, open_session, output)
        return await protocol.open(), protocol
    return open_session(), None


class _Deadline:
    """The time that a run may take; None is no limit."""

    def __init__(self, seconds: float | None) -> None:
        self.passed = False
        self._seconds = seconds

    @contextmanager
    def limit(self, stop: Callable[[str], None]) -> Iterator[None]:
        """Call `stop` with the reason when the time is over before the work of the `with` block is done."""
        if self._seconds is None:
            yield
            return
        reason = f"stopped after {format_duration(self._seconds)} (--timeout)"

        def expire() -> None:
            self.passed = True
            stop(reason)

        timer = asyncio.get_running_loop().call_later(self._seconds, expire)
        try:
            yield
        finally:
            timer.cancel()


class _Output:
    """Writes to stdout. Where its reader has closed the pipe, the run is interrupted in order, and recorded."""

    def __init__(self, write: Callable[[str], None]) -> None:
        self.is_broken = False
        self.abort: Callable[[str], None] = lambda reason: None
        self._write = write

    def __call__(self, text: str) -> None:
        if self.is_broken:
            return
        try:
            self._write(text)
        except BrokenPipeError:
            discard_stdout()
            self.is_broken = True
            self.abort("the reader of the output has closed the pipe")


def _permission_tool(name: str, host: ControlHost | None) -> PermissionTool:
    from wieldy.faces.headless.control import ControlChannel, ControlHost, PermissionTool

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
    session: Session, options: argparse.Namespace, prompt: str, protocol: ControlProtocol | None, output: _Output
) -> int:
    from wieldy.faces.headless import converse

    async def prompts() -> AsyncIterator[Prompt]:
        if protocol is None:
            yield prompt
            return
        try:
            async for each in protocol.prompts():
                if output.is_broken:
                    return
                yield each
                if output.is_broken:
                    return
        except WieldyError as error:
            raise UsageError(str(error)) from None

    is_hosted = protocol is not None and protocol.is_hosted
    partial = options.include_partial_messages
    return await converse(
        session,
        prompts(),
        options.output_format,
        output,
        partial=partial,
        hosted=is_hosted,
        returns=options.returns,
    )


def _control_protocol(options: argparse.Namespace, open_session: OpenSession, output: _Output) -> ControlProtocol:
    from wieldy.faces.headless.control import ControlProtocol

    return ControlProtocol(
        _stdin_lines(),
        output if options.output_format == "stream-json" else lambda text: None,
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


CHAT_EXAMPLES = """examples:
  wieldy                                   use the model of WIELDY_MODEL, your settings, or the key that is set
  wieldy "Add a --json flag" --model claude-sonnet-5-5
  wieldy --continue                        resume the last session of this folder
  wieldy --resume ID                       resume another one; `wieldy sessions` lists them"""


def chat_main(command: str, argv: list[str]) -> int:
    # Words after `--` are the prompt even if they look like options.
    words, prompt_words = (argv[: argv.index("--")], argv[argv.index("--") + 1 :]) if "--" in argv else (argv, [])
    parser = command_parser("wieldy", "Start an interactive session in this folder.", CHAT_EXAMPLES, allow_abbrev=False)
    parser.add_argument("prompt", nargs="*", metavar="PROMPT", help="the first prompt")
    parser.add_argument(
        "--plain", action="store_true", help="print line by line and redraw nothing: for screen readers"
    )
    parser.add_argument("--verbose", action="store_true", help=argparse.SUPPRESS)
    add_session_options(parser)
    options = parser.parse_intermixed_args(words)
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        print_error('this is not a terminal; use `wieldy -p "prompt"`')
        return USAGE_ERROR
    try:
        arguments = session_arguments(options)
    except UsageError as error:
        print_error(error)
        return USAGE_ERROR
    from wieldy.agent.session import Session

    def open_session(**more: Any) -> Session:
        session = Session(**{**arguments, **more})
        arguments.update(fork=False, session_id=None)  # only the first session is a fork, or has this id
        return session

    prompt = " ".join([*options.prompt, *prompt_words]).strip()
    return run_chat(
        open_session,
        _load_surface(plain=options.plain),
        first_prompt=prompt or None,
        resume=resumed_session(options),
        resumable=not options.no_session_persistence,
    )


def run_chat(
    open_session: Callable[..., Session],
    create_surface: Callable[[Chat], PlainSession | InlineSession],
    *,
    first_prompt: str | None = None,
    resume: str | None = None,
    resumable: bool = True,
) -> int:
    """Run an interactive session to its end. The last line says how to resume it."""
    from wieldy.faces.terminal.chat import Chat

    async def run() -> int:
        chat = Chat(open_session, first_prompt=first_prompt, resume=resume)
        chat.session.box.settings.require_rules()
        try:
            return await create_surface(chat).run()
        finally:
            if chat.session.messages and resumable:
                write(f"continue with: wieldy --resume {chat.session.id}")

    return asyncio.run(run())


def _load_surface(*, plain: bool) -> Callable[[Chat], PlainSession | InlineSession]:
    """Import what draws the session: before the loop runs, since it takes a while."""
    if plain or os.environ.get("TERM", "") in ("", "dumb"):
        from wieldy.faces.terminal.plain import PlainSession

        return PlainSession
    from wieldy.faces.terminal.app import InlineSession

    return InlineSession
