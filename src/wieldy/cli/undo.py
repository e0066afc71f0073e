"""`wieldy undo`, `redo` and `history`: the journal of what tools changed."""

from __future__ import annotations

import argparse
import asyncio
from typing import TYPE_CHECKING

from wieldy.cli.arguments import command_parser, count, folder, with_notices
from wieldy.core.console import write, write_error, write_json
from wieldy.engine.toolbox import Toolbox

if TYPE_CHECKING:
    from wieldy.files.journal.journal import Journal
    from wieldy.files.journal.undo import UndoPlan

EXAMPLES = {
    "undo": """examples:
  wieldy undo                    take back the last change in this project
  wieldy undo --preview          only show what would be taken back
  wieldy undo call_3f2a…_4       all that one call changed
  wieldy undo --turn | --all     the last turn; the whole last session
  wieldy undo --merge            keep what was changed since, where it does not conflict""",
    "redo": "example:\n  wieldy redo                    do again what the last undo took back",
    "history": "example:\n  wieldy history -n 10           the last ten changes in this project",
}


def main(command: str, argv: list[str]) -> int:
    about = {
        "undo": "Take back what tools changed.",
        "redo": "Do again what was undone.",
        "history": "Show what tools changed.",
    }
    parser = command_parser(f"wieldy {command}", about[command], EXAMPLES[command])
    parser.add_argument("--root", type=folder, default=".", metavar="DIR", help="the project (default: this folder)")
    if command == "history":
        parser.add_argument("-n", type=count, default=20, metavar="COUNT", help="how many changes (default: 20)")
        parser.add_argument("--json", action="store_true", help="a list of objects")
    else:
        parser.add_argument(
            "--merge", action="store_true", help="merge with what was changed since, instead of refusing"
        )
    if command == "undo":
        which = parser.add_mutually_exclusive_group()
        which.add_argument("call", nargs="?", metavar="CALL", help="the id of a call, as `wieldy history` shows it")
        which.add_argument("--turn", action="store_true", help="everything of the last turn")
        which.add_argument("--all", action="store_true", help="everything of the last session")
        parser.add_argument("--preview", action="store_true", help="show what would be done and do nothing")
    return asyncio.run(_run(command, parser.parse_args(argv)))


async def _run(command: str, options: argparse.Namespace) -> int:
    from wieldy.files.journal.undo import UndoSelector

    async with with_notices(Toolbox(options.root, load_settings=True, servers=False)) as box:
        journal = box.workspace.services.journal
        if command == "history":
            return await _history(journal, options)
        if command == "redo":
            return _print_plan(await journal.redo(merge=options.merge))
        selector = UndoSelector(options.call, whole_turn=options.turn, everything=options.all)
        if options.preview:
            plan = await journal.plan_undo(selector, merge=options.merge)
            return _print_plan(plan, preview=True)
        return _print_plan(await journal.undo(selector, merge=options.merge))


async def _history(journal: Journal, options: argparse.Namespace) -> int:
    from wieldy.core.json_values import to_json
    from wieldy.files.journal.undo import history_lines

    entries = await journal.history(options.n)
    if options.json:
        write_json(to_json(list(entries)))
    elif entries:
        write("\n".join(history_lines(entries)))
    else:
        write_error("nothing has been changed by tools in this project")
    return 0


def _print_plan(plan: UndoPlan, *, preview: bool = False) -> int:
    from wieldy.files.journal.undo import plan_lines

    lines = plan_lines(plan)
    if preview:
        lines[0] = f"would {lines[0]}"
    write("\n".join(lines))
    return 1 if plan.problems or any(each.changed for each in plan.uncovered) else 0
