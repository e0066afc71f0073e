"""Holds commands within bounds by what this system has: bubblewrap, else Landlock, else nothing, and says which."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from wieldy.core.threads import in_thread
from wieldy.core.workspace import Workspace
from wieldy.shell.running.guardian import python_command
from wieldy.shell.running.launch import Confinement, find_bash, scrub_secrets
from wieldy.shell.sandbox import bridge, landlock
from wieldy.shell.sandbox.bubblewrap import bubblewrap_arguments, find_bubblewrap
from wieldy.shell.sandbox.policy import Bounds, bounds_of
from wieldy.shell.sandbox.proxy import ProxyEndpoint, SandboxProxy, proxy_environment

Mechanism = Literal["bubblewrap", "landlock", "none"]

_REFUSALS = re.compile(
    r"Permission denied|Read-only file system|Operation not permitted|Network is unreachable"
    r"|[Cc]ould not resolve host|Temporary failure in name resolution|Name or service not known|Device or resource busy"
)


class SandboxReport(Struct, frozen=True):
    """What a sandbox really enforces here, found out by trying it."""

    mechanism: Mechanism
    works: bool
    writes: bool
    reads: bool
    git: bool
    tcp: bool
    udp: bool

    def lines(self) -> list[str]:
        """The report for a person."""
        if self.mechanism == "none":
            return ["no sandbox: neither bubblewrap nor Landlock works here; commands run unconfined"]
        enforced = {
            "writes outside the allowed folders": self.writes,
            "reads of secret files": self.reads,
            "changes of git hooks and config": self.git,
            "TCP connections": self.tcp,
            "UDP datagrams": self.udp,
        }
        blocked = [f"  {'blocked' if held else 'NOT BLOCKED'}: {what}" for what, held in enforced.items()]
        return [f"sandbox: {self.mechanism}", *blocked]


class Sandbox:
    """The sandbox of a workspace: `workspace.service(Sandbox)`. What works is tried out once, at first use."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._wrapper: Wrapper | None = None

    @property
    def enabled(self) -> bool:
        """Whether the settings ask for it."""
        return self._workspace.setting("sandbox.enabled", False)

    async def wrapper(self) -> Wrapper:
        """The way commands are confined here."""
        if self._wrapper is None:
            wanted = self._workspace.setting("sandbox.mechanism", "auto")
            self._wrapper = await in_thread(choose, self._workspace.env.get("PATH"), wanted)
        return self._wrapper

    async def confinement(self, *, also_writable: tuple[str, ...] = ()) -> Confinement:
        """What holds the call of a program, and its environment, within the workspace's bounds as they are now."""
        wrapper = await self.wrapper()
        bounds = await in_thread(bounds_of, self._workspace, also_writable=also_writable)
        kept = self._workspace.setting("sandbox.keepEnv", list[str]())
        endpoint = await self._proxy_endpoint(bounds)
        further = proxy_environment(endpoint.port) if endpoint else {}
        prefix = wrapper.prefix(bounds, endpoint)

        def confine(argv: list[str | bytes], env: dict[str, str]) -> tuple[list[str | bytes], dict[str, str]]:
            return [*prefix, *argv], scrub_secrets(env, kept)[0] | further

        return confine

    async def _proxy_endpoint(self, bounds: Bounds) -> ProxyEndpoint | None:
        """The way out to the hosts that are allowed, where there are any."""
        if bounds.network or not self._workspace.setting("sandbox.allowedDomains", list[str]()):
            return None
        return await self._workspace.service(SandboxProxy).open()


class Wrapper(Struct, frozen=True):
    """A mechanism that was seen to work, and how a command is put into it."""

    mechanism: Mechanism
    program: str = ""
    own_processes: bool = True

    def prefix(self, bounds: Bounds, endpoint: ProxyEndpoint | None = None) -> list[str]:
        """What is put before a command."""
        if self.mechanism == "bubblewrap":
            inside = bubblewrap_arguments(self.program, bounds, own_processes=self.own_processes)
            bridged = python_command(bridge.START, endpoint.socket, str(endpoint.port)) if endpoint else None
            return [*inside, *(bridged or ())]
        if self.mechanism == "landlock":
            reachable = replace(bounds, proxy_port=endpoint.port if endpoint else None)
            return python_command(landlock.START, reachable.as_json()) or []
        return []


NONE = Wrapper("none")


def choose(path: str | None, wanted: str = "auto") -> Wrapper:
    """The best sandbox that works here, by trying each; `wanted` names one to insist on."""
    candidates: list[Wrapper] = []
    if wanted in ("auto", "bubblewrap") and (bwrap := find_bubblewrap(path)):
        candidates += [Wrapper("bubblewrap", bwrap), Wrapper("bubblewrap", bwrap, own_processes=False)]
    if wanted in ("auto", "landlock") and landlock.abi():
        candidates.append(Wrapper("landlock"))
    return next((each for each in candidates if _starts(each, path)), NONE)


def refusal_note(output: str) -> str | None:
    """A line that names the sandbox as the likely cause of what a command complains about."""
    found = _REFUSALS.search(output)
    if found is None:
        return None
    return (
        f"sandbox: the command was confined, which may be the cause of “{found[0]}”. It can write only in the allowed "
        "folders and temp, and has no network unless granted. Do not try to get round it; say what access is needed"
    )


async def probe(workspace: Workspace) -> SandboxReport:
    """Try out what the workspace's sandbox enforces, whether it is enabled or not."""
    wrapper = await workspace.service(Sandbox).wrapper()
    return await in_thread(try_out, wrapper, find_bash(workspace.env.get("PATH")))


def try_out(wrapper: Wrapper, bash: str) -> SandboxReport:
    """Do one of everything that shall be impossible, and see what happened."""
    with (
        tempfile.TemporaryDirectory() as folder,
        socket.create_server(("127.0.0.1", 0)) as tcp,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp,
    ):
        udp.bind(("127.0.0.1", 0))
        inside, outside, secret = (Path(folder, name) for name in ("inside", "outside", "secret"))
        hooks = inside / ".git" / "hooks"
        for each in (hooks, outside, secret):
            each.mkdir(parents=True)
        (secret / "key").write_text("secret")
        bounds = Bounds((str(inside), str(inside / ".git")), (str(hooks),), (str(secret),))
        script = (
            f"echo > {inside}/made && echo works; echo > {outside}/made && echo wrote; cat {secret}/key && echo; "
            f"echo > {hooks}/made && echo hooked; (: > /dev/tcp/127.0.0.1/{tcp.getsockname()[1]}) && echo connected; "
            f"echo datagram > /dev/udp/127.0.0.1/{udp.getsockname()[1]}"
        )
        said = _output([*wrapper.prefix(bounds), bash, "-c", script], cwd=str(inside)).split()
        return SandboxReport(
            wrapper.mechanism,
            works="works" in said,
            writes="wrote" not in said and not (outside / "made").exists(),
            reads="secret" not in said,
            git="hooked" not in said and not (hooks / "made").exists(),
            tcp="connected" not in said,
            udp=not _arrived(udp),
        )


def _starts(wrapper: Wrapper, path: str | None) -> bool:
    bash = find_bash(path)
    with tempfile.TemporaryDirectory() as folder:
        return _output([*wrapper.prefix(Bounds((folder,))), bash, "-c", "echo works"], cwd=folder).strip() == "works"


def _output(argv: Sequence[str], cwd: str) -> str:
    try:
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, cwd=cwd, timeout=10, check=False, env=dict(os.environ)
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.decode(errors="replace")


def _arrived(udp: socket.socket) -> bool:
    udp.settimeout(0.05)
    try:
        return bool(udp.recv(64))
    except OSError:
        return False
