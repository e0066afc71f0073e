"""What a sandboxed command may touch, as data: both sandboxes are built from it."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

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
WAYS_OUT = ("/run/docker.sock", "/run/containerd", "/run/podman", "/run/dbus")
"""Sockets of services that would do outside what is forbidden inside."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Absolute paths. `protected` lie inside `writable` and stay as they are; `unreadable` are hidden altogether.

    Without `network`, `door` is the one loopback port that may still be connected to.
    """

    writable: tuple[str, ...]
    protected: tuple[str, ...] = ()
    unreadable: tuple[str, ...] = ()
    network: bool = False
    door: int | None = None

    def as_json(self) -> str:
        """These bounds as an argument of another process."""
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> Bounds:
        """The bounds another process was given."""
        told = json.loads(text)
        paths = {name: tuple(told[name]) for name in ("writable", "protected", "unreadable")}
        return Bounds(**paths, network=told["network"], door=told["door"])


def bounds_of(workspace: Workspace, *, also_writable: tuple[str, ...] = ()) -> Bounds:
    """The bounds a workspace and its settings ask for."""
    home = workspace.env.get("HOME") or os.path.expanduser("~")
    granted = _paths(workspace.setting("sandbox.allowWrite", list[str]()), home, workspace.root)
    denied = _paths([*SECRETS, *WAYS_OUT, *workspace.setting("sandbox.denyRead", list[str]())], home, workspace.root)
    kept = _paths(workspace.setting("sandbox.allowRead", list[str]()), home, workspace.root)
    temporary = (workspace.env.get("TMPDIR") or tempfile.gettempdir(), "/tmp", "/var/tmp")
    git = [git_places(root) for root in workspace.roots]
    commits = (path for place in git for path in place.writable)
    return Bounds(
        writable=_existing((*workspace.roots, *temporary, *granted, *also_writable, *commits)),
        protected=_existing((*(path for place in git for path in place.protected), *_settings(workspace.roots))),
        unreadable=_existing(path for path in denied if path not in kept),
        network=workspace.setting("sandbox.network", False),
    )


@dataclass(frozen=True, slots=True)
class GitPlaces:
    """Git's own files of one work tree: what commits write, and what would run code later."""

    writable: tuple[str, ...] = ()
    protected: tuple[str, ...] = ()


def git_places(root: str) -> GitPlaces:
    """Where git keeps its files for a work tree; a linked work tree keeps them elsewhere."""
    dot_git = Path(root, ".git")
    own = _linked(dot_git) if dot_git.is_file() else dot_git
    if own is None or not own.is_dir():
        return GitPlaces()
    shared = _common(own)
    # A folder that hooks could be put into must exist to be protected.
    (shared / "hooks").mkdir(exist_ok=True)
    risky = [shared / "hooks", shared / "config", shared / "config.worktree", own / "config.worktree"]
    for module in (shared / "modules").glob("**/hooks"):
        risky += [module, module.parent / "config"]
    # The folder itself is named as well: mounted on its own, it cannot be moved away and replaced.
    return GitPlaces(tuple({str(own): None, str(shared): None}), tuple(map(str, risky)))


def _linked(dot_git: Path) -> Path | None:
    text = dot_git.read_text(errors="replace").strip()
    return (dot_git.parent / text.removeprefix("gitdir:").strip()).resolve() if text.startswith("gitdir:") else None


def _common(own: Path) -> Path:
    try:
        return (own / (own / "commondir").read_text().strip()).resolve()
    except OSError:
        return own


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
