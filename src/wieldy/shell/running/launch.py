"""Builds the environment and arguments of a bash for one command, and starts it without terminal and stdin."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Protocol, TypeAlias, TypeVar

from msgspec import Struct

from wieldy.core.errors import ToolFailure
from wieldy.core.programs import own_program
from wieldy.shell.running.process_tag import TAG_VARIABLE

MAX_ARGUMENT_BYTES = 100_000
PIPE_BYTES = 1 << 20
MEMORY_MB = 4_096
DEFAULT_FOLDERS = ("/bin", "/usr/bin", "/usr/local/bin")
PREAMBLE = str(Path(__file__).with_name("preamble.sh"))
RIPGREP_CONFIG = str(Path(__file__).with_name("ripgreprc"))
"""In place of the person's own: rg shows no lines of ignore files, which a project may have linked elsewhere."""
# Bash expands the value of BASH_ENV.
_ESCAPED_PREAMBLE = PREAMBLE.translate({ord(char): f"\\{char}" for char in '\\$`"'})

Confinement: TypeAlias = Callable[[list[str | bytes], dict[str, str]], tuple[list[str | bytes], dict[str, str]]]
"""Wraps the arguments and the environment of a program in a sandbox."""

NONINTERACTIVE: Mapping[str, str] = {
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
"""Variables that keep programs from opening an editor, a pager or a prompt."""

SHELL_VARIABLES = frozenset({"BASHOPTS", "CDPATH", "ENV", "GLOBIGNORE", "PROMPT_COMMAND", "SHELLOPTS"})
"""Variables of the surrounding shell that would change how bash reads a command."""

STARTUP_FILE_VARIABLES = frozenset({"BASH_ENV", "WIELDY_ENV_FILE", "CLAUDE_ENV_FILE"})
"""Variables that name a file to read before a command."""

SECRET_NAME = re.compile(
    r"(^|_|API|ACCESS)KEYS?(_|$)|(TOKEN|SECRET|PASSW(OR)?D|PASSPHRASE|CREDENTIAL|COOKIE)S?(_|$)"
    r"|(^|_)(AUTH|PAT|PASS|PASSCODE|PIN)$|_PWD$|^DATABASE_URL$|_DSN$",
    re.IGNORECASE,
)
_URL_WITH_PASSWORD = re.compile(r"\w://[^/\s@]*:[^/\s@]+@")


def find_bash(path: str | None) -> str:
    """The bash on this PATH, outside all projects. Raises `ToolFailure`."""
    search_path = os.environ.get("PATH", os.defpath) if path is None else path
    try:
        return own_program("bash", {"PATH": os.pathsep.join((search_path, *DEFAULT_FOLDERS))})
    except FileNotFoundError:
        text = "There is no bash on this machine, so commands cannot be run."
        raise ToolFailure(text, "Use the file tools instead.") from None


def bash_command(bash: str, command: bytes, script: Path | None) -> list[str | bytes]:
    """The arguments of bash for a command. One that is too long for an argument is written to `script`."""
    argv: list[str | bytes] = [bash, "--norc", "--noprofile"]
    if script is None:
        return [*argv, "-c", "--", command]
    # A new file, never through a link: a command that still runs may be able to write to the folder.
    with open(script, "xb") as file:
        file.write(command)
    return [*argv, "--", str(script)]


def command_environment(surrounding: Mapping[str, str], *, tag: str, at_exit: str | None) -> dict[str, str]:
    """The environment of a command: the surrounding one without shell variables, plus tag and preamble.

    Without `at_exit`, the command of the EXIT trap, there is no preamble.
    """
    env = {
        name: value for name, value in surrounding.items() if name not in SHELL_VARIABLES and name[:10] != "BASH_FUNC_"
    }
    if at_exit is not None and (users := env.get("BASH_ENV")) is not None:
        env["WIELDY_USERS_BASH_ENV"] = users
    # A wieldy inside a wieldy keeps the outer tag, so that the outer one finds its shells too.
    outer = env.get(TAG_VARIABLE)
    env |= NONINTERACTIVE
    env[TAG_VARIABLE] = f"{outer} {tag}" if outer else tag
    if at_exit is not None:
        env["BASH_ENV"] = _ESCAPED_PREAMBLE
        env["WIELDY_AT_EXIT"] = at_exit
    return env


def scrub_secrets(env: Mapping[str, str], keep: Iterable[str] = ()) -> tuple[dict[str, str], tuple[str, ...]]:
    """The environment without variables that look like secrets, and the names that were removed."""
    exceptions = frozenset(keep)
    removed = sorted(name for name, value in env.items() if name not in exceptions and _is_secret(name, value))
    return {name: value for name, value in env.items() if name not in removed}, tuple(removed)


def _is_secret(name: str, value: str) -> bool:
    """By its name, or because it is a URL with a password. Proxies stay: without them there is no network."""
    if SECRET_NAME.search(name):
        return True
    return "://" in value and not name.lower().endswith("_proxy") and _URL_WITH_PASSWORD.search(value) is not None


class Limit(Struct, frozen=True):
    """A resource limit, by its number in the module `resource`; a final one cannot be raised again."""

    kind: int
    value: int
    is_final: bool = True


class Limits(Struct, frozen=True):
    """What each process of a command may use, and how many processes it may have; 0 is no limit."""

    memory_mb: int = 0
    file_mb: int = 0
    processes: int = 0

    def resources(self) -> list[Limit]:
        """The limits that the kernel keeps for each process.

        Memory is what it has written to or may write to: address space would count the files that git and rg map.
        """
        import resource

        kinds = ((resource.RLIMIT_DATA, self.memory_mb), (resource.RLIMIT_FSIZE, self.file_mb))
        return [Limit(kind, megabytes << 20) for kind, megabytes in kinds if megabytes > 0]

    def apply(self, pid: int) -> None:
        """Limit a process that has just started, where the system can: Linux."""
        import resource

        for limit in self.resources() if hasattr(resource, "prlimit") else ():
            with contextlib.suppress(OSError, ValueError):
                hard = resource.prlimit(pid, limit.kind)[1]
                value = limit.value if hard == resource.RLIM_INFINITY else min(limit.value, hard)
                resource.prlimit(pid, limit.kind, (value, value))


NO_LIMITS = Limits()


@cache
def default_memory_mb() -> int:
    """What each process of a proven command may use. Sorting, git and jq on large inputs were seen to use up to 2 GB."""
    try:
        half = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") >> 21
    except (OSError, ValueError):
        half = MEMORY_MB
    return min(MEMORY_MB, half)


class StartedProcess(Protocol):
    """What a shell needs of its process."""

    @property
    def pid(self) -> int: ...

    def wait(self) -> int: ...


P = TypeVar("P", bound=StartedProcess)


class Program(Struct, frozen=True):
    """A program to start in its own session, without stdin: its file, arguments, folder, variables and descriptors for output."""

    file: str | bytes
    arguments: Sequence[str | bytes]
    cwd: str
    env: Mapping[str, str]
    outputs: Sequence[int]


def start_program(program: Program) -> subprocess.Popen[bytes]:
    """Start a program as our child. Raises OSError."""
    # Code in the child or another user would make subprocess fork all of our memory instead of using vfork.
    return subprocess.Popen(
        program.arguments,
        executable=program.file,
        stdin=subprocess.DEVNULL,
        stdout=program.outputs[0],
        stderr=program.outputs[-1],
        cwd=program.cwd,
        env=program.env,
        start_new_session=True,
    )


def launch(
    argv: Sequence[str | bytes],
    *,
    cwd: str,
    env: Mapping[str, str],
    pipes: int = 1,
    start: Callable[[Program], P],
) -> tuple[P, list[int]]:
    """Start a process in its own session; returns it and the read ends of its output.

    One pipe takes both streams and keeps their order; of two, the second is for stderr. Bash is called by its bare name,
    which it prints before its messages.
    """
    name = "bash" if os.path.basename(argv[0]) in ("bash", b"bash") else argv[0]
    read_ends: list[int] = []
    write_ends: list[int] = []
    try:
        for _ in range(pipes):
            read_end, write_end = os.pipe()
            read_ends.append(read_end)
            write_ends.append(write_end)
            _enlarge_pipe(read_end)
        process = start(Program(argv[0], [name, *argv[1:]], cwd, env, write_ends))
    except BaseException:
        for end in read_ends:
            os.close(end)
        raise
    finally:
        for end in write_ends:
            os.close(end)
    return process, read_ends


def _enlarge_pipe(pipe: int) -> None:
    """Enlarge a pipe for fewer wake-ups, where the system allows it."""
    size = getattr(fcntl, "F_SETPIPE_SZ", None)
    if size is not None:
        try:
            fcntl.fcntl(pipe, size, PIPE_BYTES)
        except OSError:
            return
