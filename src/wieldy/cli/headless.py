"""`wieldy -p`: a prompt from the command line or stdin, without anybody watching."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import select
import stat
import sys
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from wieldy.cli.arguments import Add, amount, count, folder, mode, read, tell
from wieldy.cli.signals import Signals
from wieldy.core.errors import WieldyError

if TYPE_CHECKING:
    from argparse import ArgumentParser

    from wieldy.agent.session import Prompt, Session
    from wieldy.core.decision import Behavior

MOST_STDIN = 10 * 1024 * 1024
STDIN_SECONDS = 3.0  # how long an open pipe may stay silent when there is a prompt already
USAGE_ERROR = 2

EXAMPLES = """examples:
  wieldy -p "what does this project do?" --model anthropic/claude-sonnet-5-5
  git diff | wieldy -p "review this" --allowed-tools "Read Grep Bash(git log:*)"
  wieldy -p "fix the failing test" --permission-mode acceptEdits --output-format stream-json --max-turns 20

exit codes: 0 done, 1 error, 2 usage, 3 something was denied, 4 a limit was reached, 130 interrupted, 143 terminated"""


def main(command: str, argv: list[str]) -> int:
    """Run `wieldy -p`."""
    # What follows `--` is the prompt, whatever it looks like; argparse cannot have both that and options anywhere.
    words, after = (argv[: argv.index("--")], argv[argv.index("--") + 1 :]) if "--" in argv else (argv, [])
    options = read(declare, words) or parser().parse_intermixed_args(words, SimpleNamespace())
    options.prompt += after
    try:
        if options.fork_session and not (options.resume or options.go_on):
            raise Misuse("--fork-session goes with --resume or --continue")
        settings, file = settings_of(options), settings_file(options)
        prompt = " ".join(options.prompt)
        if options.input_format == "text":
            prompt = "\n\n".join(part for part in (prompt, stdin_text(bool(prompt.strip()))) if part.strip())
            if not prompt:
                raise Misuse("there is no prompt: give one after -p, or on stdin")
        elif prompt:
            raise Misuse("with --input-format stream-json prompts come on stdin only")
    except Misuse as misuse:
        print(f"wieldy: {misuse}", file=sys.stderr)
        return USAGE_ERROR
    try:
        with Signals() as caught:
            return asyncio.run(_converse(options, settings, file, prompt, caught))
    except Misuse as misuse:
        print(f"wieldy: {misuse}", file=sys.stderr)
        return USAGE_ERROR
    finally:
        gc.freeze()  # the program ends here: looking through all there is once more would only take time


class Misuse(WieldyError):
    """The command line makes no sense; one line says why."""


def parser() -> ArgumentParser:
    """What `wieldy -p` takes, for whoever asks or errs."""
    from wieldy.cli.arguments import command_parser

    made = command_parser(
        "wieldy -p",
        "Give a prompt and wait for what comes of it. Text on stdin is appended to the prompt.",
        EXAMPLES,
        allow_abbrev=False,
    )
    made.add_argument("prompt", nargs="*", metavar="PROMPT", help="what to do")
    tell(made, declare)
    return made


def declare(add: Add) -> None:
    """The options of `wieldy -p`."""
    add("-p", "--print", action="store_true")
    add("--output-format", choices=("text", "json", "stream-json"), default="text", help="what stdout carries")
    add("--input-format", choices=("text", "stream-json"), default="text", help="what stdin carries")
    add("--include-partial-messages", action="store_true", help="with stream-json: text as it is being said")
    add("--verbose", action="store_true")
    add("--model", metavar="PROVIDER/NAME", help="the model, or script:FILE for a recorded one")
    add("--base-url", metavar="URL", help="any server that speaks the API")
    add("--max-turns", type=count, metavar="N", help="stop after this many answers of the model")
    add("--max-budget-usd", type=amount, metavar="USD", help="stop when this much is spent")
    add("--allowed-tools", "--allowedTools", action="append", default=[], metavar="RULES", help="may run unasked")
    add("--disallowed-tools", "--disallowedTools", action="append", default=[], metavar="RULES", help="may never run")
    add("--permission-mode", type=mode, metavar="MODE", help="default, acceptEdits, plan, dontAsk or bypassPermissions")
    add("--dangerously-skip-permissions", action="store_true", help="the mode bypassPermissions")
    add("--append-system-prompt", default="", metavar="TEXT", help="to be told to the model from the start")
    add("--add-dir", type=folder, action="append", default=[], metavar="DIR", help="another folder to work in")
    add("--settings", metavar="FILE", help="a settings file, or its JSON, on top of the others")
    add("--mcp-config", action="append", default=[], metavar="FILE", help="MCP servers, as in .mcp.json, or their JSON")
    add("--root", type=folder, default=".", metavar="DIR", help="the folder to work in (default: this one)")
    add("-c", "--continue", dest="go_on", action="store_true", help="go on with the last session of this folder")
    add("-r", "--resume", metavar="ID", help="go on with this session")
    add("--fork-session", action="store_true", help="go on with a copy of it")
    add("--no-session-persistence", action="store_true", help="keep no transcript")


def settings_of(options: SimpleNamespace) -> dict[str, Any]:
    """The settings that a command line stands for. Raises `Misuse`."""
    settings = _named(options.settings, "settings") if options.settings and _read_once(options.settings) else {}
    permissions = dict(settings.get("permissions") or {})
    for name, words in (
        ("allow", rules(options.allowed_tools, "allow")),
        ("deny", rules(options.disallowed_tools, "deny")),
        ("additionalDirectories", options.add_dir),
    ):
        if words:
            permissions[name] = [*permissions.get(name, ()), *words]
    servers = dict(settings.get("mcpServers") or {})
    for named in options.mcp_config:
        servers.update(_named(named, "MCP servers").get("mcpServers") or {})
    return {
        **settings,
        **({"permissions": permissions} if permissions else {}),
        **({"mcpServers": servers} if servers else {}),
    }


def settings_file(options: SimpleNamespace) -> Path | None:
    """The settings file that a command line names. Raises `Misuse` where it cannot be used."""
    if not options.settings or _read_once(options.settings):
        return None
    from wieldy.settings.sources import required

    file = Path(options.settings).absolute()
    if (problem := required(file).error) is not None:
        raise Misuse(f"the settings cannot be read: {problem}")
    return file


def rules(words: list[str], behavior: Behavior) -> list[str]:
    """Rules as people write them in one word: separated by commas or blanks, but not inside parentheses."""
    if not words:
        return []
    from wieldy.permissions.rules import RuleProblem, parse, split_list

    found = split_list(",".join(words))
    try:
        for rule in found:
            parse(rule, behavior)
    except RuleProblem as problem:
        raise Misuse(str(problem)) from None
    return found


def stdin_text(has_prompt: bool) -> str:
    """What is on stdin, if anything can be. Raises `Misuse` when it is too much."""
    try:
        kind = os.fstat(0).st_mode
    except OSError:
        return ""  # closed
    if os.isatty(0):
        return ""
    if has_prompt and not stat.S_ISREG(kind) and not select.select([0], [], [], STDIN_SECONDS)[0]:
        print("wieldy: nothing came on stdin; going on without it (close it with </dev/null)", file=sys.stderr)
        return ""
    data = bytearray()
    while chunk := os.read(0, 1 << 16):
        data += chunk
        if len(data) > MOST_STDIN:
            raise Misuse(f"stdin holds more than {MOST_STDIN // 1024 // 1024} MB; put it into a file and name that")
    return data.decode("utf-8", "replace")


async def _converse(
    options: SimpleNamespace, settings: Mapping[str, Any], file: Path | None, prompt: str, caught: Signals
) -> int:
    from wieldy.agent.session import Session
    from wieldy.agent.store import last_session

    try:
        session = Session(
            options.root,
            model=options.model,
            base_url=options.base_url,
            mode="bypassPermissions" if options.dangerously_skip_permissions else options.permission_mode,
            settings=settings,
            settings_file=file,
            load_settings=True,
            max_turns=options.max_turns,
            max_cost=options.max_budget_usd,
            system=options.append_system_prompt,
            resume=options.resume or (last_session(options.root) if options.go_on else None),
            fork=options.fork_session,
            persist=not options.no_session_persistence,
        )
    except WieldyError as failure:
        if options.output_format != "text":
            told = {"type": "result", "subtype": "error_during_execution", "is_error": True, "errors": [str(failure)]}
            print(json.dumps(told), flush=True)
        raise
    prompts = _lines() if options.input_format == "stream-json" else _one(prompt)
    try:
        async with session:
            caught.attend(session)
            code = await _watched(session, options, prompts)
    except asyncio.CancelledError:
        if caught.code is None:
            raise
        code = caught.code
    return caught.code or code


async def _watched(session: Session, options: SimpleNamespace, prompts: AsyncIterator[Prompt]) -> int:
    """Say what is wrong with the settings, then run."""
    from wieldy.headless import converse

    for problem in (*session.box.settings.errors, *session.box.hook_problems):
        print(f"wieldy: {problem}", file=sys.stderr)
    if waiting := session.box.settings.pending:
        print(
            f"wieldy: {len(waiting)} setting(s) of this project wait for your consent: `wieldy permissions trust`",
            file=sys.stderr,
        )
    return await converse(session, prompts, options.output_format, _write, partial=options.include_partial_messages)


async def _one(prompt: str) -> AsyncIterator[Prompt]:
    yield prompt


async def _lines() -> AsyncIterator[Prompt]:
    """The prompts of a stream of JSON lines, each in the shape of a user message."""
    async for line in _stdin_lines():
        if not line.strip():
            continue
        try:
            told = json.loads(line)
            if told["type"] != "user":
                continue
            content = told["message"]["content"]
        except (ValueError, KeyError, TypeError):
            raise Misuse(
                f"stdin holds a line that is no user message: {line[:80].decode('utf-8', 'replace')!r}"
            ) from None
        yield content


async def _stdin_lines() -> AsyncIterator[bytes]:
    """Lines of stdin as they come. Read below Python's own buffer: a thread that waits in there cannot be left behind."""
    from wieldy.core.threads import in_thread

    waiting = b""
    while data := await in_thread(os.read, 0, 1 << 16):
        *lines, waiting = (waiting + data).split(b"\n")
        for line in lines:
            yield line
    if waiting:
        yield waiting


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def _is_json(named: str) -> bool:
    return named.lstrip().startswith("{")


def _read_once(named: str) -> bool:
    """Whether settings are given on the spot, in the word itself or through a pipe, so that no file can be watched."""
    return _is_json(named) or (os.path.exists(named) and not os.path.isfile(named))


def _named(named: str, what: str) -> dict[str, Any]:
    try:
        text = named if _is_json(named) else Path(named).read_text(encoding="utf-8")
        found = json.loads(text)
    except OSError as error:
        raise Misuse(f"the {what} {named} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise Misuse(f"the {what} are not JSON: {error}") from None
    if not isinstance(found, dict):
        raise Misuse(f"the {what} are not a JSON object")
    return found
