"""Calls of the past, out of transcripts: what was asked for, and what was decided about it then."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from wieldy.core.decision import Behavior
from wieldy.session.transcript import records

Past = tuple[str, Mapping[str, Any], Behavior]


def past_calls(folder: Path) -> Iterator[Past]:
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
