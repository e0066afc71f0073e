"""What a call touches. A tool declares it once; scheduling, permissions, undo, previews and hooks all use it.

`opaque` says that it is unknown what an effect touches.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, ClassVar, TypeAlias

from msgspec import Struct

if TYPE_CHECKING:
    from wieldy.shell.effects.analysis import Analysis


class Reads(Struct, frozen=True):
    """Reads the file at an absolute path, or anything below it when it is a directory."""

    opaque: ClassVar[bool] = False

    path: str


class Writes(Struct, frozen=True):
    """Creates, changes or deletes the file at an absolute path, or anything below it when it is a directory."""

    opaque: ClassVar[bool] = False

    path: str


class Runs(Struct, frozen=True, eq=False):
    """Runs a shell command. `contained` means that every file it touches is declared beside it.

    `unsandboxed`: why it runs outside the sandbox that the settings ask for; empty if it does not. `analysis`: what the
    command does in the folder of its call, where that has been worked out; it does not count for equality.
    """

    command: str
    contained: bool = False
    unsandboxed: str = ""
    analysis: Analysis | None = None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Runs) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    @property
    def _key(self) -> tuple[str, bool, str]:
        return self.command, self.contained, self.unsandboxed

    @property
    def opaque(self) -> bool:
        return not self.contained


class Fetches(Struct, frozen=True):
    """Sends a request to a URL."""

    opaque: ClassVar[bool] = False

    url: str


class State(Struct, frozen=True):
    """Uses state of the session that is no file, such as its current folder; `changes`: and changes it for later calls."""

    opaque: ClassVar[bool] = False

    name: str
    changes: bool = False


class UsesServer(Struct, frozen=True):
    """Asks an MCP server for what is not one of its tools. Rules know it as a tool of that server, by `rule_name`."""

    opaque: ClassVar[bool] = False

    rule_name: str


class InTurn(Struct, frozen=True):
    """Runs after all earlier calls that name the same, such as a file whose second reading is told from its first."""

    opaque: ClassVar[bool] = False

    name: str


class Delegates(Struct, frozen=True):
    """Hands work to a subagent: its calls are judged one by one, and ordered among those of other subagents.

    `contained`: they change nothing in the project.
    """

    contained: bool = False

    @property
    def opaque(self) -> bool:
        return not self.contained


class Opaque(Struct, frozen=True):
    """Unknown effects: the call runs alone, and a person is asked."""

    opaque: ClassVar[bool] = True


Effect: TypeAlias = Reads | Writes | Runs | Fetches | UsesServer | State | InTurn | Delegates | Opaque
Effects: TypeAlias = tuple[Effect, ...]

NO_EFFECTS: Effects = ()
UNKNOWN_EFFECTS: Effects = (Opaque(),)
USES_FOLDER = State("folder")
CHANGES_FOLDER = State("folder", changes=True)
USES_FILES = State("files")
"""Reads files of the project that are not known in advance."""
USES_SHELLS = State("background shells")
CHANGES_SHELLS = State("background shells", changes=True)


def is_lasting(effect: Effect) -> bool:
    """Whether repeating the call may differ from making it once, so that the transcript must record it first."""
    return isinstance(effect, Writes) or effect.opaque


def clash(one: Effects, other: Effects) -> bool:
    """Whether two calls must not overlap: one is opaque, or one changes what the other touches."""
    if any(effect.opaque for effect in (*one, *other)) and not (delegates(one) and delegates(other)):
        return True
    return any(_collide(a, b) for a in one for b in other)


def only_orders(effect: Effect) -> bool:
    """Whether an effect only decides about the order of calls: there is nothing to permit."""
    return isinstance(effect, State | InTurn) or (isinstance(effect, Delegates) and effect.contained)


def delegates(effects: Effects) -> bool:
    """Whether a call hands work to a subagent and does nothing else that is not known."""
    return any(isinstance(effect, Delegates) for effect in effects) and all(
        isinstance(effect, Delegates) or not effect.opaque for effect in effects
    )


def changes_anything(effect: Effect) -> bool:
    """Whether another call can clash with this effect, be it only by looking."""
    return isinstance(effect, Writes) or (isinstance(effect, State) and effect.changes)


def _collide(a: Effect, b: Effect) -> bool:
    if isinstance(a, State) and isinstance(b, State):
        return a.name == b.name and (a.changes or b.changes)
    if isinstance(a, State) or isinstance(b, State):
        return (a == USES_FILES and isinstance(b, Writes)) or (b == USES_FILES and isinstance(a, Writes))
    if not isinstance(a, Reads | Writes) or not isinstance(b, Reads | Writes):
        return False
    if isinstance(a, Reads) and isinstance(b, Reads):
        return False
    return _within(a.path, b.path) or _within(b.path, a.path)


def _within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip(os.sep) + os.sep)
