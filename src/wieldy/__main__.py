"""Entry point of `python -m wieldy` and the `wieldy` command."""

from __future__ import annotations

import os
import sys

from wieldy.core.console import flush_streams, print_error, reopen_closed_streams, write

INTERRUPTED = 130
BROKEN_PIPE = 141


def main() -> int:
    """Run the command line and return its exit code. `--version` needs no further imports."""
    if sys.argv[1:] in (["--version"], ["-V"]):
        return _print_version()
    try:
        from wieldy.cli import run

        return run(sys.argv[1:])
    except KeyboardInterrupt:  # during the imports
        return INTERRUPTED


def _print_version() -> int:
    from wieldy import __version__

    reopen_closed_streams()
    try:
        write(f"wieldy {__version__}", flush=True)
    except BrokenPipeError:
        return BROKEN_PIPE
    except OSError as error:
        print_error(f"{error.filename}: {error.strerror}" if error.filename else error.strerror)
        return 1
    return 0


def program() -> None:
    """Run the command line and end the process.

    `os._exit` skips interpreter finalization: a worker thread that is still blocked, for example in a read of stdin, would
    delay or crash it. Everything that must last is on disk and closed by now.
    """
    _require_utf8()
    code = main()
    flush_streams()
    os._exit(code)


def _require_utf8() -> None:
    """Start again in Python's UTF-8 mode where names of files would be ASCII: `LC_ALL=POSIX` with `PYTHONUTF8=0`."""
    if sys.getfilesystemencoding() == "ascii" and sys.executable:
        os.execv(sys.executable, [sys.orig_argv[0], "-X", "utf8", *sys.orig_argv[1:]])


def _remove_current_folder_from_path() -> None:
    """Undo that `python -m` puts the current folder first on `sys.path`: a project's own `queue.py` must not shadow ours."""
    try:
        current = os.getcwd()
    except OSError:  # the folder was deleted
        return
    if not sys.flags.safe_path and sys.path[:1] == [current]:
        del sys.path[0]


if __name__ == "__main__":
    _remove_current_folder_from_path()
    program()
