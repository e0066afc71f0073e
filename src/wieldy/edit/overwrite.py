"""A file's whole content given anew, in the encoding and line ends it has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wieldy.core.failure import ToolFailure
from wieldy.edit.document import Document
from wieldy.edit.landing import Landing
from wieldy.edit.placeholder import refuse_placeholders
from wieldy.edit.policy import Policy
from wieldy.edit.readstate import ReadState
from wieldy.edit.revision import SMALL, Prepare, Revision, TakesLonger, document_of, look_at
from wieldy.edit.splice import Splice, apply, whole
from wieldy.text.encoding import UTF8
from wieldy.text.kind import is_binary

if TYPE_CHECKING:
    from wieldy.core.workspace import Workspace


def rewrite(
    path: str, content: str, state: ReadState, policy: Policy, *, at_once: bool = False, led_to: str | None = None
) -> Revision:
    """The revision that makes `content` the text of a file. Reads the file; raises `ToolFailure`, and with `at_once`
    `TakesLonger` where that is not a matter of a moment."""
    if at_once and len(content) > SMALL:
        raise TakesLonger
    landing = look_at(path, policy, at_once=at_once, led_to=led_to)
    if landing.stat is None:
        return _new(landing, content)
    data = landing.content or b""
    if not data:
        return _new(landing, content)
    kind = is_binary(data)
    if kind is not None:
        raise ToolFailure(
            f"{path} is not text but {kind}, and would be lost. If that is meant, remove it with Bash first."
        )
    document = document_of(data, at_once=at_once)
    _require_known(landing, document, state)
    if document.encoding.bom:
        content = content.removeprefix("\ufeff")  # the file has one, and keeps it
    refuse_placeholders(content, document.text, "content")
    document.codec.require(content, "content")
    change = whole(document, content)
    return Revision(landing, apply(data, (change,)), (change,), text=document.afresh())


def rewriting(path: str, content: str, workspace: Workspace, led_to: str) -> Prepare:
    """`rewrite` as often as it takes, with what a workspace knows of the file and wants for edits."""
    state, policy = workspace.resident(ReadState), Policy.of(workspace)
    return lambda at_once: rewrite(path, content, state, policy, at_once=at_once, led_to=led_to)


def _new(landing: Landing, content: str) -> Revision:
    refuse_placeholders(content, "", "content")
    Document(b"", UTF8).codec.require(content, "content")
    data = content.encode()
    return Revision(landing, data, (Splice(0, 0, data),))


def _require_known(landing: Landing, document: Document, state: ReadState) -> None:
    path = landing.path
    reading = state.reading(landing.real_path)
    if reading is None or landing.stat is None:
        raise ToolFailure(
            f"{path} exists and must be read first: it has not been read in this session. Read it, then send this "
            "again, or choose another name."
        )
    if not state.is_current(landing.real_path, landing.content or b"", landing.stat):
        since = "after your last change, perhaps by a formatter" if reading.ours else "since you read it"
        raise ToolFailure(f"{path} was changed on disk {since}. Nothing was written. Read it again first.")
    unseen = reading.unseen(document.lines())
    if unseen is not None:
        raise ToolFailure(
            f"Only part of {path} has been read: lines {unseen[0]}-{unseen[1]} are unknown to you and would be lost. "
            f"Read on with offset={unseen[0]}, or use Edit."
        )
