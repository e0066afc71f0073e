"""`wieldy permissions`: what is allowed, and why; without running anything."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from wieldy.agent.store import StoredSession, past_calls, read_session, session_folder, stored_sessions
from wieldy.cli.arguments import command_parser, folder, mode
from wieldy.core.call import PlannedCall, ToolCall
from wieldy.core.decision import Behavior
from wieldy.core.errors import Refusal, SessionError
from wieldy.engine.pipeline import bind, lookup, normalize
from wieldy.permissions.explain import ChangedDecision, replay
from wieldy.toolbox import Toolbox

if TYPE_CHECKING:
    from wieldy.core.decision import Behavior


EXAMPLES = """examples:
  wieldy permissions list                                  every rule, with file and line
  wieldy permissions explain Bash 'git log | xargs rm'     what would be decided, and the whole trail
  wieldy permissions explain 'Bash(git push)'              the same in one word, as a rule is written
  wieldy permissions explain Edit '{"file_path": ".env"}' --json
  wieldy permissions allow 'Bash(npm run test:*)'          add a rule to .wieldy/settings.local.json
  wieldy permissions deny 'Read(./secrets/**)' --project   … to the settings the project shares
  wieldy permissions test                                  check the examples that rules carry
  wieldy permissions replay SESSION | --all                past calls against the rules of today: what would change
  wieldy permissions trust                                 consent to what this project's settings configure"""

# The one field a plain string stands for in `explain TOOL 'STRING'`.
MAIN_FIELD = {"Bash": "command", "WebFetch": "url", "Glob": "pattern", "Grep": "pattern", "LS": "path"}


def main(command: str, argv: list[str]) -> int:
    """Run `wieldy permissions`."""
    parser = command_parser("wieldy permissions", "What is allowed in this folder, and why. Nothing is run.", EXAMPLES)
    verbs = parser.add_subparsers(
        dest="verb", required=True, metavar="list | explain | allow | deny | ask | test | replay | trust"
    )
    _verb(verbs, "list", "every rule with its file and line").add_argument("--json", action="store_true")
    explain = _verb(verbs, "explain", "what would be decided about a call")
    explain.add_argument("tool", metavar="TOOL")
    explain.add_argument(
        "input", metavar="INPUT", nargs="?", help="JSON, or for Bash the command and for file tools the path"
    )
    explain.add_argument("--json", action="store_true")
    explain.add_argument(
        "--mode", type=mode, metavar="MODE", help="judge as in this mode (default: the configured one)"
    )
    for verb in ("allow", "deny", "ask"):
        change = _verb(verbs, verb, f"add {'an' if verb != 'deny' else 'a'} {verb} rule")
        change.add_argument("rule", metavar="RULE", nargs="+")
        where = change.add_mutually_exclusive_group()
        where.add_argument("--project", action="store_true", help="to .wieldy/settings.json, which the project shares")
        where.add_argument("--user", action="store_true", help="to the settings of all your projects")
    _verb(verbs, "test", "check the examples that rules carry").add_argument("--json", action="store_true")
    again = _verb(verbs, "replay", "hold past calls against the rules of today")
    again.add_argument(
        "session", metavar="SESSION", nargs="?", help="the id of a session, as `wieldy sessions` shows it"
    )
    again.add_argument("--all", action="store_true", help="every session of this folder")
    again.add_argument("--mode", type=mode, metavar="MODE", help="judge as in this mode (default: the configured one)")
    again.add_argument("--json", action="store_true")
    trust = _verb(verbs, "trust", "consent to what this project's settings configure")
    trust.add_argument("--yes", action="store_true", help="without being asked")
    options = parser.parse_args(argv)
    return {
        "list": _list,
        "explain": _explain,
        "allow": _change,
        "deny": _change,
        "ask": _change,
        "test": _test,
        "replay": _replay,
        "trust": _trust,
    }[options.verb](options)


def _verb(verbs: Any, name: str, about: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = verbs.add_parser(name, help=about, description=about)
    parser.add_argument("--root", type=folder, default=".", metavar="DIR", help="the folder (default: this one)")
    return parser


def _list(options: argparse.Namespace) -> int:
    from wieldy.permissions.explain import format_rules, rules_as_json

    box = Toolbox(options.root, load_settings=True)
    rules = box.policy.rules.rules
    if options.json:
        print(json.dumps(rules_as_json(rules), ensure_ascii=False, indent=2))
    else:
        print("\n".join([f"mode: {box.policy.mode}", *format_rules(rules)]))
    for problem in (*box.settings.errors, *box.settings.warnings, *box.settings.report):
        print(f"wieldy: {problem}", file=sys.stderr)
    return 1 if box.settings.errors else 0


def _explain(options: argparse.Namespace) -> int:
    from wieldy.permissions.explain import explain

    box = Toolbox(options.root, mode=options.mode, load_settings=True)
    tool, text = options.tool, options.input
    if text is None:  # in one word, as a rule is written: `Bash(git push)`
        tool, _, text = tool.partition("(")
        text = text.removesuffix(")")
    try:
        plan = planned(box, tool, text)
    except Refusal as refusal:
        print(f"wieldy: {refusal.advice}", file=sys.stderr)
        return 2
    found = explain(box.policy, plan)
    if options.json:
        print(json.dumps(found.as_json(), ensure_ascii=False, indent=2))
    else:
        print("\n".join(found.lines()))
    return 0


def planned(box: Toolbox, tool: str, text: str) -> PlannedCall:
    """A call as far as it goes without being decided; what is not needed to judge it may be left out."""
    found = lookup(ToolCall("explain", tool, {}), box.catalog)
    input: Any = text
    if text.lstrip().startswith("{"):
        with contextlib.suppress(ValueError):
            input = json.loads(text)
    else:
        field = (
            MAIN_FIELD.get(tool)
            or next(iter(found.paths), None)
            or next(iter(found.schema.get("properties", {})), "input")
        )
        input = {field: text} if text else {}
    if isinstance(input, dict) and input:
        given = {found.aliases.get(name, name) for name in input}
        for name in set(found.schema.get("required", ())) - given:
            input[name] = [] if found.schema["properties"][name].get("type") == "array" else ""
    return normalize(bind(ToolCall("explain", tool, input), found), box.workspace)


def _change(options: argparse.Namespace) -> int:
    from wieldy.permissions.rules import parse
    from wieldy.settings.store import add_rules, local_file, project_file, remember, user_file

    behavior: Behavior = options.verb
    rules = [parse(text, behavior) for text in options.rule]
    if options.user:
        file = user_file()
        add_rules(file, behavior, options.rule)
    else:
        file = project_file(options.root) if options.project else local_file(options.root)
        remember(options.root, rules, file=file)
    print(f"{behavior}: {', '.join(map(str, rules))} → {file}")
    return 0


def _test(options: argparse.Namespace) -> int:
    from wieldy.permissions.explain import check_examples

    box = Toolbox(options.root, load_settings=True)
    tested = check_examples(box.policy, box.settings.left_out)
    if options.json:
        rows = [{"rule": str(row.rule), "examples": row.examples, "failures": list(row.failures)} for row in tested]
        print(json.dumps(rows, ensure_ascii=False, indent=2))
    else:
        for row in tested:
            print(f"{'✗' if row.failures else '✓'} {row.rule} ({row.examples} examples)")
            for failure in row.failures:
                print(f"    {failure}")
        print(f"{len(tested)} rule(s) with examples")
    for problem in (*box.settings.errors, *box.settings.warnings):
        print(f"wieldy: {problem}", file=sys.stderr)
    return 1 if any(row.failures for row in tested) or box.settings.errors else 0


def _replay(options: argparse.Namespace) -> int:

    return run(options)


def _trust(options: argparse.Namespace) -> int:
    from wieldy.permissions.trust import Trust

    box = Toolbox(options.root, load_settings=True)
    pending = box.settings.pending
    if not pending:
        print("nothing waits for your consent")
        return 0
    print("This project's settings ask for:")
    for wanted in pending:
        print(f"  {wanted}")
    if not options.yes:
        if not sys.stdin.isatty():
            print("wieldy: nobody is there to ask; say --yes to consent to exactly these", file=sys.stderr)
            return 1
        if input("Consent to exactly these? [y/N] ").strip().lower() not in ("y", "yes"):
            return 1
    Trust().accept(box.workspace.root, pending)
    print(f"{len(pending)} setting(s) are in force from now on; you are asked again when they change")
    return 0


class Replayed(Struct, frozen=True):
    """What came of one session: how many calls were judged, how many no longer can be, and which change."""

    session: str
    judged: int
    lost: int
    changes: tuple[ChangedDecision, ...]


def run(options: argparse.Namespace) -> int:
    """Exit code 1 when a call that was denied or asked about would now be allowed."""
    if bool(options.session) == options.all:
        print("wieldy: name a session, or say --all", file=sys.stderr)
        return 2
    sessions = list(stored_sessions(options.root)) if options.all else [_named(options.session)]
    replayed = [_replayed(session, options) for session in sessions]
    if options.json:
        print(json.dumps([_row(done, one) for done in replayed for one in done.changes], ensure_ascii=False, indent=2))
    else:
        print("\n".join(_lines(replayed, by_session=options.all)))
    return 1 if any(change.widened for done in replayed for change in done.changes) else 0


def _named(session: str) -> StoredSession:
    folder = session_folder(session)
    stored = read_session(folder, 0.0) if folder.is_dir() else None
    if stored is None:
        raise SessionError(f"there is no session {session}; `wieldy sessions` lists them")
    return stored


def _replayed(session: StoredSession, options: argparse.Namespace) -> Replayed:
    """One session, judged by the rules of the folder it worked in, wherever we are."""
    root = session.root if os.path.isdir(session.root) else options.root
    box = Toolbox(root, mode=options.mode, load_settings=True)
    planned = list(_planned(session, box))
    past = [one for one in planned if one is not None]
    return Replayed(session.id, len(past), len(planned) - len(past), tuple(replay(box.policy, past)))


def _planned(session: StoredSession, box: Toolbox) -> Iterator[tuple[PlannedCall, Behavior] | None]:
    """The calls of a session as they would be planned today; None for one whose tool or input exists no more."""
    for number, (name, input, behavior) in enumerate(past_calls(session.folder)):
        call = ToolCall(f"past-{number}", name, dict(input))
        try:
            yield normalize(bind(call, lookup(call, box.catalog)), box.workspace), behavior
        except Refusal:
            yield None


def _row(done: Replayed, change: ChangedDecision) -> dict[str, object]:
    return {
        "session": done.session,
        "tool": change.plan.tool.name,
        "input": change.plan.input,
        "before": change.before,
        "now": change.now.behavior,
        "why": change.now.why,
    }


def _lines(replayed: list[Replayed], *, by_session: bool) -> Iterator[str]:
    for done in replayed:
        if by_session and done.changes:
            yield f"session {done.session}"
        for change in done.changes:
            yield f"{change.before} → {change.now.behavior}  {change.plan.tool.show_use(change.plan.input)}"
            yield f"    {change.now.why}"
    judged, lost = sum(done.judged for done in replayed), sum(done.lost for done in replayed)
    yield f"{judged} past call(s), {sum(len(done.changes) for done in replayed)} would be decided otherwise"
    if lost:
        yield f"{lost} more could not be judged: their tool or input exists no more"
