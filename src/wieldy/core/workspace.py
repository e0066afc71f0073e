"""The project that tools work in: root, current folder, settings, and the services that live as long as it does."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from wieldy.core.backend import Backend
from wieldy.core.errors import Refusal
from wieldy.core.events import Event
from wieldy.core.filesystem import LOCAL_FILES, FileSystem, RemoteFileSystem
from wieldy.core.programs import add_roots
from wieldy.core.realpath import realpath
from wieldy.core.setting_keys import find_key
from wieldy.core.state_dirs import shared_folders, state_home

if TYPE_CHECKING:
    from wieldy.core.active_commands import ActiveCommands
    from wieldy.engine.workspace_services import WorkspaceServices

PATH_MAX = 4096
NAME_MAX = 255
UNKNOWN_HOME = "/home/unknown"
"""Stands for a home folder of which nothing is known, as on a backend elsewhere."""


class Workspace:
    """One project. `services` builds its long-lived services; a program whose code needs none can leave it out.

    With a `backend`, root and files are there and not on this machine: `files` is what tools look at.
    """

    def __init__(  # noqa: PLR0913 - every option is a keyword with a default
        self,
        root: str | os.PathLike[str],
        *,
        session_dir: str | os.PathLike[str],
        settings: Mapping[str, Any] | None = None,
        extra_roots: tuple[str, ...] = (),
        env: Mapping[str, str] | None = None,
        state_dir: str | os.PathLike[str] | None = None,
        emit: Callable[[Event], None] = lambda event: None,
        services: Callable[[Workspace], WorkspaceServices] | None = None,
        backend: Backend | None = None,
    ) -> None:
        self.env: Mapping[str, str] = os.environ if env is None else env
        self.session_dir = Path(session_dir)
        self.state_dir = state_home(self.env) if state_dir is None else Path(state_dir)
        self.files = LOCAL_FILES if backend is None else self._files_of(backend)
        # What a backend has cannot be looked at here, on the event loop: its root is checked when a toolbox is entered.
        resolve = os.path.realpath if self.files.is_local else os.path.normpath
        self.root = resolve(os.fspath(root))
        self.cwd = self.root
        self.settings: Mapping[str, Any] = settings or {}
        self.extra_roots = tuple(resolve(os.path.join(self.root, path)) for path in extra_roots)
        if self.files.is_local:
            add_roots(*self.roots)
        self.emit = emit
        self.commands: ActiveCommands | None = None
        """What the settings start, as `settings/load.py` found it; None where they were given in code only."""
        self.original_roots: tuple[str, ...] = ()
        """The folders that this one is a copy of, for a subagent that must not change them."""
        if services is not None:
            self.services = services(self)

    def _files_of(self, backend: Backend) -> FileSystem:
        own = (self.session_dir, self.state_dir, *shared_folders(self.env))
        return RemoteFileSystem(backend, [os.path.realpath(folder) for folder in own])

    @property
    def search_path(self) -> list[str]:
        """The folders on the PATH of commands, as they are written."""
        path = self.setting("env").get("PATH", self.env.get("PATH", os.defpath))
        return str(path).split(os.pathsep)

    @property
    def home(self) -> str:
        """The home folder of commands; empty on a backend that is not of this machine and whose is not given in `env`."""
        if not self.is_on_host and self.env is os.environ:
            return ""
        return self.env.get("HOME") or os.path.expanduser("~")

    @property
    def is_on_host(self) -> bool:
        """Whether the folders of the project are on this machine too, as they are under an overlay."""
        return self.files.has_host_programs

    @property
    def project_root(self) -> str:
        """The folder in which commands of the settings start: `root`, or one above it that the settings belong to."""
        return self.root if self.commands is None else self.commands.root

    @property
    def roots(self) -> tuple[str, ...]:
        """The folders in which tools may work without asking."""
        return (self.root, *self.extra_roots)

    def setting(self, name: str) -> Any:
        """Return a setting by its dotted name, such as `edit.tolerance`; its default where it is not set or of another type."""
        key = find_key(name)
        assert key is not None, f"`{name}` is missing in core/setting_keys.py"
        value: Any = self.settings
        for step in name.split("."):
            if not isinstance(value, Mapping) or step not in value:
                return key.default
            value = value[step]
        return value if key.accepts(value) else key.default

    @cached_property
    def services(self) -> WorkspaceServices:
        raise AssertionError("this workspace was made without services; see `open_workspace`")

    async def aclose(self) -> None:
        """Close the services, newest first."""
        if "services" in vars(self):
            await self.services.aclose()

    def resolve(self, path: str) -> str:
        """Make a path from the model absolute: `~` expanded, relative to cwd, `..` as the kernel resolves it."""
        if "\0" in path:
            raise Refusal("normalize", "The path contains a NUL byte.", "Send the path without it.")
        try:
            if not path.isascii():
                os.fsencode(path)
        except UnicodeEncodeError:
            raise Refusal(
                "normalize", "The path holds half of a character.", "Send it again, spelled in full."
            ) from None
        if not path:
            raise Refusal("normalize", "The path is empty.", "Send the path of a file or folder.")
        if path.startswith("~"):
            head, _, tail = path.partition("/")
            if head != "~":
                raise Refusal("normalize", f"`{head}` names another user's home.", "Send an absolute path instead.")
            home = os.path.expanduser("~") if self.files.is_local else self.home
            if not home:
                raise Refusal("normalize", "The home folder is not known there.", "Send an absolute path instead.")
            path = os.path.join(home, tail)
        absolute = path if path.startswith("/") else os.path.join(self.cwd, path)
        if _is_too_long(absolute):
            raise Refusal("normalize", f"The path is too long ({len(absolute)} characters).", "Send a shorter one.")
        normalized = os.path.normpath(absolute)
        if ".." in absolute.split("/") and self.files.is_local:
            # After a symlink, `..` is the target's parent: it may be removed from the text only where both agree.
            real = realpath(absolute)
            return normalized if realpath(normalized) == real else real
        return normalized


def _is_too_long(path: str) -> bool:
    if len(path) <= NAME_MAX and path.isascii():
        return False
    return len(os.fsencode(path)) >= PATH_MAX or any(len(os.fsencode(name)) > NAME_MAX for name in path.split("/"))


class CopiedRoot(Struct, frozen=True):
    """The copy of a project that a subagent works in, where it starts, where its own state is kept, and its environment."""

    root: str
    cwd: str
    state_dir: Path
    env: Mapping[str, str]


class ChildWorkspace(Workspace):
    """A subagent's view of a workspace. It starts in the parent's current folder; from then on, each has a cwd of its own.

    With a `copy`, it works there and in none of the parent's folders; those are its `original_roots`.
    """

    def __init__(
        self,
        parent: Workspace,
        *,
        session_dir: str | os.PathLike[str],
        emit: Callable[[Event], None],
        services: Callable[[Workspace], WorkspaceServices],
        copy: CopiedRoot | None = None,
    ) -> None:
        super().__init__(
            parent.root if copy is None else copy.root,
            session_dir=session_dir,
            settings=parent.settings,
            env=parent.env if copy is None else copy.env,
            state_dir=parent.state_dir if copy is None else copy.state_dir,
            emit=emit,
            services=services,
            backend=parent.files.backend,
        )
        self.commands = parent.commands
        self.original_roots = parent.original_roots
        if copy is None:
            self.cwd = parent.cwd
            self.extra_roots = parent.extra_roots
        else:
            self.cwd = copy.cwd if os.path.isdir(copy.cwd) else self.root
            self.original_roots += parent.roots
