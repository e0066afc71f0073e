"""Consent to what a project's own files would run or allow: bound to a hash of each item, and asked again when one changes."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from msgspec import Struct

from wieldy.core.state_dirs import config_home
from wieldy.core.visible_text import one_line


def rewrite(path: Path, change: Callable[[str | None], str]) -> None:
    """Replace a file by what `change` makes of its text (None where there is none). Blocks while another does the same."""
    path = Path(os.path.realpath(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    with _locked(path.parent):
        before = _text(path)
        after = change(before)
        if after != before:
            _replace(path, after)


def _text(path: Path) -> str | None:
    try:
        return path.read_bytes().decode("utf-8")
    except FileNotFoundError:
        return None


def _replace(path: Path, text: str) -> None:
    # One name, used under the lock: what a killed writer leaves behind is cleared away by the next.
    temporary = path.with_name(f".{path.name}.new")
    temporary.unlink(missing_ok=True)
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0), 0o600)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(text.encode("utf-8"))
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, _permissions(path))
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _permissions(path: Path) -> int:
    try:
        return path.stat().st_mode & 0o777
    except FileNotFoundError:
        return 0o600


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """The lock is on the folder, so that no lock file is left lying about."""
    if sys.platform == "win32":
        yield
        return
    import fcntl

    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


FILE_NAME = "trust.json"
SWITCH = "WIELDY_TRUST"


class ConsentItem(Struct, frozen=True):
    """One thing a project's files ask for: the setting's name, its value, and where it is written."""

    name: str
    value: str
    where: str = ""

    @property
    def digest(self) -> str:
        """What consent is bound to; where it is written does not count."""
        import hashlib

        return hashlib.sha256(json.dumps([self.name, self.value]).encode()).hexdigest()

    def __str__(self) -> str:
        return one_line(f"{self.name}: {self.value}" + (f" ({self.where})" if self.where else ""))


def item(name: str, value: Any, where: str = "") -> ConsentItem:
    """An item for a settings value, in a canonical spelling."""
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True, ensure_ascii=True, default=str)
    return ConsentItem(name, text, where)


class Trust:
    """What the user has consented to, by project root. Without an answer nothing is trusted, unless `told` to trust all."""

    def __init__(self, file: Path | None = None, env: Mapping[str, str] = os.environ, *, told: bool = False) -> None:
        self._file = config_home(env) / FILE_NAME if file is None else file
        self._told = told or env.get(SWITCH, "").strip().lower() in {"1", "true", "yes"}

    def pending(self, root: str, items: Iterable[ConsentItem]) -> tuple[ConsentItem, ...]:
        """The items that need consent before they take effect."""
        wanted = tuple(items)
        if self._told or not wanted:
            return ()
        known = self._known(root)
        return tuple(one for one in wanted if one.digest not in known)

    def accept(self, root: str, items: Iterable[ConsentItem]) -> None:
        """Record consent to exactly these items."""
        digests = {one.digest for one in items}
        if digests:
            self._change(root, lambda known: known | digests)

    def revoke(self, root: str) -> None:
        """Forget every consent given for a project."""
        self._change(root, lambda known: set())

    def _known(self, root: str) -> set[str]:
        try:
            text = self._file.read_text("utf-8")
        except (OSError, UnicodeDecodeError):
            return set()
        return _digests(_parsed(text), root)

    def _change(self, root: str, change: Callable[[set[str]], set[str]]) -> None:
        def update(text: str | None) -> str:
            records = _parsed(text or "{}")
            known = change(_digests(records, root))
            key = os.path.realpath(root)
            if known:
                records[key] = sorted(known)
            else:
                records.pop(key, None)
            return json.dumps(records, indent=1, sort_keys=True) + "\n"

        rewrite(self._file, update)


def _parsed(text: str) -> dict[str, Any]:
    try:
        records = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return records if isinstance(records, dict) else {}


def _digests(records: Mapping[str, Any], root: str) -> set[str]:
    found = records.get(os.path.realpath(root))
    return {digest for digest in found if isinstance(digest, str)} if isinstance(found, list) else set()
