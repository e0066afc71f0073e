"""The command lines of a search, the same for `rg` and for the built-in engine."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from wieldy.core.record import field, record
from wieldy.search.ignore import inside_repository
from wieldy.search.ripgrep import find_ripgrep
from wieldy.search.walk import VERSION_CONTROL

_BUILTIN = (
    "import sys; sys.path.insert(0, sys.argv[1]); from wieldy.search.builtin import main; sys.exit(main(sys.argv[2:]))"
)
_PACKAGES = str(Path(__file__).resolve().parents[2])
SECONDS = 30.0
_ALWAYS = ("--no-config", "--color=never", "--hidden", "--no-mmap", "--null", "--no-ignore-messages")


@record
class Engine:
    """The program that searches, the environment it runs in, how long it may take, and whether it obeys ignore files."""

    program: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=lambda: os.environ)
    seconds: float = SECONDS
    obedient: bool = True


def choose_engine(env: Mapping[str, str] = os.environ, seconds: float = SECONDS, obedient: bool = True) -> Engine:
    """`rg` where there is one, else the built-in engine."""
    ripgrep = find_ripgrep(env)
    # -I and -S keep files of the searched folder, and site-packages, from being imported.
    program = (ripgrep.path,) if ripgrep else (sys.executable, "-I", "-S", "-c", _BUILTIN, _PACKAGES)
    return Engine(program, env, seconds, obedient)


def seconds_within(limit: object) -> float:
    """How long a search may take in a call that is cut off after `limit` seconds: a little less, to have its say."""
    return limit * 0.9 if isinstance(limit, int | float) and limit > 0 else SECONDS


def listing(engine: Engine, folder: str, flags: Iterable[str] = ()) -> list[str]:
    """Lists every file below the folder it runs in."""
    return [*engine.program, *_ALWAYS, *_leaving_out(engine, folder), *flags, "--files", "--", "./"]


def matching(engine: Engine, folder: str, pattern: str, flags: Iterable[str], path: str) -> list[str]:
    """Searches a path below the folder it runs in."""
    return [*engine.program, *_ALWAYS, *_leaving_out(engine, folder), *flags, f"--regexp={pattern}", "--", path]


def printing(engine: Engine, pattern: str, flags: Iterable[str], paths: Iterable[bytes]) -> list[str | bytes]:
    """Prints the lines found in the files named, in their order."""
    fields = ("--line-number", "--column", "--field-match-separator=\\x00", "--field-context-separator=\\x01")
    layout = ("--threads=1", "--text", "--no-heading", "--with-filename", "--no-context-separator")
    return [*engine.program, *_ALWAYS, *layout, *fields, *flags, f"--regexp={pattern}", "--", *paths]


def excluding(globs: Iterable[str]) -> list[str]:
    """Leaves out what matches, and does not enter folders that do."""
    return [f"--glob=!{'/' + glob[2:] if glob.startswith('./') else glob}" for glob in globs]


def name_filter(globs: Sequence[str]) -> list[str]:
    """Keeps the program from looking at files whose name cannot match; whoever asks tests the whole path.

    `--glob` would also bring back what ignore files leave out; a file type made for this one search does not.
    """
    names = [_plain_name(glob) for glob in globs]
    if not names or not all(names):
        return []
    return [*(f"--type-add=wanted:{name}" for name in names), "--type=wanted"]


def _plain_name(glob: str) -> str:
    """The file name in a pattern, or nothing where `rg` might read it differently from us (it takes `?` for a byte)."""
    name = glob.rpartition("/")[2]
    odd = "**" in name or any(char in name for char in "?[\\:") or ("{" in glob and "/" in glob)
    return "" if odd else name


def _leaving_out(engine: Engine, folder: str) -> list[str]:
    if not engine.obedient:
        return ["--no-ignore", *excluding(VERSION_CONTROL)]
    # Inside a repository git's own rules hold: a .gitignore above its root says nothing about it.
    obeyed = [] if inside_repository(os.path.realpath(folder)) else ["--no-require-git"]
    return [*obeyed, *excluding(VERSION_CONTROL)]
