"""`wieldy sessions`: what was said and done, from the transcripts."""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

from wieldy.agent.conversation import fold
from wieldy.agent.store import StoredSession, last_session, session_folder, stored_sessions
from wieldy.agent.transcript import NAME, raw_records, records
from wieldy.cli.arguments import command_parser, folder
from wieldy.core.messages import ContentBlock

EXAMPLES = """examples:
  wieldy sessions                                  those of this folder, the last first
  wieldy sessions list --all --json
  wieldy sessions show 3f9a0c21b7de                what was said, what was called, what came of it
  wieldy sessions export 3f9a0c21b7de --script demo.json     as a recorded model: wieldy -p … --model script:demo.json
  wieldy sessions resume 3f9a0c21b7de "and now the tests"    go on without anybody watching"""

VERBS = ("list", "show", "export", "resume")


def main(command: str, argv: list[str]) -> int:
    """Run `wieldy sessions`."""
    if not argv or (argv[0] not in VERBS and argv[0] not in ("-h", "--help")):
        argv = ["list", *argv]
    if argv[0] == "resume" and argv[1:2] not in ([], ["-h"], ["--help"]):
        from wieldy.cli.headless import main as headless

        return headless("-p", ["-p", "--resume", *argv[1:]])
    options = _parser().parse_args(argv)
    return {"list": _list, "show": _show, "export": _export}[options.verb](options)


def _parser() -> argparse.ArgumentParser:
    parser = command_parser("wieldy sessions", "Sessions on this machine, from their transcripts.", EXAMPLES)
    verbs = parser.add_subparsers(dest="verb", required=True, metavar=" | ".join(VERBS))
    listing = verbs.add_parser("list", help="the sessions of this folder")
    listing.add_argument("--all", action="store_true", help="those of every folder")
    listing.add_argument("--json", action="store_true")
    listing.add_argument("--root", type=folder, default=".", metavar="DIR", help="the folder (default: this one)")
    show = verbs.add_parser("show", help="what was said and done")
    show.add_argument("id", nargs="?", metavar="ID", help="the session (default: the last of this folder)")
    show.add_argument("--json", action="store_true", help="the conversation in the form of the Messages API")
    export = verbs.add_parser("export", help="the whole of a session in one file")
    export.add_argument("id", metavar="ID")
    export.add_argument("--script", metavar="FILE", help="as a recorded model")
    resume = verbs.add_parser("resume", help="go on with a session: the options of `wieldy -p`")
    resume.add_argument("id", metavar="ID")
    return parser


def _list(options: argparse.Namespace) -> int:
    sessions = list(stored_sessions(None if options.all else options.root))
    if options.json:
        print(json.dumps([_as_json(session) for session in sessions], ensure_ascii=False, indent=2))
        return 0
    for session in sessions:
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(session.changed))
        where = f"  {session.root}" if options.all else ""
        print(f"{session.id}  {when}  {session.model}{where}  {session.prompt[:80]}")
    if not sessions:
        print("no sessions here" + ("" if options.all else "; --all lists those of every folder"), file=sys.stderr)
    return 0


def _show(options: argparse.Namespace) -> int:
    folder = _folder(options.id or last_session("."))
    told = fold(records(folder))
    if options.json:
        print(json.dumps([message.as_dict() for message in told.messages], ensure_ascii=False, indent=2))
        return 0
    for message in told.messages:
        for block in message.content:
            if line := _line(message.role, block):
                print(line)
    print(f"\n{told.turns} turn(s), ${told.cost:.4f}", file=sys.stderr)
    return 0


def _export(options: argparse.Namespace) -> int:
    folder = _folder(options.id)
    if options.script:
        from wieldy.agent.recording import record_script

        Path(options.script).write_text(
            json.dumps(record_script(folder), ensure_ascii=False, indent=1) + "\n", encoding="utf-8"
        )
        print(f"{options.script}: try it with `wieldy -p … --model script:{options.script}`", file=sys.stderr)
        return 0
    for record in raw_records(folder):
        print(json.dumps(record, ensure_ascii=False))
    return 0


def _folder(session_id: str) -> Path:
    folder = session_folder(session_id)
    if not (folder / NAME).exists():
        from wieldy.core.errors import SessionError

        raise SessionError(f"there is no session {session_id}; `wieldy sessions list --all` has them all")
    return folder


def _as_json(session: StoredSession) -> dict[str, Any]:
    return {
        "id": session.id,
        "root": session.root,
        "model": session.model,
        "begun": session.begun,
        "changed": session.changed,
        "prompt": session.prompt,
        "transcript": str(session.folder / NAME),
    }


def _line(role: str, block: ContentBlock) -> str:
    match block["type"]:
        case "text":
            return f"{'›' if role == 'user' else '●'} {block['text']}"
        case "tool_use":
            return f"  {block['name']} {json.dumps(block['input'], ensure_ascii=False)[:200]}"
        case "tool_result":
            from wieldy.agent.compaction import result_text

            lines = result_text(block).splitlines() or [""]
            more = f" … {len(lines) - 1} more lines" if len(lines) > 1 else ""
            return f"    {'✗' if block.get('is_error') else '→'} {lines[0][:160]}{more}"
    return ""
