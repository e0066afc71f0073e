"""`wieldy` and `wieldy "prompt"`: the interactive session in this folder."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from typing import TYPE_CHECKING, Any

from wieldy.cli.arguments import command_parser
from wieldy.cli.session_options import UsageError, add_session_options, resumed_session, session_arguments
from wieldy.console import print_error, write

if TYPE_CHECKING:
    from wieldy.terminal.chat import Chat

USAGE_ERROR = 2

EXAMPLES = """examples:
  wieldy                                   use the model of WIELDY_MODEL, your settings, or the key that is set
  wieldy "Add a --json flag" --model claude-sonnet-5-5
  wieldy --continue                        resume the last session of this folder
  wieldy --resume ID                       resume another one; `wieldy sessions` lists them"""


def main(command: str, argv: list[str]) -> int:
    """Run the interactive session."""
    # Words after `--` are the prompt even if they look like options.
    words, prompt_words = (argv[: argv.index("--")], argv[argv.index("--") + 1 :]) if "--" in argv else (argv, [])
    parser = command_parser("wieldy", "Start an interactive session in this folder.", EXAMPLES, allow_abbrev=False)
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
    from wieldy.terminal.chat import Chat

    resume = resumed_session(options)
    prompt = " ".join([*options.prompt, *prompt_words]).strip()

    def open_session(**more: Any) -> Session:
        session = Session(**{**arguments, **more})
        arguments.update(fork=False, session_id=None)  # only the first session is a fork, or has this id
        return session

    async def run() -> int:
        chat = Chat(open_session, first_prompt=prompt or None, resume=resume)
        chat.session.box.settings.require_rules()
        code = await _show(chat, plain=options.plain)
        if chat.session.messages and not options.no_session_persistence:
            write(f"go on with: wieldy --resume {chat.session.id}")
        return code

    return asyncio.run(run())


async def _show(chat: Chat, *, plain: bool) -> int:
    if plain or os.environ.get("TERM", "") in ("", "dumb"):
        from wieldy.terminal.plain import PlainSession

        return await PlainSession(chat).run()
    from wieldy.terminal.app import InlineSession

    return await InlineSession(chat).run()
