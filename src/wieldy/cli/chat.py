"""`wieldy` and `wieldy "prompt"`: the interactive session in this folder."""

from __future__ import annotations

import asyncio
import os
import sys
from functools import partial

from wieldy.cli.arguments import add_mode, command_parser, session_id
from wieldy.console import print_error

EXAMPLES = """examples:
  wieldy                                   use the model of WIELDY_MODEL or your settings
  wieldy "Add a --json flag" --model anthropic/claude-sonnet-5-5
  wieldy --continue                        resume the last session of this folder
  wieldy --resume ID                       resume another one; `wieldy sessions` lists them"""


def main(command: str, argv: list[str]) -> int:
    """Run the interactive session."""
    parser = command_parser("wieldy", "Start an interactive session in this folder.", EXAMPLES)
    parser.add_argument("prompt", nargs="?", metavar="PROMPT", help="the first prompt")
    parser.add_argument("--model", metavar="PROVIDER/NAME", help="the model, or script:FILE for a recorded one")
    parser.add_argument("--base-url", metavar="URL", help="the address of the model's API")
    add_mode(parser, "--permission-mode")
    parser.add_argument(
        "-c", "--continue", dest="resume_last", action="store_true", help="resume the last session of this folder"
    )
    parser.add_argument("-r", "--resume", type=session_id, metavar="ID", help="resume this session")
    parser.add_argument(
        "--plain", action="store_true", help="print line by line and redraw nothing: for screen readers"
    )
    parser.add_argument("--no-session-persistence", action="store_true", help="save no transcript")
    options = parser.parse_args(argv)
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        print_error('this is not a terminal; use `wieldy -p "prompt"`')
        return 2
    from wieldy.agent.session import Session
    from wieldy.agent.store import last_session
    from wieldy.terminal.chat import Chat

    open_session = partial(
        Session,
        model=options.model,
        base_url=options.base_url,
        mode=options.permission_mode,
        load_settings=True,
        persist=not options.no_session_persistence,
    )
    resume = last_session(".") if options.resume_last and options.resume is None else options.resume

    async def run() -> int:
        chat = Chat(open_session, first_prompt=options.prompt, resume=resume)
        if options.plain or os.environ.get("TERM", "") in ("", "dumb"):
            from wieldy.terminal.plain import PlainSession

            return await PlainSession(chat).run()
        from wieldy.terminal.app import InlineSession

        return await InlineSession(chat).run()

    return asyncio.run(run())
