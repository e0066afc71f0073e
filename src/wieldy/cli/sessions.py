"""`wieldy sessions`: list, show, export and resume sessions from their transcripts."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from wieldy.agent.conversation import CallError, fold
from wieldy.agent.store import StoredSession, find_session, last_session, stored_sessions
from wieldy.agent.transcript import raw_records, records
from wieldy.cli.arguments import add_root, add_subcommand, command_parser
from wieldy.core.console import encode_json, write, write_error, write_json, write_json_text
from wieldy.core.messages import ContentBlock
from wieldy.core.session_files import TRANSCRIPT_NAME
from wieldy.core.state_dirs import write_private
from wieldy.core.text import format_cost, plural, without_reminders

EXAMPLES = """examples:
  wieldy sessions                                  the last 20 sessions of this folder, latest first
  wieldy sessions list --all --json
  wieldy sessions show 3f9a                        the beginning of an id is enough: prompts, answers, calls and results
  wieldy sessions export 3f9a0c21b7de --script demo.json     as a recorded model: wieldy -p … --model script:demo.json
  wieldy sessions resume 3f9a0c21b7de "and now the tests"    continue without interaction"""

SHOWN_SESSIONS = 20
SUBCOMMANDS = ("list", "show", "export", "resume")


def main(command: str, argv: list[str]) -> int:
    if not argv or (argv[0] not in SUBCOMMANDS and argv[0] not in ("-h", "--help")):
        argv = ["list", *argv]
    if argv[0] == "resume" and argv[1:2] not in ([], ["-h"], ["--help"]):
        from wieldy.cli.run import main as headless

        return headless("-p", ["-p", "--resume", *argv[1:]])
    options = _parser().parse_args(argv)
    return {"list": _list, "show": _show, "export": _export}[options.subcommand](options)


def _parser() -> argparse.ArgumentParser:
    parser = command_parser("wieldy sessions", "Sessions on this machine, from their transcripts.", EXAMPLES)
    subcommands = parser.add_subparsers(dest="subcommand", required=True, metavar=" | ".join(SUBCOMMANDS))
    listing = add_subcommand(subcommands, "list", "list the last sessions of this folder", "sessions list --all")
    listing.add_argument("--all", action="store_true", help="list all sessions, of every folder")
    listing.add_argument("--json", action="store_true", help="print a list of objects")
    add_root(listing, "the folder")
    show = add_subcommand(subcommands, "show", "show the conversation of a session", "sessions show 3f9a0c21b7de")
    show.add_argument("id", nargs="?", metavar="ID", help="the session (default: the last of this folder)")
    show.add_argument("--json", action="store_true", help="print the messages in the form of the Messages API")
    export = add_subcommand(
        subcommands, "export", "print the whole transcript", "sessions export 3f9a0c21b7de --script demo.json"
    )
    export.add_argument("id", metavar="ID")
    export.add_argument("--script", metavar="FILE", help="write a recorded model instead, for --model script:FILE")
    resume = add_subcommand(
        subcommands,
        "resume",
        "resume a session, with a prompt and the options of `wieldy -p`",
        'sessions resume 3f9a0c21b7de "and now the tests"',
    )
    resume.add_argument("id", metavar="ID")
    return parser


def _list(options: argparse.Namespace) -> int:
    sessions = stored_sessions(None if options.all else options.root)
    if options.json:
        write_json([_as_json(session) for session in sessions])
        return 0
    shown = list(sessions if options.all else islice(sessions, SHOWN_SESSIONS))
    for session in shown:
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(session.changed))
        root = f"  {session.root}" if options.all else ""
        write(f"{session.id}  {when}  {session.model}{root}  {session.prompt[:80]}")
    if not shown:
        write_error("no sessions here" + ("" if options.all else "; --all lists those of every folder"))
    elif not options.all and next(sessions, None) is not None:
        write_error(f"these are the last {SHOWN_SESSIONS} of this folder; --all lists all sessions")
    return 0


def _show(options: argparse.Namespace) -> int:
    conversation = fold(records(find_session(options.id or last_session("."))))
    if options.json:
        write_json([message.as_dict() for message in conversation.messages])
        return 0
    for message in conversation.messages:
        for block in message.content:
            if line := _format_block(message.role, block, conversation.errors):
                write(line)
    cost = format_cost(conversation.cost, len(conversation.unpriced), digits=4)
    write_error(f"\n{plural(conversation.turns, 'turn')}, {cost}")
    return 0


def _export(options: argparse.Namespace) -> int:
    folder = find_session(options.id)
    if options.script:
        from wieldy.agent.export import record_script

        script = json.dumps(record_script(folder), ensure_ascii=False, indent=1) + "\n"
        write_private(Path(options.script), script.encode())
        write_error(f"{options.script}: try it with `wieldy -p … --model script:{options.script}`")
        return 0
    for record in raw_records(folder):
        write_json_text(encode_json(record) + "\n")
    return 0


def _as_json(session: StoredSession) -> dict[str, Any]:
    return {
        "id": session.id,
        "root": session.root,
        "model": session.model,
        "begun": session.begun,
        "changed": session.changed,
        "prompt": session.prompt,
        "transcript": str(session.folder / TRANSCRIPT_NAME),
    }


def _format_block(role: str, block: ContentBlock, errors: Mapping[str, CallError]) -> str:
    match block["type"]:
        case "text":
            text = without_reminders(block["text"]).strip()
            return f"{'›' if role == 'user' else '●'} {text}" if text else ""
        case "tool_use":
            return f"  {block['name']} {json.dumps(block['input'], ensure_ascii=False)[:200]}"
        case "tool_result":
            from wieldy.agent.compaction import result_text

            error = errors.get(block["tool_use_id"])
            lines = (error.person if error else without_reminders(result_text(block))).splitlines() or [""]
            more = f" … {plural(len(lines) - 1, 'more line')}" if len(lines) > 1 else ""
            return f"    {'✗' if block.get('is_error') else '→'} {lines[0][:160]}{more}"
    return ""
