"""The command line: one module a command, imported when that command is given."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from importlib import import_module

COMMANDS: Mapping[str, tuple[str, str]] = {
    "call": ("call", "run one tool through the whole pipeline"),
    "tools": ("tools", "what a model would be offered, and why a tool is not"),
    "permissions": ("permissions", "what is allowed, and why; without running anything"),
    "undo": ("undo", "take back what tools changed"),
    "redo": ("undo", "do again what was undone"),
    "history": ("undo", "what tools changed"),
    "demo": ("demo", "a recorded model at work on a sample project: no key, no network"),
    "mcp": ("mcp", "MCP servers: add, remove, list, get, reconnect; and serve our own tools"),
    "sessions": ("sessions", "what was said and done: list, show, export, resume"),
    "doctor": ("doctor", "what is found on this machine and what is not, with the fix"),
}

TALK = ("--model", "--base-url", "--permission-mode", "--resume", "-r", "--continue", "-c")

USAGE_ERROR = 2
INTERRUPTED = 130


def run(argv: list[str]) -> int:
    """Run a command line. Errors are one line on stderr; a traceback only with `--debug`."""
    debug = "--debug" in argv
    argv = [word for word in argv if word != "--debug"]
    _open_closed()
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    try:
        code = _dispatch(argv)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader left: what is still buffered has nowhere to go, and must not fail at interpreter exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED
    except Exception as error:
        if debug:
            raise
        print(f"wieldy: {in_plain_words(error)}", file=sys.stderr)
        return 1
    return code


def in_plain_words(error: Exception) -> str:
    """An error for a person: one line, without the number that a system has for it."""
    if isinstance(error, OSError) and error.strerror:
        return (
            f"{os.fsdecode(error.filename)}: {error.strerror}"
            if isinstance(error.filename, str | bytes)
            else error.strerror
        )
    return " ".join(str(error).split()) or type(error).__name__


def _open_closed() -> None:
    """Where a standard stream was closed, what is said to it is lost, and nothing opened later takes its number."""
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(number, True)
    os.close(number)
    if sys.stdin is None:
        sys.stdin = os.fdopen(0, closefd=False)
    if sys.stdout is None:
        sys.stdout = os.fdopen(1, "w", closefd=False)
    if sys.stderr is None:
        sys.stderr = os.fdopen(2, "w", closefd=False)


def _dispatch(argv: list[str]) -> int:
    if argv and argv[0] in ("-h", "--help", "help"):
        print(usage())
        return 0
    from wieldy.cli.deferred import import_asyncio

    import_asyncio()
    if _is_talk(argv):
        from wieldy.cli.chat import main as talk

        return talk("", argv)
    name, *rest = argv
    if name in ("--version", "-V"):
        from wieldy import __version__

        print(f"wieldy {__version__}")
        return 0
    if name not in COMMANDS and ("-p" in argv or "--print" in argv):
        from wieldy.cli.headless import main

        return main("-p", argv)
    if name not in COMMANDS:
        return _unknown(name)
    module = import_module(f"wieldy.cli.{COMMANDS[name][0]}")
    code: int = module.main(name, rest)
    return code


def _unknown(name: str) -> int:
    if name.startswith("-"):
        print(f"wieldy: no such option: {name}; `wieldy --help` and `wieldy -p --help` list them", file=sys.stderr)
        return USAGE_ERROR
    from wieldy.engine.pipeline import nearest

    near = nearest(name, list(COMMANDS))
    hint = f" Did you mean `{near[0]}`?" if near else ""
    print(f"wieldy: no such command: {name}.{hint} `wieldy --help` lists them.", file=sys.stderr)
    return USAGE_ERROR


def _is_talk(argv: list[str]) -> bool:
    """Nothing, an option of the interactive session, or something to say: a prompt is more than one word."""
    if "-p" in argv or "--print" in argv:
        return False
    return not argv or argv[0].partition("=")[0] in TALK or " " in argv[0].strip()


def usage() -> str:
    """What `wieldy --help` says."""
    rows = "\n".join(f"  {name:<12} {about}" for name, (_, about) in COMMANDS.items())
    return f"""usage: wieldy ["PROMPT"] | -p "PROMPT" | COMMAND [OPTIONS]

The hands of an AI coding agent: every tool call checked, allowed, run, and undoable.

{rows}

  wieldy [--model M] [--permission-mode MODE] [--continue | --resume ID]     the interactive session in this folder
  wieldy -p "what does this project do?"     a model works on it, without anybody watching; `wieldy -p --help`
  wieldy call Grep pattern=TODO glob='*.py'
  wieldy COMMAND --help     what a command takes, with an example
  wieldy --version
  --debug                   after any command: show the traceback of an error"""
