"""What a sandboxed command may touch, as data: both sandboxes are built from it."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import asdict

if TYPE_CHECKING:
    from wieldy.core.workspace import Workspace


SECRETS = (
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
WAYS_OUT = ("/run/docker.sock", "/run/containerd", "/run/podman", "/run/dbus", "/run/user", "/tmp/.X11-unix")
"""Sockets of services that would do outside what is forbidden inside."""


class Bounds(Struct, frozen=True):
    """Absolute paths. `protected` lie inside `writable` and stay as they are; `unreadable` are hidden altogether.

    Without `network`, `proxy_port` is the one loopback port that may still be connected to.
    """

    writable: tuple[str, ...]
    protected: tuple[str, ...] = ()
    unreadable: tuple[str, ...] = ()
    network: bool = False
    proxy_port: int | None = None

    def as_json(self) -> str:
        """These bounds as an argument of another process."""
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> Bounds:
        """The bounds another process was given."""
        told = json.loads(text)
        paths = {name: tuple(told[name]) for name in ("writable", "protected", "unreadable")}
        return Bounds(**paths, network=told["network"], proxy_port=told["proxy_port"])


def bounds_of(workspace: Workspace, *, also_writable: tuple[str, ...] = ()) -> Bounds:
    """The bounds a workspace and its settings ask for."""
    home = workspace.env.get("HOME") or os.path.expanduser("~")
    granted = _paths(workspace.setting("sandbox.allowWrite", list[str]()), home, workspace.root)
    denied = _paths([*SECRETS, *WAYS_OUT, *workspace.setting("sandbox.denyRead", list[str]())], home, workspace.root)
    kept = _paths(workspace.setting("sandbox.allowRead", list[str]()), home, workspace.root)
    temporary = (workspace.env.get("TMPDIR") or tempfile.gettempdir(), "/tmp", "/var/tmp")
    git = [git_places(root, workspace.roots) for root in workspace.roots]
    commits = (path for place in git for path in place.writable)
    return Bounds(
        writable=_existing((*workspace.roots, *temporary, *granted, *also_writable, *commits)),
        protected=_existing((*(path for place in git for path in place.protected), *_settings(workspace.roots))),
        unreadable=_existing(path for path in denied if path not in kept),
        network=workspace.setting("sandbox.network", False),
    )


class GitPlaces(Struct, frozen=True):
    """Git's own files of one work tree: what commits write, and what would run code later."""

    writable: tuple[str, ...] = ()
    protected: tuple[str, ...] = ()


def git_places(root: str, roots: tuple[str, ...] = ()) -> GitPlaces:
    """Where git keeps its files for a work tree; a linked work tree keeps them elsewhere.

    A command could have written what is read here, so that nothing becomes writable on its word alone.
    """
    dot_git = Path(root, ".git")
    if dot_git.is_symlink():
        return GitPlaces()
    found = _linked(dot_git, roots or (root,)) if dot_git.is_file() else (dot_git, dot_git)
    if found is None or not all(map(os.path.isdir, found)):
        return GitPlaces()
    own, shared = found
    # A folder that hooks could be put into must exist to be protected.
    with contextlib.suppress(OSError):
        (shared / "hooks").mkdir(exist_ok=True)
    risky = [shared / "hooks", shared / "config", shared / "config.worktree", own / "config.worktree"]
    for module in (shared / "modules").glob("**/hooks"):
        risky += [module, module.parent / "config"]
    # The folder itself is named as well: mounted on its own, it cannot be moved away and replaced.
    return GitPlaces(tuple({str(own): None, str(shared): None}), tuple(map(str, risky)))


def _linked(dot_git: Path, roots: tuple[str, ...]) -> tuple[Path, Path] | None:
    """The folder a `.git` file names, and the repository it is part of.

    It must lie within the roots, or be a linked work tree's and name this very work tree in turn.
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


def _settings(roots: tuple[str, ...]) -> Iterator[str]:
    for root in roots:
        for name in (".wieldy", ".claude", ".mcp.json", ".gitmodules"):
            yield os.path.join(root, name)


def _paths(listed: list[str], home: str, root: str) -> list[str]:
    expanded = (home + path[1:] if path == "~" or path.startswith("~/") else path for path in listed)
    return [os.path.normpath(os.path.join(root, path)) for path in expanded]


def _existing(paths: Iterator[str] | tuple[str, ...]) -> tuple[str, ...]:
    real = (os.path.realpath(path) for path in paths if os.path.exists(path))
    return tuple(dict.fromkeys(real))
