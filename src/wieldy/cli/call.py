"""`wieldy call`: one tool through the whole pipeline."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Mapping
from typing import Any

from wieldy.cli.arguments import command_parser, folder, mode
from wieldy.cli.notices import with_notices
from wieldy.core.events import Event, ToolProgress
from wieldy.core.outcome import Done, ToolResult
from wieldy.core.tool import Tool
from wieldy.core.user_questions import UserQuestions
from wieldy.engine.results import to_json_value
from wieldy.terminal.commands import input_of, shown
from wieldy.toolbox import Toolbox

EXAMPLES = """examples:
  wieldy call Grep pattern=TODO glob='*.py' output_mode=content -n=true
  wieldy call Read '{"file_path": "README.md", "limit": 20}'
  echo '{"file_path": "a.txt", "content": "hi"}' | wieldy call Write - --mode acceptEdits

A field's value is text where the tool takes text, and JSON otherwise (limit=5, edits='[…]').
Editing tools want a file to have been read; here you vouch for having seen it."""


def main(command: str, argv: list[str]) -> int:
    """Run `wieldy call`."""
    parser = command_parser(
        "wieldy call",
        "Run one tool through the whole pipeline: checked, allowed or asked about, run, and undoable.",
        EXAMPLES,
        allow_abbrev=False,
    )
    parser.add_argument("tool", metavar="TOOL", help="the tool's name; `wieldy tools` lists them")
    parser.add_argument(
        "fields", nargs="*", metavar="key=value | JSON | -", help="its input; `-` reads JSON from stdin"
    )
    parser.add_argument("--json", action="store_true", help="print the structured result")
    parser.add_argument(
        "--root", type=folder, default=".", metavar="DIR", help="the folder to work in (default: this one)"
    )
    parser.add_argument(
        "--mode", type=mode, metavar="MODE", help="default, acceptEdits, plan, dontAsk or bypassPermissions"
    )
    options, extra = parser.parse_known_args(argv)
    if odd := [word for word in extra if word[:1] == "-" != word and "=" not in word]:
        parser.error(f"unknown option {odd[0]}")
    words = [*options.fields, *extra]
    # Before there is a loop: whoever waits for stdin in one cannot be interrupted.
    given = sys.stdin.read() if words == ["-"] else None
    return asyncio.run(_call(options, words, given))


async def _call(options: argparse.Namespace, words: list[str], given: str | None) -> int:
    from wieldy.terminal.questions import terminal_ask, terminal_asker

    box = Toolbox(root=options.root, mode=options.mode, ask=terminal_ask(), load_settings=True)
    async with with_notices(box):
        box.workspace.service(UserQuestions).handler = terminal_asker()
        tool = box.catalog.find(options.tool)
        input = input_of(words, tool) if given is None else given
        await _look_first(box, tool, input)
        if sys.stderr.isatty() and not options.json:
            box.subscribe(_show_progress)
        result = await box.call(options.tool, input)
    if options.json:
        print(json.dumps(_as_json(result), ensure_ascii=False, indent=2))
    else:
        print(shown(result), file=sys.stdout if isinstance(result.outcome, Done) else sys.stderr)
    return 1 if result.is_error else 0


async def _look_first(box: Toolbox, tool: Tool | None, input: Mapping[str, Any] | str) -> None:
    """Editing tools want the file read first. A person who names it has seen it, so it is read in their place."""
    if tool is None or tool.read_only or not tool.paths:
        return
    try:
        fields = json.loads(input) if isinstance(input, str) else input
        named = {tool.parameters.aliases.get(name, name): value for name, value in fields.items()}
    except (ValueError, AttributeError):
        return
    for path in (named.get(name) for name in tool.paths):
        if isinstance(path, str):
            await box.call("Read", file_path=path, limit=10_000_000)


def _show_progress(event: Event) -> None:
    if isinstance(event, ToolProgress):
        print(f"  {event.text}", file=sys.stderr)


def _as_json(result: ToolResult) -> dict[str, Any]:
    return {
        "tool": result.name,
        "call_id": result.call_id,
        "is_error": result.is_error,
        "outcome": type(result.outcome).__name__.lower(),
        "text": result.text,
        "content": [block.as_wire() for block in result.content],
        "data": to_json_value(result.data),
    }
