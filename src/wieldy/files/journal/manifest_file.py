"""A tree manifest as a file: for the next process, and for recovery when a process dies while a command runs."""

from __future__ import annotations

import os
from collections.abc import Container, Mapping
from contextlib import suppress
from pathlib import Path

import msgspec

from wieldy.files.journal.file_copies import FileCopies
from wieldy.files.journal.tree_manifest import STAMP_BYTES, FolderState, Source

PREFIX = "manifest-"
VERSION = 2


class StoredFolder(msgspec.Struct, array_like=True):
    """A `FolderState` without its ignore rules. Names are joined by NUL bytes."""

    path: bytes
    listing: bytes
    names: bytes
    stamps: bytes
    subfolders: bytes
    ignored: bytes
    fresh: bytes
    links: list[tuple[bytes, bytes]]
    others: list[tuple[bytes, int]]
    sources: list[int | bytes | None]
    partial: bool
    repository: bytes
    mode: int
    owner: int


class StoredManifest(msgspec.Struct, array_like=True):
    version: int
    folders: list[StoredFolder]


_decoder = msgspec.msgpack.Decoder(StoredManifest)


def save_manifest(folder: Path, name: str, folders: Mapping[str, FolderState]) -> None:
    """Write a manifest. It outlives this process, but need not outlive the system. Raises `OSError`."""
    stored = [
        StoredFolder(
            os.fsencode(path),
            _join(state.listing),
            b"" if state.names is state.listing else _join(state.names),
            state.stamps,
            _join(state.subfolders),
            _join(state.ignored),
            _join(state.fresh),
            [(os.fsencode(name), os.fsencode(target)) for name, target in state.links],
            [(os.fsencode(name), changed) for name, changed in state.others],
            state.sources,
            state.partial,
            os.fsencode(state.repository),
            state.mode,
            state.owner,
        )
        for path, state in folders.items()
    ]
    temporary = folder / f"{name}.tmp"
    temporary.write_bytes(msgspec.msgpack.encode(StoredManifest(VERSION, stored)))
    os.replace(temporary, folder / name)


def read_manifest(path: Path) -> dict[str, FolderState] | None:
    """The folders of a manifest; None where there is none that can be read."""
    try:
        stored = _decoder.decode(path.read_bytes())
    except (OSError, msgspec.DecodeError):
        return None
    if stored.version != VERSION:
        return None
    folders: dict[str, FolderState] = {}
    for one in stored.folders:
        state = FolderState(_split(one.listing))
        state.names = _split(one.names) if one.names or not one.stamps else state.listing
        state.stamps, state.partial = one.stamps, one.partial
        state.subfolders = _split(one.subfolders)
        state.ignored, state.fresh = frozenset(_split(one.ignored)), frozenset(_split(one.fresh))
        state.links = tuple((os.fsdecode(name), os.fsdecode(target)) for name, target in one.links)
        state.mode, state.owner = one.mode, one.owner
        state.others = tuple((os.fsdecode(name), changed) for name, changed in one.others)
        sources: list[Source] = list(one.sources)
        state.sources = sources
        state.repository = os.fsdecode(one.repository)
        if not len(state.names) == len(sources) == len(one.stamps) // STAMP_BYTES:
            return None
        folders[os.fsdecode(one.path)] = state
    return folders


def load_manifest(copies: FileCopies) -> dict[str, FolderState]:
    """The last manifest of a slot. Without one, the copies in it are of no use and are discarded."""
    manifests = sorted(copies.folder.glob(f"{PREFIX}*[0-9]"), key=_number)
    folders = read_manifest(manifests[-1]) if manifests else None
    if folders is None:
        copies.reset()
        remove_manifests(copies.folder)
    return folders or {}


def remove_manifests(folder: Path, keep: Container[str] = ()) -> None:
    for path in folder.glob(f"{PREFIX}*"):
        if path.name not in keep:
            with suppress(OSError):
                path.unlink()


def next_manifest_name(folder: Path) -> str:
    return f"{PREFIX}{max(map(_number, folder.glob(f'{PREFIX}*[0-9]')), default=0) + 1}"


def _number(path: Path) -> int:
    return int(path.name.removeprefix(PREFIX))


def _join(names: tuple[str, ...] | frozenset[str]) -> bytes:
    return os.fsencode("\0".join(names))


def _split(names: bytes) -> tuple[str, ...]:
    return tuple(os.fsdecode(names).split("\0")) if names else ()
