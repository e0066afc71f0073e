"""`wieldy permissions`: show, explain, change and test permission rules, without running anything."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import re
import shlex
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from msgspec import Struct, to_builtins

from wieldy.agent.store import StoredSession, find_session, past_calls, read_session, stored_sessions
from wieldy.cli.arguments import add_mode, add_root, add_subcommand, command_parser, print_settings_problems
from wieldy.core.call import PlannedCall, ToolCall
from wieldy.core.console import print_error, read_line, write, write_json
from wieldy.core.decision import Behavior, Opinion
from wieldy.core.errors import Refusal, SessionError
from wieldy.core.text import plural
from wieldy.engine.pipeline import bind, lookup, normalize
from wieldy.engine.toolbox import Toolbox
from wieldy.policy.permissions.explain import (
    ChangedDecision,
    check_examples,
    explain,
    format_rules,
    replay,
    rules_as_json,
)
from wieldy.shell.effects.analysis import Analysis

EXAMPLES = """examples:
  wieldy permissions list                                  every rule, with file and line
  wieldy permissions explain Bash 'git log | xargs rm'     the decision about a call, with all reasons
  wieldy permissions explain 'Bash(git push)'              the same, written as a rule
  wieldy permissions explain Edit '{"file_path": ".env"}' --json
  wieldy permissions allow 'Bash(npm run test:*)'          add a rule to .wieldy/settings.local.json
  wieldy permissions deny 'Read(./secrets/**)' --project   … to the settings the project shares
  wieldy permissions remove 'Bash(npm run test:*)'         remove a rule from your files and the project's
  wieldy permissions test                                  check the examples of rules
  wieldy permissions replay SESSION | --all                decide past calls again: what would change?
  wieldy permissions replay --commands ~/.bash_history     how many of these commands would ask, and which?
  wieldy permissions trust                                 consent to what this project's settings configure"""


def main(command: str, argv: list[str]) -> int:
    parser = command_parser(
        "wieldy permissions", "Show and change what is allowed in this folder. Runs nothing.", EXAMPLES
    )
    subcommands = parser.add_subparsers(
        dest="subcommand", required=True, metavar="list | explain | allow | deny | ask | remove | test | replay | trust"
    )

    run: dict[str, Callable[[argparse.Namespace], int]] = {}

    def add(
        name: str, function: Callable[[argparse.Namespace], int], about: str, example: str, *, json: bool = False
    ) -> argparse.ArgumentParser:
        run[name] = function
        subparser = add_subcommand(subcommands, name, about, f"permissions {example}")
        add_root(subparser, "the folder")
        if json:
            subparser.add_argument("--json", action="store_true", help="print JSON")
        return subparser

    add("list", _list, "list every rule with its file and line", "list --json", json=True)
    explain_parser = add("explain", _explain, "explain the decision about a call", "explain Bash 'git push'", json=True)
    explain_parser.add_argument("tool", metavar="TOOL")
    explain_parser.add_argument(
        "input", metavar="INPUT", nargs="?", help="JSON, or for Bash the command and for file tools the path"
    )
    add_mode(explain_parser)
    for behavior in ("allow", "deny", "ask"):
        article = "a" if behavior == "deny" else "an"
        change = add(behavior, _add_rules, f"add {article} {behavior} rule", f"{behavior} 'Bash(npm run test:*)'")
        change.add_argument("rule", metavar="RULE", nargs="+")
        scope = change.add_mutually_exclusive_group()
        scope.add_argument("--project", action="store_true", help="to .wieldy/settings.json, which the project shares")
        scope.add_argument("--user", action="store_true", help="to the settings of all your projects")
    remove = add("remove", _remove_rules, "remove rules from the settings files", "remove 'Bash(npm run test:*)'")
    remove.add_argument("rule", metavar="RULE", nargs="+")
    add("test", _test, "check the examples of rules", "test", json=True)
    replay_parser = add("replay", _replay, "decide past calls again by the rules of today", "replay --all", json=True)
    replay_parser.add_argument("session", metavar="SESSION", nargs="?", help="a session id from `wieldy sessions`")
    replay_parser.add_argument("--all", action="store_true", help="every session of this folder")
    replay_parser.add_argument(
        "--commands", metavar="FILE", help="shell commands, one a line (`-`: standard input): how many would ask?"
    )
    add_mode(replay_parser)
    trust = add("trust", _trust, "consent to what this project's settings configure", "trust")
    trust.add_argument("--yes", action="store_true", help="do not ask for confirmation")
    trust.add_argument("--revoke", action="store_true", help="take back every consent given for this project")
    options = parser.parse_args(argv)
    return run[options.subcommand](options)


def _list(options: argparse.Namespace) -> int:
    box = Toolbox(options.root, load_settings=True)
    rules = box.policy.rules.rules
    if options.json:
        write_json(rules_as_json(rules))
    else:
        write("\n".join([f"project: {box.settings.root}", f"mode: {box.policy.mode}", *format_rules(rules)]))
    print_settings_problems(box)
    for problem in box.settings.report:
        print_error(problem)
    return 1 if box.settings.errors else 0


def _explain(options: argparse.Namespace) -> int:
    box = Toolbox(options.root, mode=options.mode, load_settings=True)
    print_settings_problems(box)
    tool, text = options.tool, options.input
    if text is None:  # written as a rule: `Bash(git push)`
        tool, _, text = tool.partition("(")
        text = text.removesuffix(")")
        if tool not in box.catalog and " " in tool:
            command = shlex.quote(options.tool)
            print_error(f"name the tool first: wieldy permissions explain Bash {command}")
            return 2
    try:
        plan = plan_call(box, tool, text)
    except Refusal as refusal:
        print_error(refusal.person)
        return 2
    explanation = explain(box.policy, plan, asyncio.run(box.analysis_opinions(plan)))
    if options.json:
        write_json(explanation.as_json())
    else:
        write("\n".join(explanation.lines()))
    return 0


def plan_call(box: Toolbox, name: str, text: str) -> PlannedCall:
    """Plan a call from JSON or its main field; required fields that do not matter for the decision may be missing."""
    tool = lookup(ToolCall("explain", name, {}), box.catalog)
    input: Any = text
    if text.lstrip().startswith("{"):
        with contextlib.suppress(ValueError):
            input = json.loads(text)
    else:
        field = tool.main_field or next(iter(tool.schema.get("properties", {})), "input")
        input = {field: text} if text else {}
    if isinstance(input, dict) and input:
        present = {tool.aliases.get(key, key) for key in input}
        for key in set(tool.schema.get("required", ())) - present:
            input[key] = [] if tool.schema["properties"][key].get("type") == "array" else ""
    return normalize(bind(ToolCall("explain", name, input), tool), box.workspace)


def _add_rules(options: argparse.Namespace) -> int:
    from wieldy.policy.permissions.rules import parse
    from wieldy.policy.settings.store import add_rules, remember, settings_files

    behavior: Behavior = options.subcommand
    rules = [parse(text, behavior) for text in options.rule]
    file = settings_files(options.root)["user" if options.user else "project" if options.project else "local"]
    if options.user:
        add_rules(file, behavior, options.rule)
    else:
        remember(options.root, rules, file=file)
    write(f"{behavior}: {', '.join(map(str, rules))} → {file}")
    return 0


def _remove_rules(options: argparse.Namespace) -> int:
    from wieldy.policy.settings.store import remove_rules, settings_files

    removed: set[str] = set()
    for file in settings_files(options.root).values():
        for rule in remove_rules(file, options.rule):
            write(f"removed {rule} from {file}")
            removed.add(rule)
    missing = [rule for rule in options.rule if rule not in removed]
    for rule in missing:
        print_error(f"there is no rule `{rule}` in these files; `wieldy permissions list` shows where each is written")
    return 1 if missing else 0


def _test(options: argparse.Namespace) -> int:
    box = Toolbox(options.root, load_settings=True)
    results = check_examples(box.policy, box.settings.left_out)
    if options.json:
        rows = [{"rule": str(row.rule), "examples": row.examples, "failures": list(row.failures)} for row in results]
        write_json(rows)
    else:
        for result in results:
            write(f"{'✗' if result.failures else '✓'} {result.rule} ({plural(result.examples, 'example')})")
            for failure in result.failures:
                write(f"    {failure}")
        write(f"{plural(len(results), 'rule')} with examples")
    print_settings_problems(box)
    return 1 if any(result.failures for result in results) or box.settings.errors else 0


def _trust(options: argparse.Namespace) -> int:
    from wieldy.policy.settings.consent import Trust

    box = Toolbox(options.root, load_settings=True)
    if options.revoke:
        Trust().revoke(box.settings.root)
        write(f"nothing that the settings of {box.settings.root} configure counts any more without your consent")
        return 0
    pending = box.settings.pending
    if not pending:
        write("nothing waits for your consent")
        return 0
    write("This project's settings ask for:")
    for item in pending:
        write(f"  {item}")
    if not options.yes:
        if not sys.stdin.isatty():
            print_error("there is no terminal to ask at; use --yes to consent to exactly these")
            return 1
        if (read_line("Consent to exactly these? [y/N] ") or "").strip().lower() not in ("y", "yes"):
            return 1
    Trust().accept(box.settings.root, pending)
    write(f"in force from now on: {plural(len(pending), 'setting')}; you are asked again when they change")
    return 0


class ReplayResult(Struct, frozen=True):
    """One session: how many calls were decided again, how many could not be, and which decisions changed."""

    session: str
    decided: int
    skipped: int
    changes: tuple[ChangedDecision, ...]


def _replay(options: argparse.Namespace) -> int:
    """Return 1 when a call that was denied or asked about would now be allowed."""
    if sum(map(bool, (options.session, options.all, options.commands))) != 1:
        print_error("name a session, or use --all or --commands FILE")
        return 2
    if options.commands:
        return replay_commands(options)
    sessions = list(stored_sessions(options.root)) if options.all else [_find_session(options.session)]
    results = asyncio.run(_replay_sessions(sessions, options))
    if options.json:
        write_json([_change_as_json(result, change) for result in results for change in result.changes])
    else:
        write("\n".join(_format_replay(results, by_session=options.all)))
    return 1 if any(change.widened for result in results for change in result.changes) else 0


async def _replay_sessions(sessions: Iterable[StoredSession], options: argparse.Namespace) -> list[ReplayResult]:
    return [await _replay_session(session, options) for session in sessions]


def _find_session(session_id: str) -> StoredSession:
    session = read_session(find_session(session_id), 0.0)
    if session is None:
        raise SessionError(f"the transcript of session {session_id} is empty")
    return session


async def _replay_session(session: StoredSession, options: argparse.Namespace) -> ReplayResult:
    """Decide the calls of a session by the rules of the folder it worked in."""
    root = session.root if os.path.isdir(session.root) else options.root
    box = Toolbox(root, mode=options.mode, load_settings=True)
    plans: list[tuple[PlannedCall, Behavior, Sequence[Opinion]]] = []
    skipped = 0
    try:
        for number, (name, input, behavior) in enumerate(past_calls(session.folder)):
            call = ToolCall(f"past-{number}", name, dict(input))
            try:
                plan = normalize(bind(call, lookup(call, box.catalog)), box.workspace)
            except Refusal:  # its tool or input no longer exists
                skipped += 1
            else:
                plans.append((plan, behavior, await box.analysis_opinions(plan)))
        return ReplayResult(session.id, len(plans), skipped, tuple(replay(box.policy, plans)))
    finally:
        await box.aclose()


def _change_as_json(result: ReplayResult, change: ChangedDecision) -> dict[str, object]:
    return {
        "session": result.session,
        "tool": change.plan.tool.name,
        "input": change.plan.input,
        "before": change.before,
        "now": change.now.behavior,
        "why": change.now.why,
    }


def _format_replay(results: list[ReplayResult], *, by_session: bool) -> Iterator[str]:
    for result in results:
        if by_session and result.changes:
            yield f"session {result.session}"
        for change in result.changes:
            yield f"{change.before} → {change.now.behavior}  {change.plan.tool.show_use(change.plan.input)}"
            yield f"    {change.now.why}"
    decided, skipped = sum(result.decided for result in results), sum(result.skipped for result in results)
    yield f"{plural(decided, 'past call')}, {sum(len(result.changes) for result in results)} would be decided otherwise"
    if skipped:
        yield f"{skipped} more could not be judged: their tool or input no longer exists"


MOST_PROGRAMS = 12
_TIMESTAMP = re.compile(r": \d+:\d+;")  # of zsh, before the command; that of bash is a comment
_SANDBOX = {"sandbox": {"enabled": True, "autoAllow": True}}


class Tally(Struct, frozen=True):
    """The decisions about some commands; `programs` are those that asked, and how often."""

    allow: int
    ask: int
    deny: int
    programs: dict[str, int]

    def __str__(self) -> str:
        total = max(1, self.allow + self.ask + self.deny)
        numbers = (("run without a question", self.allow), ("ask", self.ask), ("are denied", self.deny))
        return ", ".join(f"{number} ({number / total:.1%}) {what}" for what, number in numbers)


def replay_commands(options: argparse.Namespace) -> int:
    """Decide about every command of a file, and print how many ask."""
    try:
        commands = read_commands(options.commands)
    except OSError as error:
        print_error(f"{options.commands} cannot be read: {(error.strerror or str(error)).lower()}")
        return 2
    if not commands:
        print_error(f"{options.commands} has no commands: write one a line")
        return 2
    now, sandboxed = asyncio.run(_tally_both(commands, options))
    if options.json:
        write_json({"commands": len(commands), "now": to_builtins(now), "sandboxed": to_builtins(sandboxed)})
        return 0
    write("\n".join(_tally_lines(len(commands), now, sandboxed)))
    return 0


def read_commands(file: str) -> list[str]:
    """The commands of a file: a line each, or a JSON string for one of several lines. Comments and time stamps are left out."""
    if file == "-":
        text = sys.stdin.read()
    else:
        with open(file, encoding="utf-8", errors="surrogateescape") as lines:
            text = lines.read()
    commands = [_TIMESTAMP.sub("", line.strip(), count=1) for line in text.splitlines()]
    return [_decode_command(command) for command in commands if command and not command.startswith("#")]


def _decode_command(line: str) -> str:
    if line.startswith('"'):
        try:
            command = json.loads(line)
        except ValueError:
            return line
        return command if isinstance(command, str) else line
    return line


async def _tally_both(commands: Sequence[str], options: argparse.Namespace) -> tuple[Tally, Tally | None]:
    """The decisions by the settings as they are, and as if the sandbox were agreed to; None where no sandbox holds."""
    async with Toolbox(options.root, mode=options.mode, load_settings=True, servers=False) as box:
        now = await _tally(box, commands)
    async with Toolbox(options.root, mode=options.mode, settings=_SANDBOX, load_settings=True, servers=False) as box:
        holds = await box.workspace.services.sandbox.holds()
        return now, await _tally(box, commands) if holds else None


async def _tally(box: Toolbox, commands: Iterable[str]) -> Tally:
    behaviors: Counter[Behavior] = Counter()
    programs: Counter[str] = Counter()
    for command in commands:
        try:
            decision = await box.explain("Bash", {"command": command})
        except Refusal:
            behaviors["deny"] += 1
            continue
        behaviors[decision.behavior] += 1
        if decision.behavior == "ask":
            programs[_asking_program(box.policy.analyze(command))] += 1
    return Tally(behaviors["allow"], behaviors["ask"], behaviors["deny"], dict(programs.most_common(MOST_PROGRAMS)))


def _asking_program(analysis: Analysis) -> str:
    if analysis.verdict == "read_only":
        return "(reads elsewhere)"
    return next((part.program for part in analysis.parts if part.program and not part.read_only), "(not understood)")


def _tally_lines(count: int, now: Tally, sandboxed: Tally | None) -> list[str]:
    lines = [f"{plural(count, 'command')}: {now}"]
    if now.programs:
        lines.append("  most often: " + ", ".join(f"{name} {number}" for name, number in now.programs.items()))
    if sandboxed is None:
        lines.append("with the sandbox: no sandbox holds here; `wieldy doctor` says why")
    else:
        lines.append(f"with the sandbox agreed to (sandbox.enabled, sandbox.autoAllow): {sandboxed}")
        if sandboxed.programs:
            lines.append(
                "  most often: " + ", ".join(f"{name} {number}" for name, number in sandboxed.programs.items())
            )
        lines.append("  A command that needs the network fails in it, and the model may ask to run it outside.")
    return lines
