"""Chooses and applies the sandbox that works on this system: bubblewrap, else Landlock, else none."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from wieldy.core.programs import own_program, own_python
from wieldy.core.text import truncate
from wieldy.core.threads import in_thread
from wieldy.core.workspace import Workspace
from wieldy.shell.effects.programs.exit_codes import NETWORK_EXIT_CODES
from wieldy.shell.effects.programs.profiles import profile_of
from wieldy.shell.running.launch import Confinement, find_bash
from wieldy.shell.sandbox import bridge, kernel, landlock
from wieldy.shell.sandbox.policy import (
    CACHES_NAME,
    PRIVATE_TEMP_NAME,
    ProxyEndpoint,
    ProxyService,
    SandboxPolicy,
    enclosing_work_tree,
    extra_writable,
    policy_for,
    program_variables,
    proxy_environment,
    repository_folders,
)

if TYPE_CHECKING:
    from wieldy.shell.effects.analysis import Analysis

Mechanism = Literal["bubblewrap", "landlock", "none"]

MAX_BLOCKED = 32
MAX_QUOTED = 160
_NO_NETWORK = (
    r"[Nn]etwork is unreachable|[Cc]ould ?n.t resolve|[Cc]ould not resolve|Temporary failure in name resolution"
)
_BLOCKED_NETWORK = re.compile(
    rf"{_NO_NETWORK}|Name or service not known|nodename nor servname|getaddrinfo|EAI_AGAIN|ENETUNREACH|ENOTFOUND|dial tcp"
    r"|No route to host|[Ff]ailed to (connect|establish a new connection)|Cannot assign requested address"
    # Servers on this machine are outside, too.
    r"|error sending request|[Cc]onnection refused|ECONNREFUSED|Cannot connect to the Docker daemon"
)
_READ_ONLY = r"[Rr]ead-only file system|ReadOnlyFileSystem|EROFS"
_BLOCKED_FILE = re.compile(
    rf"{_READ_ONLY}|[Pp]ermission denied|EACCES|[Oo]peration not permitted|EPERM|Device or resource busy|EBUSY"
    # The temp folder is another one inside.
    r"|/tmp/\S*: (No such file or directory|Directory nonexistent)|ENOENT.*/tmp/"
)
# Messages that hardly come from anything else: they count even if the command as a whole succeeded, as `curl URL | head` does.
_SURELY_BLOCKED = re.compile(rf"{_NO_NETWORK}|EAI_AGAIN|{_READ_ONLY}")
PUT_ASIDE = "they are put aside when the command has ended, or when its output is read"


class SandboxReport(Struct, frozen=True):
    """What a sandbox enforces on this system, as a trial showed."""

    mechanism: Mechanism
    works: bool
    writes: bool
    reads: bool
    inner_reads: bool
    git: bool
    tcp: bool
    udp: bool
    sockets: bool

    @property
    def is_complete(self) -> bool:
        """Whether it works and lets nothing through."""
        return self.works and all(self._enforced().values())

    def _enforced(self) -> dict[str, bool]:
        return {
            "writes outside the allowed folders": self.writes,
            "reads of secret files": self.reads,
            "reads of denied and secret files in folders that commands may write": self.inner_reads,
            "changes of git hooks and config": self.git,
            "TCP connections": self.tcp,
            "UDP datagrams": self.udp,
            "connections to Unix sockets": self.sockets,
        }

    def lines(self) -> list[str]:
        if self.mechanism == "none":
            return [
                "no sandbox: neither bubblewrap nor Landlock works here; commands run unconfined",
                "  NOT BLOCKED: writes, reads of secret files and connections of programs that a command starts",
                f"  NOT BLOCKED: changes of protected files; {PUT_ASIDE}",
            ]
        enforced = self._enforced()
        blocked = [f"  {'blocked' if held else 'NOT BLOCKED'}: {what}" for what, held in enforced.items()]
        blocked += [] if self.git else [f"  {PUT_ASIDE}"]
        gap = "  sandbox.autoAllow has no effect here: commands in this sandbox ask as others do"
        return [f"sandbox: {self.mechanism}", *blocked, *(() if all(enforced.values()) else (gap,))]


class Sandbox:
    """The sandbox of a workspace: `workspace.services.sandbox`. The first use tries out what works."""

    def __init__(self, workspace: Workspace, proxy: Callable[[], ProxyService]) -> None:
        self._workspace = workspace
        self._proxy = proxy
        self._wrapper: Wrapper | None = None
        self._holds: bool | None = None
        self._blocked: dict[str, str] = {}

    @property
    def enabled(self) -> bool:
        return self._workspace.setting("sandbox.enabled") is True

    async def wrapper(self) -> Wrapper:
        """The wrapper that works here."""
        if not self._workspace.files.is_local:
            return NO_SANDBOX  # it would confine the client of the backend, and not the command
        if self._wrapper is None:
            mechanism = self._workspace.setting("sandbox.mechanism")
            self._wrapper = await in_thread(choose_wrapper, self._workspace.env.get("PATH"), mechanism)
        return self._wrapper

    async def holds(self) -> bool:
        """Whether a trial showed that everything is blocked that should be: then commands in it need no question."""
        if not self._workspace.files.is_local:
            return False
        if self._holds is None:
            wrapper = await self.wrapper()
            bash = find_bash(self._workspace.env.get("PATH"))
            self._holds = wrapper.is_complete and (await in_thread(probe_wrapper, wrapper, bash)).is_complete
        return self._holds

    def excludes(self, analysis: Analysis) -> bool:
        """Whether the settings let every program of a command run outside the sandbox."""
        excluded = frozenset(self._workspace.setting("sandbox.excludedCommands"))
        if not excluded or analysis.problems:
            return False
        return all({part.program, *part.wrappers} <= excluded for part in analysis.parts)

    def hides_processes_from(self, programs: Iterable[str]) -> bool:
        """Whether programs in the sandbox do not find the processes that they look for. Once it was used."""
        has_own = self._wrapper is not None and self._wrapper.mechanism == "bubblewrap" and self._wrapper.own_processes
        return has_own and any(profile_of(program).looks_for_processes for program in programs)

    def note_blocked(self, command: str, what: str) -> None:
        """Remember what the sandbox kept a command from, for the question about running it outside."""
        self._blocked.pop(command, None)
        self._blocked[command] = what
        while len(self._blocked) > MAX_BLOCKED:
            del self._blocked[next(iter(self._blocked))]

    def reason_to_leave(self, command: str) -> str:
        """Why a command is to run outside the sandbox."""
        what = self._blocked.get(command)
        return f"inside, it was kept from {what}" if what else "the model wants it outside"

    async def confinement(
        self,
        *,
        also_writable: tuple[str, ...] = (),
        hidden: tuple[str, ...] = (),
        read_only: tuple[str, ...] = (),
        writes_nothing: bool = False,
    ) -> Confinement:
        """A function that wraps a program and its environment by the workspace's current policy.

        With `writes_nothing`, the project is read-only and there is no network.
        """
        wrapper = await self.wrapper()
        policy = await in_thread(
            policy_for, self._workspace, also_writable=also_writable, hidden=hidden, read_only=read_only
        )
        if writes_nothing:
            writable = _existing_folders(also_writable)
            policy = replace(policy, writable=writable, readable=(*policy.readable, *policy.writable), network=False)
        endpoint, proxy_env = await self._open_proxy(policy)
        if writes_nothing:
            endpoint = None
        variables = {"GIT_CONFIG_GLOBAL": policy.git_config} if policy.git_config else {}
        if wrapper.mechanism == "bubblewrap":
            variables = program_variables(policy, has_proxy=endpoint is not None)

        def confine(argv: list[str | bytes], env: dict[str, str]) -> tuple[list[str | bytes], dict[str, str]]:
            return [*wrapper.prefix(policy, endpoint), *argv], variables | env | proxy_env

        return confine

    def watched_folders(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The folders that commands in the sandbox may write, and those of them in which only repositories matter."""
        workspace = self._workspace
        folders = [*self.project_folders(), *extra_writable(workspace)]
        private = [os.path.realpath(path) for path in (workspace.session_dir / PRIVATE_TEMP_NAME,)]
        existing = dict.fromkeys(os.path.realpath(folder) for folder in folders if os.path.isdir(folder))
        return (*existing, *private), tuple(private)

    def project_folders(self) -> tuple[str, ...]:
        """The roots, and the folders of their repositories, which may lie elsewhere."""
        roots = self._workspace.roots
        trees = (enclosing_work_tree(root) or root for root in roots)
        return tuple(dict.fromkeys((*roots, *(path for tree in trees for path in repository_folders(tree, roots)))))

    async def aclose(self) -> None:
        """Remove the build caches of the session, which can be large."""
        caches = self._workspace.session_dir / PRIVATE_TEMP_NAME / CACHES_NAME
        await in_thread(shutil.rmtree, caches, ignore_errors=True)

    async def shield(self, folders: Sequence[str]) -> Confinement | None:
        """A function that makes some folders read-only for a program and confines nothing else; None if nothing can do that."""
        wrapper = await self.wrapper()
        if wrapper.mechanism != "bubblewrap":
            return None
        roots = [os.path.realpath(folder) for folder in self._workspace.roots]
        mounts = [word for folder in folders if os.path.isdir(folder) for word in ("--ro-bind", folder, folder)]
        mounts += [word for root in roots for word in ("--bind", root, root)]  # the copy may be inside the original
        prefix = [wrapper.program, "--dev-bind", "/", "/", *mounts, "--die-with-parent", "--"]

        def confine(argv: list[str | bytes], env: dict[str, str]) -> tuple[list[str | bytes], dict[str, str]]:
            return [*prefix, *argv], env

        return confine

    async def reading_confinement(self, hidden: tuple[str, ...]) -> Confinement | None:
        """A function by which a program can write nothing but its report, reach no network and not read what is hidden.

        For where the confined launcher does not work; None where bubblewrap does not either.
        """
        wrapper = await self.wrapper()
        if wrapper.mechanism != "bubblewrap":
            return None
        folder = str(self._workspace.services.shells.folder)
        real = tuple(dict.fromkeys(os.path.realpath(path) for path in hidden if os.path.exists(path)))
        prefix = wrapper.prefix(SandboxPolicy(_existing_folders((folder,)), unreadable=real))

        def confine(argv: list[str | bytes], env: dict[str, str]) -> tuple[list[str | bytes], dict[str, str]]:
            return [*prefix, *argv], env

        return confine

    async def _open_proxy(self, policy: SandboxPolicy) -> tuple[ProxyEndpoint | None, dict[str, str]]:
        """The proxy to the allowed hosts, if there are any, and the variables by which programs find it."""
        if policy.network or not self._workspace.setting("sandbox.allowedDomains"):
            return None, {}
        endpoint = await self._proxy().open()
        return endpoint, proxy_environment(endpoint.port)


def _existing_folders(folders: Sequence[str]) -> tuple[str, ...]:
    return tuple(os.path.realpath(folder) for folder in folders if os.path.isdir(folder))


class Wrapper(Struct, frozen=True):
    """A mechanism that works here, and how it wraps a command."""

    mechanism: Mechanism
    program: str = ""
    own_processes: bool = True

    @property
    def is_complete(self) -> bool:
        """Whether it holds everything a policy asks for. Landlock knows neither Unix sockets, UDP nor read-only parts."""
        return self.mechanism == "bubblewrap"

    def prefix(self, policy: SandboxPolicy, endpoint: ProxyEndpoint | None = None) -> list[str]:
        """The arguments to put before a command."""
        if self.mechanism == "bubblewrap":
            if endpoint:
                sockets = tuple(path for path in policy.sockets if path != os.path.realpath(endpoint.socket))
                readable = (*policy.readable, os.path.dirname(endpoint.socket))
                policy = replace(policy, readable=readable, sockets=sockets)
            bwrap = bubblewrap_arguments(self.program, policy, own_processes=self.own_processes)
            bridge_command = (
                own_python(bridge.START_CODE, endpoint.socket, str(endpoint.port), installed=False)
                if endpoint
                else None
            )
            return [*bwrap, *(bridge_command or ())]
        if self.mechanism == "landlock":
            policy = replace(policy, proxy_port=endpoint.port if endpoint else None)
            return own_python(landlock.START_CODE, policy.as_json(), installed=False) or []
        return []


NO_SANDBOX = Wrapper("none")


def bubblewrap_arguments(bwrap: str, policy: SandboxPolicy, *, own_processes: bool = True) -> list[str]:
    """The bwrap command of a policy. `own_processes` hides all other processes; some containers do not permit that."""
    arguments = [bwrap, "--ro-bind", "/", "/", "--dev", "/dev"]
    arguments += ["--unshare-pid", "--proc", "/proc"] if own_processes else []
    arguments += ["--unshare-ipc", "--cap-drop", "ALL", "--die-with-parent"]
    arguments += [] if policy.network else ["--unshare-net"]
    mounts = {path: ["--bind", policy.private_temp, path] for path in policy.temporary}
    # A home folder inside a temporary one is not there anyway.
    home = "" if not policy.home or _covering(policy.home, policy.temporary) else policy.home
    replaced = (*policy.temporary, *([home] if home else []))
    if home:
        mounts[home] = ["--tmpfs", home]
        mounts |= {path: ["--ro-bind", path, path] for path in policy.shown}
        if policy.git_config:
            path = f"{home}/.gitconfig"
            mounts[path] = ["--ro-bind", policy.git_config, path]
    mounts |= {path: ["--ro-bind", path, path] for path in policy.readable if _covering(path, replaced)}
    mounts |= {path: ["--bind", path, path] for path in policy.writable}
    # A later mount covers an earlier one, so inner folders come after outer ones.
    for path in sorted(mounts):
        arguments += mounts[path]
    for path in sorted(each for each in policy.protected if not home or _covering(each, mounts) != home):
        arguments += ["--ro-bind", path, path]
    hidden = set(policy.unreadable)
    # A socket may be gone since the policy was made; bwrap cannot cover what is not there.
    sockets = filter(os.path.exists, policy.sockets)
    hidden |= {path for path in sockets if not _covering(path, policy.unreadable)}
    for path in sorted(hidden):
        # What the private temp folder and an empty home folder replace is not there.
        if _covering(path, mounts) not in replaced:
            arguments += ["--tmpfs", path] if os.path.isdir(path) else ["--ro-bind", "/dev/null", path]
    arguments += ["--remount-ro", home] if home else []
    return [*arguments, "--"]


def _covering(path: str, folders: Iterable[str]) -> str | None:
    """The innermost of the folders that a path is in."""
    return max((each for each in folders if f"{path}/".startswith(f"{each.rstrip('/')}/")), key=len, default=None)


def choose_wrapper(path: str | None, mechanism: str = "auto") -> Wrapper:
    """The best sandbox that works here, by trying each; `mechanism` allows only one."""
    candidates: list[Wrapper] = []
    if mechanism in ("auto", "bubblewrap"):
        with contextlib.suppress(FileNotFoundError):
            bwrap = own_program("bwrap", os.environ if path is None else {"PATH": path})
            candidates += [Wrapper("bubblewrap", bwrap), Wrapper("bubblewrap", bwrap, own_processes=False)]
    if mechanism in ("auto", "landlock") and kernel.abi():
        candidates.append(Wrapper("landlock"))
    return next((each for each in candidates if _works(each, path)), NO_SANDBOX)


def find_blocked(
    output: str, *, code: int | None = None, program: str | None = None, home: str = "", roots: Sequence[str] = ()
) -> str | None:
    """What the sandbox seems to have kept a command from, with the line of its output that says so.

    `code` is the exit code of the command line, `program` the program that ran last in it. Of `home`, it shows little beside
    the `roots`.
    """
    lines = [line for line in reversed(output.splitlines()) if code != 0 or _SURELY_BLOCKED.search(line)]
    for what, pattern in (("the network", _BLOCKED_NETWORK), ("a file", _BLOCKED_FILE)):
        misses_home = what == "a file" and bool(home)
        line = next(
            (line for line in lines if pattern.search(line) or (misses_home and _misses_home(line, home, roots))), None
        )
        if line is not None:
            return f"{what}: “{truncate(line.strip(), MAX_QUOTED)}”"
    if code is not None and code in NETWORK_EXIT_CODES.get(program or "", ()):
        return f"the network: {program} ended with exit code {code}"
    return None


def _misses_home(line: str, home: str, roots: Sequence[str]) -> bool:
    is_missing = "No such file or directory" in line or "ENOENT" in line
    return is_missing and f"{home}/" in line and not any(root in line for root in roots)


def blocked_note(what: str, *, may_leave: bool) -> str:
    """A note for the model about a command that the sandbox was in the way of."""
    return (
        f"sandbox: the command could write only in the project and temp, saw little of the home folder and had no network, "
        f"which may have kept it from {what}. {_way_on(may_leave)}"
    )


def hidden_processes_note(*, may_leave: bool) -> str:
    """A note for the model about a command that looked for processes."""
    return f"sandbox: processes and ports of other commands and programs are not visible inside. {_way_on(may_leave)}"


def _way_on(may_leave: bool) -> str:
    if may_leave:
        return "If it needs that, call Bash again with the same command and `sandbox: false`: the user is asked"
    return "The settings keep commands in the sandbox: do not try to get round it, say what access is needed"


async def probe(workspace: Workspace) -> SandboxReport:
    """Test what the workspace's sandbox enforces, whether it is enabled or not."""
    wrapper = await workspace.services.sandbox.wrapper()
    return await in_thread(probe_wrapper, wrapper, find_bash(workspace.env.get("PATH")))


def probe_wrapper(wrapper: Wrapper, bash: str) -> SandboxReport:
    """Try everything that should be impossible, and report what happened."""
    with (
        tempfile.TemporaryDirectory() as folder,
        socket.create_server(("127.0.0.1", 0)) as tcp,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp,
        socket.socket(socket.AF_UNIX) as agent,
    ):
        udp.bind(("127.0.0.1", 0))
        inside, outside, secret = (Path(folder, name) for name in ("inside", "outside", "secret"))
        hooks = inside / ".git" / "hooks"
        for each in (hooks, outside, secret):
            each.mkdir(parents=True)
        (secret / "key").write_text("secret\n")
        denied = inside / "denied"
        denied.write_text("denied")
        agent.bind(f"{outside}/agent")
        agent.listen()
        policy = SandboxPolicy(
            (str(inside), str(inside / ".git")),
            (str(hooks),),
            (str(secret), str(denied)),
            sockets=(f"{outside}/agent",),
        )
        connect = f"import socket; socket.socket(socket.AF_UNIX).connect('{outside}/agent')"
        joining = shlex.join(own_python(connect, installed=False) or ["false"])
        script = (
            f"echo > {inside}/made && echo works; echo > {outside}/made && echo wrote; cat {secret}/key {denied}; echo; "
            f"echo > {hooks}/made && echo hooked; (: > /dev/tcp/127.0.0.1/{tcp.getsockname()[1]}) && echo connected; "
            f"echo datagram > /dev/udp/127.0.0.1/{udp.getsockname()[1]}; "
            f"{joining} && echo joined"
        )
        words = _run([*wrapper.prefix(policy), bash, "-c", script], cwd=str(inside)).split()
        return SandboxReport(
            wrapper.mechanism,
            works="works" in words,
            writes="wrote" not in words and not (outside / "made").exists(),
            reads="secret" not in words,
            inner_reads="denied" not in words,
            git="hooked" not in words and not (hooks / "made").exists(),
            tcp="connected" not in words,
            udp=not _received(udp),
            sockets="joined" not in words,
        )


def _works(wrapper: Wrapper, path: str | None) -> bool:
    bash = find_bash(path)
    with tempfile.TemporaryDirectory() as folder:
        return (
            _run([*wrapper.prefix(SandboxPolicy((folder,))), bash, "-c", "echo works"], cwd=folder).strip() == "works"
        )


def _run(argv: Sequence[str], cwd: str) -> str:
    try:
        process = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, cwd=cwd, timeout=10, check=False, env=dict(os.environ)
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return process.stdout.decode(errors="replace")


def _received(udp: socket.socket) -> bool:
    udp.settimeout(0.05)
    try:
        return bool(udp.recv(64))
    except OSError:
        return False
