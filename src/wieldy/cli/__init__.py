"""The command line: one module per command, imported when that command is given. It may import everything."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from importlib import import_module

from wieldy.core import console
from wieldy.core.text import MISSPELLED, nearest_name

# Command → its module and its line in `wieldy --help`.
COMMANDS: Mapping[str, tuple[str, str]] = {
    "call": ("call", "run one tool through the whole pipeline"),
    "tools": ("tools", "list the tools a model is offered, and why others are not"),
    "permissions": ("permissions", "show and change what is allowed; runs nothing"),
    "undo": ("undo", "undo changes made by tools"),
    "redo": ("undo", "redo what was undone"),
    "history": ("undo", "list the changes made by tools"),
    "batch": ("batch", "run many tasks; nothing finished is lost or run again"),
    "demo": ("demo", "watch a recorded model fix a sample project: no key, no network"),
    "mcp": ("mcp", "manage MCP servers, or serve wieldy's own tools"),
    "sessions": ("sessions", "list, show, export or resume sessions"),
    "config": ("config", "show the settings in force, and where each is written"),
    "doctor": ("doctor", "check this machine and say how to fix what is missing"),
}

USAGE_ERROR = 2
INTERRUPTED = 130
BROKEN_PIPE = 141  # as if SIGPIPE had ended the program, which `head` does to every other one


def run(argv: list[str]) -> int:
    """Run a command line. An error is one line on stderr; `--debug` shows the traceback."""
    words = [word for word in argv if word != "--debug"]
    return report_errors(lambda: _dispatch(words), debug=words != argv)


def report_errors(command: Callable[[], int], *, debug: bool = False) -> int:
    """Run a command and return its exit code. An error is one line on stderr, or with `debug` a traceback."""
    console.reopen_closed_streams()
    console.guard_streams()
    try:
        _replace_relative_home()
        code = command()
        console.flush_stdout()
    except BrokenPipeError:
        console.discard_stdout()
        return BROKEN_PIPE
    except KeyboardInterrupt:
        console.write_error("interrupted")
        return INTERRUPTED
    except Exception as error:
        if debug:
            raise  # printed by the interpreter, on the guarded stderr
        console.print_error(describe_error(error))
        return 1
    return code


def describe_error(error: Exception) -> str:
    """Return an error as one line for a person, without errno."""
    if isinstance(error, OSError) and error.strerror:
        named = isinstance(error.filename, str | bytes)
        return f"{os.fsdecode(error.filename)}: {error.strerror}" if named else error.strerror
    return " ".join(str(error).split()) or type(error).__name__


def _replace_relative_home() -> None:
    """Replace a `HOME` that is no absolute path: folders below it would be made in the project."""
    home = os.environ.get("HOME")
    if home is not None and not os.path.isabs(home):
        from wieldy.core.state_dirs import user_home

        os.environ["HOME"] = str(user_home())
        console.print_error(f"HOME is `{home}`, which is no absolute path; {os.environ['HOME']} is used instead")


def _dispatch(argv: list[str]) -> int:
    name = argv[0] if argv else ""
    if name in ("-h", "--help", "help"):
        console.write(usage())
        return 0
    if name in ("--version", "-V") or argv == ["version"]:
        from wieldy import __version__

        console.write(f"wieldy {__version__}")
        return 0
    if name in COMMANDS:
        code: int = import_module(f"wieldy.cli.{COMMANDS[name][0]}").main(name, argv[1:])
        return code
    if _is_headless(argv):
        from wieldy.cli.run import main

        return main("-p", argv)
    if command := _misspelled_command(name):
        console.print_error(
            f"no such command: {name}. Did you mean `{command}`? To send it as a prompt: wieldy -- {name}"
        )
        return USAGE_ERROR
    from wieldy.cli.run import chat_main

    return chat_main("", argv)


def _misspelled_command(word: str) -> str | None:
    """Return the command that a single word is likely meant for; any other word is a prompt."""
    return nearest_name(word, COMMANDS, cutoff=MISSPELLED) if word.isalpha() else None


def _is_headless(argv: list[str]) -> bool:
    """Recognize `-p`, or the formats of a program that talks to wieldy: the Claude Agent SDK leaves `-p` out."""
    return any(word.partition("=")[0] in ("-p", "--print", "--input-format", "--output-format") for word in argv)


def usage() -> str:
    rows = "\n".join(f"  {name:<12} {about}" for name, (_, about) in COMMANDS.items())
    return f"""usage: wieldy ["PROMPT"] | -p "PROMPT" | COMMAND [OPTIONS]

The tools of an AI coding agent: every call is checked, permitted, run, and can be undone.

{rows}

  wieldy [PROMPT] [--model M] [--continue | --resume ID]     interactive session in this folder
  wieldy -p "what does this project do?"     run a prompt without interaction; `wieldy -p --help` lists the options of both
  wieldy call Grep pattern=TODO glob='*.py'
  wieldy COMMAND --help     options of a command, with examples
  wieldy --version
  --debug                   with any command: show the traceback of an error"""
