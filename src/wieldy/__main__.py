"""`python -m wieldy` and the `wieldy` command. `--version` is answered before anything else is imported."""

from __future__ import annotations

import gc
import os
import sys

INTERRUPTED = 130
YOUNG = 100_000  # objects before garbage is looked for: a start makes many, and all of them stay

TYPE_CHECKING = False  # typing takes longer to import than everything here
if TYPE_CHECKING:
    from typing import NoReturn


def main() -> int:
    """Run the command line and return its exit code."""
    if sys.argv[1:] in (["--version"], ["-V"]):
        return _version()
    try:
        from wieldy.cli.compiled import find_straight

        find_straight()
        from wieldy.cli import run

        return run(sys.argv[1:])
    except KeyboardInterrupt:  # before there was anything to end
        return INTERRUPTED


def _version() -> int:
    from wieldy import __version__

    try:
        print(f"wieldy {__version__}", flush=True)
    except BrokenPipeError:
        return 0  # whoever asked has heard enough
    except OSError as error:
        print(f"wieldy: {error.strerror}", file=sys.stderr)
        return 1
    return 0


def program() -> NoReturn:
    """Run the command line and end the process.

    Everything that must last is on disk and closed by now, and what runs at exit is only there to take the interpreter
    apart piece by piece; it is left to the system, which does it at once.
    """
    gc.set_threshold(YOUNG)
    code = main()
    for stream in (sys.stdout, sys.stderr):
        try:  # noqa: SIM105 - contextlib takes longer to import than everything here
            stream.flush()
        except (OSError, ValueError, AttributeError):
            pass  # whoever could be told has been told
    os._exit(code)


def _without_the_project() -> None:
    """`python -m` looks for every module in the current folder first: a project's own `queue.py` is not ours to run."""
    try:
        here = os.getcwd()
    except OSError:
        return  # it is gone, and so it is not looked into
    if not sys.flags.safe_path and sys.path[:1] == [here]:
        del sys.path[0]


if __name__ == "__main__":
    _without_the_project()
    program()
