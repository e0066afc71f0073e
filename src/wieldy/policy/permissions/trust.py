"""The user's consent to what a project's files would run or allow, bound to a hash of each item."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from wieldy.core.state_dirs import config_home
from wieldy.core.text import escape_to_line
from wieldy.files.writing.locked_update import read_json_object, update_json_object

FILE_NAME = "trust.json"
TRUST_ALL_VARIABLE = "WIELDY_TRUST"


class ConsentItem(Struct, frozen=True):
    """One thing a project's files ask for: the setting's name, its value, and where it is written.

    `files` are the digests of the project's files that commands in it name.
    """

    name: str
    value: str
    where: str = ""
    files: Mapping[str, str] = field(default_factory=dict)
    layer: str = ""

    @classmethod
    def for_value(
        cls, name: str, value: Any, where: str = "", files: Mapping[str, str] | None = None, layer: str = ""
    ) -> ConsentItem:
        """Make an item with a canonical spelling of its value."""
        text = value if isinstance(value, str) else json.dumps(value, sort_keys=True, ensure_ascii=True, default=str)
        return cls(name, text, where, files or {}, layer)

    @property
    def digest(self) -> str:
        """The hash that consent is bound to; where the item is written does not count."""
        import hashlib

        parts = [self.name, self.value, *([sorted(self.files.items())] if self.files else [])]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()

    def __str__(self) -> str:
        files = f", with the content of {', '.join(self.files)}" if self.files else ""
        return escape_to_line(f"{self.name}: {self.value}{files}" + (f" ({self.where})" if self.where else ""))


class Trust:
    """The consents recorded for each project root. Nothing else is trusted, unless `trust_all` or WIELDY_TRUST is set."""

    def __init__(
        self, file: Path | None = None, env: Mapping[str, str] = os.environ, *, trust_all: bool = False
    ) -> None:
        self._file = config_home(env) / FILE_NAME if file is None else file
        self._trust_all = trust_all or env.get(TRUST_ALL_VARIABLE, "").strip().lower() in {"1", "true", "yes"}

    def pending(self, root: str, items: Iterable[ConsentItem]) -> tuple[ConsentItem, ...]:
        """Return the items that need consent before they take effect."""
        requested = tuple(items)
        if self._trust_all or not requested:
            return ()
        accepted = _digests(read_json_object(self._file), root)
        return tuple(item for item in requested if item.digest not in accepted)

    def accept(self, root: str, items: Iterable[ConsentItem]) -> None:
        """Record consent to exactly these items."""
        digests = {item.digest for item in items}
        if digests:
            self._update(root, lambda accepted: accepted | digests)

    def revoke(self, root: str) -> None:
        """Forget every consent given for a project."""
        self._update(root, lambda accepted: set())

    def _update(self, root: str, change: Callable[[set[str]], set[str]]) -> None:
        def update(records: dict[str, Any]) -> None:
            accepted = change(_digests(records, root))
            key = os.path.realpath(root)
            if accepted:
                records[key] = sorted(accepted)
            else:
                records.pop(key, None)

        update_json_object(self._file, update)


def _digests(records: Mapping[str, Any], root: str) -> set[str]:
    digests = records.get(os.path.realpath(root))
    return {digest for digest in digests if isinstance(digest, str)} if isinstance(digests, list) else set()
