"""`wieldy` and `wieldy "prompt"`: the interactive session in this folder."""

from __future__ import annotations

import asyncio
import sys

from wieldy.cli.arguments import command_parser, mode

EXAMPLES = """examples:
  wieldy                                   talk to the model of WIELDY_MODEL or your settings
  wieldy "Add a --json flag" --model anthropic/claude-sonnet-5-5
  wieldy --continue                        go on with the last session of this folder
  wieldy --resume ID                       go on with another one; `wieldy sessions` lists them"""


def main(command: str, argv: list[str]) -> int:
    """Run the interactive session."""
    parser = command_parser("wieldy", "The interactive session in this folder.", EXAMPLES)
    parser.add_argument("prompt", nargs="?", metavar="PROMPT", help="what to say first")
    parser.add_argument("--model", metavar="PROVIDER/NAME", help="the model, or script:FILE for a recorded one")
    parser.add_argument("--base-url", metavar="URL", help="the server of the model")
    parser.add_argument(
        "--permission-mode", type=mode, metavar="MODE", help="default, acceptEdits, plan, dontAsk or bypassPermissions"
    )
    parser.add_argument(
        "-c", "--continue", dest="go_on", action="store_true", help="go on with the last session of this folder"
    )
    parser.add_argument("-r", "--resume", metavar="ID", default=None, help="go on with an earlier session")
    options = parser.parse_args(argv)
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        print('wieldy: this is no terminal; use `wieldy -p "prompt"`', file=sys.stderr)
        return 2
    from functools import partial

    from wieldy.agent.session import Session
    from wieldy.agent.store import last_session
    from wieldy.terminal.chat import Chat

    opened = partial(
        Session,
        model=options.model,
        base_url=options.base_url,
        mode=options.permission_mode,
        load_settings=True,
    )

    resume = options.resume or (last_session(".") if options.go_on else None)

    async def talk() -> int:
        return await Chat(opened, first=options.prompt, resume=resume).run()

    return asyncio.run(talk())
