"""What a sandboxed command may access, for bubblewrap and Landlock alike.

The Landlock child runs without site-packages, so this module uses the standard library only.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from wieldy.core.project_text import read_project_text
from wieldy.core.secret_files import HOME_SECRETS, SHOWN_IN_HOME, SYSTEM_SECRETS, TOOL_VARIABLES
from wieldy.core.state_dirs import make_private_folder, open_private, shared_folders

if TYPE_CHECKING:
    from wieldy.core.workspace import Workspace


SECRET_PATHS = (*(f"~/{path}" for path in HOME_SECRETS), *SYSTEM_SECRETS)
SYSTEM_FOLDERS = ("/usr", "/bin", "/lib", "/etc", "/opt", "/var", "/run", "/dev", "/proc", "/sys", "/nix")
TEMPORARY = ("/tmp", "/var/tmp")
PRIVATE_TEMP_NAME = "sandbox-tmp"
CACHES_NAME = ".build-caches"
OWN_PROGRAM = (sys.prefix, sys.base_prefix, str(Path(__file__).parents[3]))
SERVICE_SOCKETS = ("/run/docker.sock", "/run/containerd", "/run/podman", "/run/dbus", "/run/user", "/tmp/.X11-unix")
"""Sockets of services that could act outside the sandbox for a command inside."""
BUILD_CACHES = {
    "GOCACHE": "go-build",
    "GOLANGCI_LINT_CACHE": "golangci-lint",
    "UV_CACHE_DIR": "uv",
    "ZIG_GLOBAL_CACHE_DIR": "zig",
}
"""Caches below the home folder without which a program does not work at all, by the variable that moves them.

They are moved, not made writable: programs outside trust what they find there.
"""
FEW_RETRIES = {
    "npm_config_fetch_retries": "0",
    "PIP_RETRIES": "1",  # with none, pip does not say that the network is missing
    "UV_HTTP_RETRIES": "0",
    "CARGO_NET_RETRY": "0",
}
"""Without a network every attempt fails: npm would make them for more than a minute."""


@dataclass(frozen=True)
class SandboxPolicy:
    """Absolute paths. `protected` are read-only parts of `writable`; `unreadable` are hidden.

    Where the mechanism can, the folder `private_temp` takes the place of all of `temporary` except `readable`, and the
    Unix sockets in `sockets` are masked. Without `network`, `proxy_port` is the only loopback port that may be connected to.
    Of the folder `home`, only what is `writable`, `readable` or `shown` is there. `git_config` takes the place of the user's.
    """

    writable: tuple[str, ...]
    protected: tuple[str, ...] = ()
    unreadable: tuple[str, ...] = ()
    temporary: tuple[str, ...] = ()
    private_temp: str = ""
    readable: tuple[str, ...] = ()
    sockets: tuple[str, ...] = ()
    network: bool = False
    proxy_port: int | None = None
    home: str = ""
    shown: tuple[str, ...] = ()
    git_config: str = ""

    def as_json(self) -> str:
        """Encode it as an argument for another process."""
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> SandboxPolicy:
        """Decode it in another process."""
        fields: dict[str, Any] = json.loads(text)
        for name, value in fields.items():
            fields[name] = tuple(value) if isinstance(value, list) else value
        return SandboxPolicy(**fields)


def policy_for(
    workspace: Workspace,
    *,
    also_writable: tuple[str, ...] = (),
    hidden: tuple[str, ...] = (),
    read_only: tuple[str, ...] = (),
) -> SandboxPolicy:
    """The policy of a workspace and its settings; `hidden` and `read_only` are further files that programs must not touch."""
    home = workspace.env.get("HOME") or os.path.expanduser("~")
    allow_write = extra_writable(workspace)
    deny_read = _paths([*SECRET_PATHS, *SERVICE_SOCKETS, *workspace.setting("sandbox.denyRead")], home, workspace.root)
    allow_read = _paths(workspace.setting("sandbox.allowRead"), home, workspace.root)
    temporary = (workspace.env.get("TMPDIR") or tempfile.gettempdir(), *TEMPORARY)
    private_temp = workspace.session_dir / PRIVATE_TEMP_NAME
    make_private_folder(private_temp)
    git = [git_paths(root, workspace.roots) for root in workspace.roots]
    commits = (path for place in git for path in place.writable)
    writable = _existing((*workspace.roots, *allow_write, *also_writable, *commits))
    real_home = os.path.realpath(home)
    # A project that holds the home folder, or a grant of it, shows it; the secrets stay hidden. Programs of the system do not
    # lie in anybody's home.
    is_shown = any(_is_in(real_home, path) for path in (*writable, *map(os.path.realpath, allow_read)))
    is_hidden = (
        os.path.isdir(real_home) and not is_shown and not any(_is_in(path, real_home) for path in SYSTEM_FOLDERS)
    )
    git_config = without_credentials(os.path.join(home, ".gitconfig"), workspace.session_dir) if is_hidden else ""
    return SandboxPolicy(
        writable=writable,
        protected=_existing(
            (*(path for place in git for path in place.protected), *_settings_files(workspace.roots), *read_only)
        ),
        unreadable=_existing((*(path for path in deny_read if path not in allow_read), *hidden)),
        temporary=tuple(path for path in _existing(temporary) if path not in writable),
        private_temp=os.path.realpath(private_temp),
        readable=_existing((str(workspace.session_dir), *OWN_PROGRAM, *allow_read)),
        sockets=tuple(path for path in bound_sockets() if path not in allow_read),
        network=workspace.setting("sandbox.network"),
        home=real_home if is_hidden else "",
        shown=_shown_in_home(workspace, home, real_home, has_git_config=not git_config) if is_hidden else (),
        git_config=git_config,
    )


def _is_in(path: str, folder: str) -> bool:
    return f"{path}/".startswith(f"{folder.rstrip('/')}/")


def _shown_in_home(workspace: Workspace, home: str, real_home: str, *, has_git_config: bool) -> tuple[str, ...]:
    """What tools need of a home folder: what is in the list, what PATH and variables name, and our own shared folders."""
    variables = {**workspace.env, **workspace.setting("env")}
    named = [path for name in TOOL_VARIABLES for path in str(variables.get(name, "")).split(os.pathsep)]
    for folder in workspace.search_path:
        parent = os.path.dirname(folder)
        named += [folder, *([parent] if os.path.basename(folder) in ("bin", "shims", ".bin") else [])]
    named += [main_repository(root) or "" for root in workspace.roots]
    listed = [os.path.join(home, name) for name in (*SHOWN_IN_HOME, *([".gitconfig"] if has_git_config else []))]
    paths = [path for path in (*listed, *map(str, shared_folders(workspace.env)), *named) if os.path.isabs(path)]
    existing = _existing(tuple(os.path.normpath(path) for path in paths))
    return tuple(path for path in existing if path.startswith(f"{real_home}/"))


_CREDENTIAL = re.compile(r"extraheader|pass|token|secret|oauth|://[^/\s\"]*:[^/@\s\"]+@", re.IGNORECASE)


def without_credentials(git_config: str, folder: Path) -> str:
    """The path of a copy of git's settings without credentials; empty where there are none in them."""
    try:
        lines = Path(git_config).read_text(errors="surrogateescape").splitlines(keepends=True)
    except OSError:
        return ""
    if not any(map(_CREDENTIAL.search, lines)):
        return ""
    kept: list[str] = []
    in_secret_section = False
    for line in lines:
        if line.lstrip().startswith("["):
            in_secret_section = _CREDENTIAL.search(line) is not None
        if not in_secret_section and not _CREDENTIAL.search(line):
            kept.append(line)
    make_private_folder(folder)
    copy = folder / "gitconfig"
    with open(copy, "w", errors="surrogateescape", opener=open_private) as file:
        file.writelines(kept)
    return os.path.realpath(copy)


def secret_paths(workspace: Workspace) -> tuple[str, ...]:
    """What commands must not read unless it was named and judged, whether it exists or not."""
    home = workspace.env.get("HOME") or os.path.expanduser("~")
    readable, unreadable = workspace.setting("sandbox.allowRead"), workspace.setting("sandbox.denyRead")
    allowed = _paths(readable, home, workspace.root)
    denied = _paths([*SECRET_PATHS, *unreadable], home, workspace.root)
    return tuple(path for path in denied if path not in allowed)


def program_variables(policy: SandboxPolicy, *, has_proxy: bool = False) -> dict[str, str]:
    """Variables for programs in a sandbox with a private temp folder: where to keep build caches, and not to retry in vain."""
    temp = policy.temporary[:1]
    caches = {name: os.path.join(*temp, CACHES_NAME, folder) for name, folder in BUILD_CACHES.items() if temp}
    return caches if policy.network or has_proxy else caches | FEW_RETRIES


def extra_writable(workspace: Workspace) -> list[str]:
    """The folders of `sandbox.allowWrite`."""
    home = workspace.env.get("HOME") or os.path.expanduser("~")
    return _paths(workspace.setting("sandbox.allowWrite"), home, workspace.root)


def bound_sockets() -> tuple[str, ...]:
    """The files of all Unix sockets that have a listener: agents, multiplexers, daemons."""
    try:
        lines = Path("/proc/net/unix").read_text(errors="surrogateescape").splitlines()[1:]
    except OSError:
        return ()
    names = {fields[7] for line in lines if len(fields := line.split(None, 7)) == 8}
    return _existing(tuple(sorted(name for name in names if name.startswith("/"))))


@dataclass(frozen=True)
class GitPaths:
    """Git's own files of a work tree: `writable` for commits, `protected` because they could run code later."""

    writable: tuple[str, ...] = ()
    protected: tuple[str, ...] = ()


def git_paths(root: str, roots: tuple[str, ...] = ()) -> GitPaths:
    """Find git's own files of a work tree; a linked work tree keeps them elsewhere.

    A command could have written `.git`, so its content alone makes nothing writable.
    """
    folders = repository_folders(root, roots)
    if not folders:
        return GitPaths()
    own, shared = map(Path, folders)
    # A folder that hooks could be put into must exist to be protected.
    with contextlib.suppress(OSError):
        (shared / "hooks").mkdir(exist_ok=True)
    risky = [shared / "hooks", shared / "config", shared / "config.worktree", own / "config.worktree"]
    risky += [own / "commondir", own / "gitdir"]
    for module in (shared / "modules").glob("**/hooks"):
        risky += [module, module.parent / "config"]
    # The folder itself is listed too: as its own mount, it cannot be moved away and replaced.
    return GitPaths(tuple({str(own): None, str(shared): None}), tuple(map(str, risky)))


def repository_folders(root: str, roots: tuple[str, ...] = ()) -> tuple[str, ...]:
    """The folders of a work tree's own files of git and of those that it shares with others; none without a repository."""
    dot_git = Path(root, ".git")
    if dot_git.is_symlink():
        return ()
    folders = _linked_folders(dot_git, roots or (root,)) if dot_git.is_file() else (dot_git, dot_git)
    return tuple(map(str, folders)) if folders is not None and all(map(os.path.isdir, folders)) else ()


def enclosing_work_tree(folder: str) -> str | None:
    """The nearest folder, this one or above it, that git takes for a work tree."""
    while not os.path.lexists(os.path.join(folder, ".git")):
        if folder == os.path.dirname(folder):
            return None
        folder = os.path.dirname(folder)
    return folder


def main_repository(root: str) -> str | None:
    """The folder of the repository that a linked work tree belongs to; None for anything else."""
    dot_git = Path(root, ".git")
    if dot_git.is_symlink() or not dot_git.is_file():
        return None
    folders = _linked_folders(dot_git, (root,))
    if folders is None or folders[0] == folders[1]:
        return None
    shared = folders[1]
    return str(shared.parent if shared.name == ".git" else shared)


def _linked_folders(dot_git: Path, roots: tuple[str, ...]) -> tuple[Path, Path] | None:
    """The folder that a `.git` file names, and the repository it belongs to.

    It must be within the roots, or be the folder of a linked work tree that names this work tree in turn.
    """
    try:
        text = read_project_text(dot_git).strip()
        own = Path(os.path.realpath(dot_git.parent / text.removeprefix("gitdir:").strip()))
        if not text.startswith("gitdir:"):
            return None
        if any(own.is_relative_to(root) for root in roots):
            return own, own
        named = os.path.realpath(own / read_project_text(own / "gitdir").strip())
    except (OSError, ValueError):
        return None
    if own.parent.name != "worktrees" or named != os.path.realpath(dot_git):
        return None
    return own, own.parent.parent


def _settings_files(roots: tuple[str, ...]) -> Iterator[str]:
    for root in roots:
        for name in (".wieldy", ".claude", ".mcp.json", ".gitmodules"):
            yield os.path.join(root, name)


def _paths(listed: list[str], home: str, root: str) -> list[str]:
    expanded = (home + path[1:] if path == "~" or path.startswith("~/") else path for path in listed)
    return [os.path.normpath(os.path.join(root, path)) for path in expanded]


def _existing(paths: Iterator[str] | tuple[str, ...]) -> tuple[str, ...]:
    real = (os.path.realpath(path) for path in paths if os.path.exists(path))
    return tuple(dict.fromkeys(real))


@dataclass(frozen=True)
class ProxyEndpoint:
    """Where the proxy listens: a loopback port, and a Unix socket for sandboxes with a loopback of their own."""

    port: int
    socket: str


class ProxyService(Protocol):
    """Opens the proxy at the first call."""

    async def open(self) -> ProxyEndpoint: ...


def proxy_environment(port: int) -> dict[str, str]:
    """The variables by which programs find the proxy."""
    address = f"http://127.0.0.1:{port}"
    names = ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy")
    return {**dict.fromkeys(names, address), "NO_PROXY": "", "no_proxy": ""}
