"""`python -m wieldy` and the `wieldy` command. `--version` is answered before anything else is imported."""

from __future__ import annotations

import sys


def main() -> int:
    """Run the command line and return its exit code."""
    if sys.argv[1:] in (["--version"], ["-V"]):
        from wieldy import __version__

        print(f"wieldy {__version__}")
        return 0
    from wieldy.cli import run

    return run(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
