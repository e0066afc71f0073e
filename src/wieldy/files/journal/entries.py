"""What the journal knows of one change: who made it, when, and each file's content before and after by name."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import asdict

from wieldy.core.errors import WieldyError
from wieldy.files.writing.target import WriteMethod
from wieldy.schema.strict_json import encode_json_text

if TYPE_CHECKING:
    from wieldy.files.editing.splicing import Splice


EntryKind: TypeAlias = Literal["edit", "snapshot", "undo", "redo"]
# How an entry ended.
Settlement: TypeAlias = Literal["done", "taken_back", "given_up"]


class BadRecord(WieldyError):
    """An entry of the journal that cannot be understood."""


class PathRecord(Struct, frozen=True):
    """One file of an entry. Contents are named by digest, None where there was no file; the rest traces a crash."""

    path: str
    real_path: str
    before: str | None
    after: str | None
    mode: int | None = None
    method: WriteMethod = "replace"
    temp: str = ""
    backup: str = ""
    folders: tuple[str, ...] = ()


class Entry(Struct, frozen=True):
    """One call's changes. `reverses` are the entries an undo or redo takes back; `covered` says what a snapshot saw."""

    id: str
    kind: EntryKind
    session: str
    call_id: str
    tool: str
    at: float
    paths: tuple[PathRecord, ...]
    turn: str | None = None
    reverses: tuple[str, ...] = ()
    covered: str = ""


def encode(entry: Entry) -> bytes:
    """An entry as JSON. File names that are no valid Unicode survive as escapes."""
    fields = {**asdict(entry), "paths": [asdict(path) for path in entry.paths]}
    return encode_json_text(fields).encode("utf-8", "backslashreplace")


def decode(payload: bytes) -> Entry:
    """An entry from its JSON."""
    try:
        fields = json.loads(payload)
    except ValueError as error:
        raise BadRecord(f"a journal entry is no JSON: {error}") from error
    try:
        paths = tuple(PathRecord(**{**path, "folders": tuple(path["folders"])}) for path in fields.pop("paths"))
        return Entry(**{**fields, "paths": paths, "reverses": tuple(fields["reverses"])})
    except (AttributeError, TypeError, KeyError) as error:
        raise BadRecord(f"a journal entry cannot be understood: {error}") from error


class Change(Struct, frozen=True):
    """The bytes of a file before and after; None means that there is no such file.

    `real_path` is where `path` led when it was judged: if it leads elsewhere when it is written, nothing is written.
    `mode` are the permission bits of a file that is made anew, where they shall not be the usual ones. `splice` says how
    the one becomes the other, where that is known.
    """

    path: str
    before: bytes | None
    after: bytes | None
    real_path: str | None = None
    mode: int | None = None
    splice: Splice | None = None
