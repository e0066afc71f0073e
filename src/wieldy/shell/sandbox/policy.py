"""What a sandboxed command may access, for bubblewrap and Landlock alike.

The Landlock child runs without site-packages, so this module uses the standard library only.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from wieldy.core.workspace import Workspace


SECRET_PATHS = (
    "~/.ssh",
    "~/.gnupg",
    "~/.aws",
    "~/.azure",
    "~/.config/gcloud",
    "~/.config/gh",
    "~/.kube",
    "~/.docker/config.json",
    "~/.netrc",
    "~/.npmrc",
    "~/.pypirc",
    "~/.git-credentials",
    "/etc/shadow",
)
SERVICE_SOCKETS = ("/run/docker.sock", "/run/containerd", "/run/podman", "/run/dbus", "/run/user", "/tmp/.X11-unix")
"""Sockets of services that could act outside the sandbox for a command inside."""


@dataclass(frozen=True)
class SandboxPolicy:
    """Absolute paths. `protected` are read-only parts of `writable`; `unreadable` are hidden.

    Without `network`, `proxy_port` is the only loopback port that may be connected to.
    """

    writable: tuple[str, ...]
    protected: tuple[str, ...] = ()
    unreadable: tuple[str, ...] = ()
    network: bool = False
    proxy_port: int | None = None

    def as_json(self) -> str:
        """Encode it as an argument for another process."""
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> SandboxPolicy:
        """Decode it in another process."""
        fields = json.loads(text)
        paths = {name: tuple(fields[name]) for name in ("writable", "protected", "unreadable")}
        return SandboxPolicy(**paths, network=fields["network"], proxy_port=fields["proxy_port"])


def policy_for(workspace: Workspace, *, also_writable: tuple[str, ...] = ()) -> SandboxPolicy:
    """The policy of a workspace and its settings."""
    home = workspace.env.get("HOME") or os.path.expanduser("~")
    allow_write = _paths(workspace.setting("sandbox.allowWrite"), home, workspace.root)
    deny_read = _paths([*SECRET_PATHS, *SERVICE_SOCKETS, *workspace.setting("sandbox.denyRead")], home, workspace.root)
    allow_read = _paths(workspace.setting("sandbox.allowRead"), home, workspace.root)
    temporary = (workspace.env.get("TMPDIR") or tempfile.gettempdir(), "/tmp", "/var/tmp")
    git = [git_paths(root, workspace.roots) for root in workspace.roots]
    commits = (path for place in git for path in place.writable)
    return SandboxPolicy(
        writable=_existing((*workspace.roots, *temporary, *allow_write, *also_writable, *commits)),
        protected=_existing((*(path for place in git for path in place.protected), *_settings_files(workspace.roots))),
        unreadable=_existing(path for path in deny_read if path not in allow_read),
        network=workspace.setting("sandbox.network"),
    )


@dataclass(frozen=True)
class GitPaths:
    """Git's own files of a work tree: `writable` for commits, `protected` because they could run code later."""

    writable: tuple[str, ...] = ()
    protected: tuple[str, ...] = ()


def git_paths(root: str, roots: tuple[str, ...] = ()) -> GitPaths:
    """Find git's own files of a work tree; a linked work tree keeps them elsewhere.

    A command could have written `.git`, so its content alone makes nothing writable.
    """
    dot_git = Path(root, ".git")
    if dot_git.is_symlink():
        return GitPaths()
    folders = _linked_folders(dot_git, roots or (root,)) if dot_git.is_file() else (dot_git, dot_git)
    if folders is None or not all(map(os.path.isdir, folders)):
        return GitPaths()
    own, shared = folders
    # A folder that hooks could be put into must exist to be protected.
    with contextlib.suppress(OSError):
        (shared / "hooks").mkdir(exist_ok=True)
    risky = [shared / "hooks", shared / "config", shared / "config.worktree", own / "config.worktree"]
    for module in (shared / "modules").glob("**/hooks"):
        risky += [module, module.parent / "config"]
    # The folder itself is listed too: as its own mount, it cannot be moved away and replaced.
    return GitPaths(tuple({str(own): None, str(shared): None}), tuple(map(str, risky)))


def _linked_folders(dot_git: Path, roots: tuple[str, ...]) -> tuple[Path, Path] | None:
    """The folder that a `.git` file names, and the repository it belongs to.

    It must be within the roots, or be the folder of a linked work tree that names this work tree in turn.
    """
    try:
        text = dot_git.read_text(errors="replace").strip()
        own = Path(os.path.realpath(dot_git.parent / text.removeprefix("gitdir:").strip()))
        if not text.startswith("gitdir:"):
            return None
        if any(own.is_relative_to(root) for root in roots):
            return own, own
        named = os.path.realpath(own / (own / "gitdir").read_text(errors="replace").strip())
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
