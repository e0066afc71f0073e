"""`wieldy` and `wieldy "prompt"`: the interactive session in this folder."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from wieldy.cli.arguments import command_parser
from wieldy.cli.session_options import UsageError, add_session_options, resumed_session, session_arguments
from wieldy.core.console import print_error, write

if TYPE_CHECKING:
    from wieldy.agent.session import Session
    from wieldy.faces.terminal.app import InlineSession
    from wieldy.faces.terminal.chat import Chat
    from wieldy.faces.terminal.plain import PlainSession

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
                write(f"go on with: wieldy --resume {chat.session.id}")

    return asyncio.run(run())


def _load_surface(*, plain: bool) -> Callable[[Chat], PlainSession | InlineSession]:
    """Import what draws the session: before the loop runs, since it takes a while."""
    if plain or os.environ.get("TERM", "") in ("", "dumb"):
        from wieldy.faces.terminal.plain import PlainSession

        return PlainSession
    from wieldy.faces.terminal.app import InlineSession

    return InlineSession
