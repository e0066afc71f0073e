"""`wieldy call`: run one tool through the whole pipeline."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Mapping
from typing import Any

from wieldy.cli.arguments import add_mode, add_root, command_parser, with_notices
from wieldy.core.console import write, write_error, write_json
from wieldy.core.events import Event, ToolProgress
from wieldy.core.json_values import to_json
from wieldy.core.outcome import Done, ToolResult
from wieldy.core.tool import Tool
from wieldy.engine.toolbox import Toolbox
from wieldy.engine.workspace_services import HostServices
from wieldy.faces.terminal.calls import format_result, parse_input

EXAMPLES = """examples:
  wieldy call Grep pattern=TODO glob='*.py' output_mode=content -n=true
  wieldy call Read '{"file_path": "README.md", "limit": 20}'
  wieldy call Bash 'git status'              the main field alone
  echo '{"file_path": "a.txt", "content": "hi"}' | wieldy call Write - --mode acceptEdits

A value is text where the tool takes text, and JSON otherwise (limit=5, edits='[…]').
Tools that edit require that the file was read first. Here it is read for you: you know what you are editing."""


def main(command: str, argv: list[str]) -> int:
    parser = command_parser(
        "wieldy call",
        "Run one tool through the whole pipeline: its input is checked, permission decided, changes recorded for undo.",
        EXAMPLES,
        allow_abbrev=False,
    )
    parser.add_argument("tool", metavar="TOOL", help="the name of the tool; `wieldy tools` lists them")
    parser.add_argument(
        "fields",
        nargs="*",
        default=[],
        metavar="key=value | JSON | TEXT | -",
        help="the input; `-` reads JSON from stdin",
    )
    parser.add_argument("--json", action="store_true", help="print the structured result")
    add_root(parser)
    add_mode(parser)
    options, extra = parser.parse_known_args(argv)
    # Words such as `-n=true` are fields of the tool.
    if unknown := [word for word in extra if word[:1] == "-" != word and "=" not in word]:
        parser.error(f"unknown option {unknown[0]}")
    words = [*options.fields, *extra]
    # Read before the event loop starts: a blocking read inside it could not be interrupted.
    stdin = sys.stdin.read() if words == ["-"] else None
    return asyncio.run(_call(options, words, stdin))


async def _call(options: argparse.Namespace, words: list[str], stdin: str | None) -> int:
    from wieldy.faces.terminal.questions import permission_callback, question_handler

    box = Toolbox(
        root=options.root,
        mode=options.mode,
        ask=permission_callback(options.root),
        load_settings=True,
        wait_for_servers=0,
        host=HostServices(question_handler=question_handler()),
    )
    box.settings.require_rules()
    async with with_notices(box):
        tool = box.catalog.find(options.tool)
        input = parse_input(words, tool) if stdin is None else stdin
        await _read_edited_files(box, tool, input)
        if sys.stderr.isatty() and not options.json:
            box.subscribe(_print_progress)
        result = await box.call(options.tool, input)
    if options.json:
        write_json(_result_as_json(result))
    else:
        (write if isinstance(result.outcome, Done) else write_error)(format_result(result))
    return 1 if result.is_error else 0


async def _read_edited_files(box: Toolbox, tool: Tool | None, input: Mapping[str, Any] | str) -> None:
    """Read the files that the call names, because tools that edit require it."""
    if tool is None or tool.read_only or not tool.paths:
        return
    try:
        fields = json.loads(input) if isinstance(input, str) else input
        values = {tool.parameters.aliases.get(name, name): value for name, value in fields.items()}
    except (ValueError, AttributeError):
        return
    for path in (values.get(name) for name in tool.paths):
        if isinstance(path, str):
            await box.call("Read", file_path=path, limit=10_000_000)


def _print_progress(event: Event) -> None:
    if isinstance(event, ToolProgress):
        write_error(f"  {event.text}")


def _result_as_json(result: ToolResult) -> dict[str, Any]:
    return {
        "tool": result.name,
        "call_id": result.call_id,
        "is_error": result.is_error,
        "outcome": type(result.outcome).__name__.lower(),
        "text": result.text,
        "content": [block.as_wire() for block in result.content],
        "data": to_json(result.data),
    }
