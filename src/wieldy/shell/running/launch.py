"""Starts a bash for one command: the bytes given are the bytes executed, stdin is empty, and there is no terminal."""

from __future__ import annotations

import fcntl
import os
import re
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TypeAlias

from msgspec import Struct

from wieldy.core.errors import ToolFailure

LONGEST_ARGUMENT = 100_000
PIPE_BYTES = 1 << 20
USUAL_FOLDERS = ("/bin", "/usr/bin", "/usr/local/bin")

Confine: TypeAlias = Callable[[list[str | bytes], dict[str, str]], tuple[list[str | bytes], dict[str, str]]]
"""Puts the call of a program, and its environment, into a sandbox."""


class Started(Struct, frozen=True):
    """A process that runs, and the descriptor its output comes from."""

    process: subprocess.Popen[bytes]
    output: int


@lru_cache(maxsize=8)
def find_bash(path: str | None) -> str:
    """The bash of this PATH, looked up once."""
    own = os.environ.get("PATH", os.defpath) if path is None else path
    for folder in (*own.split(os.pathsep), *USUAL_FOLDERS):
        found = os.path.join(folder, "bash")
        if folder and os.access(found, os.X_OK) and not os.path.isdir(found):
            return found
    raise ToolFailure("There is no bash on this machine, so commands cannot be run. Use the file tools instead.")


def bash_command(bash: str, command: bytes, script: Path | None) -> list[str | bytes]:
    """How bash is called for a command. One too long to be an argument is read from a `script`, which is written here."""
    plain: list[str | bytes] = [bash, "--norc", "--noprofile"]
    if script is None:
        return [*plain, "-c", "--", command]
    # Made anew and never through a link: the folder may be writable for a command that is still running.
    with open(script, "xb") as file:
        file.write(command)
    return [*plain, "--", str(script)]


def launch(argv: Sequence[str | bytes], *, cwd: str, env: Mapping[str, str]) -> Started:
    """Start a process in a session of its own with both streams in one pipe, so that their order is kept.

    Bash is called by its bare name, as from a prompt: it puts that name before its messages.
    """
    name = "bash" if os.path.basename(argv[0]) in ("bash", b"bash") else argv[0]
    read_end, write_end = os.pipe()
    try:
        _widen(read_end)
        # Nothing here may ask for code in the child, or another user: vfork would become a fork of all our memory.
        process = subprocess.Popen(
            [name, *argv[1:]],
            executable=argv[0],
            stdin=subprocess.DEVNULL,
            stdout=write_end,
            stderr=write_end,
            cwd=cwd,
            env=env,
            start_new_session=True,
        )
    except BaseException:
        os.close(read_end)
        raise
    finally:
        os.close(write_end)
    return Started(process, read_end)


def _widen(pipe: int) -> None:
    """A bigger pipe means fewer wake-ups; systems that refuse keep their default."""
    size = getattr(fcntl, "F_SETPIPE_SZ", None)
    if size is not None:
        try:
            fcntl.fcntl(pipe, size, PIPE_BYTES)
        except OSError:
            return


MARK = "WIELDY_MARK"
PREAMBLE = str(Path(__file__).with_name("preamble.sh"))
_UNEXPANDED = PREAMBLE.translate({ord(char): f"\\{char}" for char in '\\$`"'})

UNATTENDED: Mapping[str, str] = {
    "PAGER": "cat",
    "GIT_PAGER": "cat",
    "MANPAGER": "cat",
    "SYSTEMD_PAGER": "cat",
    "EDITOR": "true",
    "VISUAL": "true",
    "GIT_EDITOR": "true",
    "GIT_SEQUENCE_EDITOR": "true",
    "GIT_TERMINAL_PROMPT": "0",
    "GCM_INTERACTIVE": "never",
    "SSH_ASKPASS_REQUIRE": "never",
    "PIP_NO_INPUT": "1",
    "DEBIAN_FRONTEND": "noninteractive",
    "TERM": "dumb",
    "NO_COLOR": "1",
}
"""Answers given in advance by programs' own switches, so that none opens an editor, a pager or a prompt."""

FOREIGN = frozenset({"BASHOPTS", "CDPATH", "ENV", "GLOBIGNORE", "PROMPT_COMMAND", "SHELLOPTS"})
"""Variables by which the surrounding shell would change how bash reads a command."""

READ_FIRST = frozenset({"BASH_ENV", "WIELDY_ENV_FILE", "CLAUDE_ENV_FILE"})
"""Variables that name a file to be read before a command."""

SECRET = re.compile(
    r"(^|_|API|ACCESS)KEYS?(_|$)|(TOKEN|SECRET|PASSW(OR)?D|PASSPHRASE|CREDENTIAL|COOKIE)S?(_|$)"
    r"|(^|_)(AUTH|PAT)$|^DATABASE_URL$|_DSN$",
    re.IGNORECASE,
)


def command_environment(surrounding: Mapping[str, str], *, mark: str, at_exit: str | None) -> dict[str, str]:
    """What a command sees: the surrounding variables but the foreign ones, the unattended answers, mark and preamble.

    Without anything to do `at_exit` there is no preamble: that is for commands for which nothing has to be read first.
    """
    env = {name: value for name, value in surrounding.items() if name not in FOREIGN and name[:10] != "BASH_FUNC_"}
    if at_exit is not None and (users := env.get("BASH_ENV")) is not None:
        env["WIELDY_USERS_BASH_ENV"] = users
    # A wieldy inside a wieldy keeps the outer mark, or its shells would be lost to the outer one.
    outer = env.get(MARK)
    env |= UNATTENDED
    env[MARK] = f"{outer} {mark}" if outer else mark
    if at_exit is not None:
        env["BASH_ENV"] = _UNEXPANDED
        env["WIELDY_AT_EXIT"] = at_exit
    return env


def scrub_secrets(env: Mapping[str, str], keep: Iterable[str] = ()) -> tuple[dict[str, str], tuple[str, ...]]:
    """The environment without variables whose names speak of secrets, and the names that were taken out."""
    kept = frozenset(keep)
    removed = tuple(sorted(name for name in env if name not in kept and SECRET.search(name)))
    return {name: value for name, value in env.items() if name not in removed}, removed
