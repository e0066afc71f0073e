"""The journal read as a story: which changes happened, in which order, and which of them stand now."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from wieldy.files.journal.entries import Entry, Settlement


class Event(Struct, frozen=True):
    """One change that happened; `stands` is false once it has been taken back."""

    entry: Entry
    stands: bool


class Chronicle:
    """A fold over the entries and how each ended: those that were carried out, each standing or taken back."""

    def __init__(self, entries: Iterable[tuple[Entry, Settlement | None]]) -> None:
        self._entries: dict[str, Entry] = {}
        self._stands: dict[str, bool] = {}
        for entry, ended in entries:
            if ended == "done":
                self._happened(entry)

    @property
    def events(self) -> tuple[Event, ...]:
        """Everything that happened, oldest first."""
        return tuple(Event(entry, self._stands[entry.id]) for entry in self._entries.values())

    def standing(self, *kinds: str) -> list[Entry]:
        """The entries of these kinds that have not been taken back, oldest first."""
        return [entry for entry in self._entries.values() if entry.kind in kinds and self._stands[entry.id]]

    def after(self, entry: Entry, real_path: str) -> Entry | None:
        """The last standing edit of a file after this entry, if there is any."""
        order = list(self._entries)
        later = set(order[order.index(entry.id) + 1 :])
        edits = (other for other in reversed(self.standing("edit", "snapshot")) if other.id in later)
        return next((other for other in edits if any(path.real_path == real_path for path in other.paths)), None)

    def _happened(self, entry: Entry) -> None:
        if entry.id in self._entries:
            return
        self._entries[entry.id] = entry
        self._set(entry, True)

    def _set(self, entry: Entry, stands: bool) -> None:
        self._stands[entry.id] = stands
        for name in entry.reverses:
            if name in self._entries:
                self._set(self._entries[name], not stands)
