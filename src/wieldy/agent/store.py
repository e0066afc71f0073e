"""The sessions on this machine: their folders, a listing, and their past calls."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, TypeAlias

from msgspec import Struct

from wieldy.agent.conversation import fold
from wieldy.agent.records import (
    ApprovalRequested,
    AssistantBlock,
    QuestionDeferred,
    SessionHeader,
    ToolResultRecord,
    UserMessage,
)
from wieldy.agent.transcript import Store, StoredTranscript, Transcript, records
from wieldy.core.decision import Behavior
from wieldy.core.errors import SessionError
from wieldy.core.session_files import TRANSCRIPT_NAME
from wieldy.core.state_dirs import state_home

MIN_ID_CHARS = 4  # of a shortened id
LISTING_RECORDS = 50  # records read for a listing
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")

PastCall: TypeAlias = tuple[str, Mapping[str, Any], Behavior]


class StoredSession(Struct, frozen=True):
    """A session in a listing."""

    id: str
    folder: Path
    root: str
    model: str
    begun: float
    changed: float
    prompt: str


def sessions_folder() -> Path:
    return state_home() / "sessions"


def session_folder(session_id: str) -> Path:
    """The folder of a session. Raises `SessionError` for an invalid id."""
    if not _ID.fullmatch(session_id):
        raise SessionError(f"`{session_id}` is not the id of a session; `wieldy sessions` lists them")
    return sessions_folder() / session_id


def find_session(session_id: str) -> Path:
    """The folder of a session that has a transcript, by its id or the beginning of it. Raises `SessionError`."""
    folder = session_folder(session_id)
    if (folder / TRANSCRIPT_NAME).exists():
        return folder
    matches: list[Path] = []
    if len(session_id) >= MIN_ID_CHARS and sessions_folder().is_dir():
        matches = [path for path in sessions_folder().glob(f"{session_id}*") if (path / TRANSCRIPT_NAME).exists()]
    if len(matches) > 1:
        ids = ", ".join(sorted(path.name for path in matches)[:5])
        raise SessionError(f"{len(matches)} sessions begin with {session_id}: {ids}; give more of the id")
    if not matches:
        raise SessionError(f"there is no session {session_id}; `wieldy sessions list --all` has them all")
    return matches[0]


def check_session_ids(session_id: str | None, resume: str | None, *, fork: bool) -> None:
    """Raise `ValueError` for a new id that no folder can have, or a fork of nothing; `SessionError` for one to resume."""
    if session_id is not None and not (isinstance(session_id, str) and _ID.fullmatch(session_id)):
        raise ValueError(f"`session_id` must be 1 to 64 letters, digits, `-` and `_`, not {session_id!r:.200}")
    if resume is not None and not (isinstance(resume, str) and _ID.fullmatch(resume)):
        raise SessionError(f"`{resume!s:.200}` is not the id of a session")
    if fork and resume is None:
        raise ValueError("`fork` needs `resume`: the id of the session to copy")


def require_new(folder: Path, session_id: str) -> None:
    """Raise `SessionError` where a session of this id exists."""
    if (folder / TRANSCRIPT_NAME).exists():
        raise SessionError(f"there is a session {session_id} already; continue it with --resume {session_id}")


def stored_sessions(root: str | os.PathLike[str] | None = None) -> Iterator[StoredSession]:
    """The sessions that have a transcript, last changed first; with `root`, those of that folder."""
    real_root = None if root is None else os.path.realpath(root)
    try:
        folders = [
            Path(entry.path) for entry in os.scandir(sessions_folder()) if entry.is_dir() and _ID.fullmatch(entry.name)
        ]
    except FileNotFoundError:
        return
    for changed, folder in sorted(
        ((_mtime(folder), folder) for folder in folders), key=lambda pair: (-pair[0], pair[1])
    ):
        if changed and (session := read_session(folder, changed)) and real_root in (None, session.root):
            yield session


def last_session(root: str | os.PathLike[str]) -> str:
    """The id of the session that was last active in a folder. Raises `SessionError` when there is none."""
    for session in stored_sessions(root):
        return session.id
    raise SessionError("there is no session of this folder; `wieldy sessions list --all` has them all")


def read_session(folder: Path, changed: float) -> StoredSession | None:
    """Describe a session by the start of its transcript."""
    header: SessionHeader | None = None
    prompt = ""
    try:
        for record in islice(records(folder), LISTING_RECORDS):
            if header is None and isinstance(record, SessionHeader):
                header = record
            elif not prompt and isinstance(record, UserMessage):
                prompt = _first_text(record.content)
            if header is not None and prompt:
                break
    except SessionError as error:
        prompt = f"({error})"
    if header is None:
        return StoredSession(folder.name, folder, "", "", changed, changed, prompt) if prompt else None
    return StoredSession(folder.name, folder, header.root, header.model, header.at or changed, changed, prompt)


def _first_text(content: list[Any]) -> str:
    texts = [str(b.get("text", "")) for b in content if isinstance(b, Mapping) and b.get("type") == "text"]
    return " ".join(" ".join(texts).split())[:200]


def _mtime(folder: Path) -> float:
    try:
        return (folder / TRANSCRIPT_NAME).stat().st_mtime
    except OSError:
        return 0.0


def past_calls(folder: Path) -> Iterator[PastCall]:
    """The calls of a session that reached a decision, in order: tool name, input, and allow, ask or deny.

    "ask" means that a user was asked, or would have been had there been one. Calls that were refused before the decision
    (no such tool, invalid input) are left out.
    """
    calls: dict[str, tuple[str, Mapping[str, Any]]] = {}
    asked: set[str] = set()
    refused: dict[str, str | None] = {}
    for record in records(folder):
        match record:
            case AssistantBlock(block={"type": "tool_use", "input": dict()} as block):
                calls[str(block.get("id"))] = (str(block.get("name")), block["input"])
            case ApprovalRequested():
                asked.add(record.id)
            case ToolResultRecord():
                refused[str(record.block.get("tool_use_id"))] = record.refused
    for call_id, (name, input) in calls.items():
        if call_id not in refused or refused[call_id] not in (None, "permission", "hook"):
            continue
        yield name, input, "ask" if call_id in asked else "deny" if refused[call_id] else "allow"


class EarlierSession:
    """A session to resume, from its folder or from a store, until its transcript is read. Raises `SessionError`."""

    def __init__(self, session_id: str, store: Store | None) -> None:
        self._folder = find_session(session_id) if store is None else None
        self.id = session_id if self._folder is None else self._folder.name

    async def load(self, transcript: Transcript) -> None:
        """Read its records into a transcript. Raises `SessionError`."""
        if isinstance(transcript, StoredTranscript):
            await transcript.load_session(self.id)
        else:
            assert self._folder is not None
            await transcript.load(self._folder)

    def pending(self) -> list[QuestionDeferred]:
        """Its open questions, as far as they can be read without waiting: from a folder."""
        return [] if self._folder is None else fold(records(self._folder)).open_questions()
