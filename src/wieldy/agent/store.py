"""The sessions on this machine: where each is kept, which there are, and which was last."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from wieldy.agent.transcript import NAME, records
from wieldy.core.decision import Behavior
from wieldy.core.errors import SessionError
from wieldy.core.state_dirs import state_home

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
LOOKED_AT = 50  # records read for a listing


class StoredSession(Struct, frozen=True):
    """A session as a list shows it."""

    id: str
    folder: Path
    root: str
    model: str
    begun: float
    changed: float
    prompt: str


def sessions_folder() -> Path:
    """Where sessions are kept."""
    return state_home() / "sessions"


def session_folder(session_id: str) -> Path:
    """The folder of a session. Raises `SessionError` for what cannot be an id."""
    if not _ID.fullmatch(session_id):
        raise SessionError(f"`{session_id}` is not the id of a session; `wieldy sessions` lists them")
    return sessions_folder() / session_id


def stored_sessions(root: str | os.PathLike[str] | None = None) -> Iterator[StoredSession]:
    """The sessions that have a transcript, last changed first; with `root`, those of that folder."""
    wanted = None if root is None else os.path.realpath(root)
    try:
        folders = [entry for entry in os.scandir(sessions_folder()) if entry.is_dir() and _ID.fullmatch(entry.name)]
    except FileNotFoundError:
        return
    found = [(_changed(Path(entry.path)), Path(entry.path)) for entry in folders]
    for changed, folder in sorted(found, key=lambda pair: (-pair[0], pair[1])):
        if changed and (session := read_session(folder, changed)) and wanted in (None, session.root):
            yield session


def last_session(root: str | os.PathLike[str]) -> str:
    """The id of the session that was last at work in a folder. Raises `SessionError` when there is none."""
    for session in stored_sessions(root):
        return session.id
    raise SessionError("there is no session of this folder; `wieldy sessions list --all` has them all")


def read_session(folder: Path, changed: float) -> StoredSession | None:
    """A session by the beginning of its transcript."""
    header: Mapping[str, Any] = {}
    prompt = ""
    for number, told in enumerate(records(folder)):
        if told.get("type") == "session" and not header:
            header = told
        elif told.get("type") == "user" and not prompt:
            prompt = _first_words(told.get("content"))
        if (header and prompt) or number > LOOKED_AT:
            break
    if not header and not prompt:
        return None
    return StoredSession(
        folder.name,
        folder,
        str(header.get("root", "")),
        str(header.get("model", "")),
        float(header.get("at") or changed),
        changed,
        prompt,
    )


def _first_words(content: Any) -> str:
    blocks = content if isinstance(content, list) else []
    texts = [str(b.get("text", "")) for b in blocks if isinstance(b, Mapping) and b.get("type") == "text"]
    return " ".join(" ".join(texts).split())[:200]


def _changed(folder: Path) -> float:
    try:
        return (folder / NAME).stat().st_mtime
    except OSError:
        return 0.0


PastCall = tuple[str, Mapping[str, Any], Behavior]


def past_calls(folder: Path) -> Iterator[PastCall]:
    """Every call of a session that came as far as a decision, in order: tool name, input, and allow, ask or deny.

    "ask" means that a person was asked, or would have been had there been one; a call that was refused before it was judged
    (no such tool, wrong input) is left out.
    """
    calls: dict[str, tuple[str, Mapping[str, Any]]] = {}
    asked: set[str] = set()
    refused: dict[str, str | None] = {}
    for told in records(folder):
        block = told.get("block")
        match told.get("type"):
            case "block" if isinstance(block, Mapping) and block.get("type") == "tool_use":
                if isinstance(block.get("input"), Mapping):
                    calls[str(block.get("id"))] = (str(block.get("name")), block["input"])
            case "asked":
                asked.add(str(told.get("id")))
            case "result" if isinstance(block, Mapping):
                refused[str(block.get("tool_use_id"))] = told.get("refused")
    for call_id, (name, input) in calls.items():
        if call_id not in refused or refused[call_id] not in (None, "permission", "hook"):
            continue
        yield name, input, "ask" if call_id in asked else "deny" if refused[call_id] else "allow"
