"""A session that happened → a script that makes it happen again: what the model said, turn by turn."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from wieldy.agent.transcript import NAME, records
from wieldy.core.errors import SessionError


def recorded(folder: Path) -> dict[str, Any]:
    """The script of a session's folder: a recorded model that says the same again, as its sub-agents do.

    Raises `SessionError` where there is none.
    """
    if not (folder / NAME).exists():
        raise SessionError(f"there is no transcript in {folder}")
    header, _, turns = _said(folder)
    agents = list(_agents(folder))
    return {"recorded_from": header.get("model", ""), "turns": turns, **({"agents": agents} if agents else {})}


def _agents(folder: Path) -> Iterator[dict[str, Any]]:
    """The parts of all that were sent, the longest task first: a part of it may be all of another's."""
    found = []
    for path in sorted(folder.glob(f"agents/**/{NAME}")):
        header, task, turns = _said(path.parent)
        found.append({"type": header.get("agent", "general"), "prompt": task, "turns": turns})
    yield from sorted(found, key=lambda part: -len(part["prompt"]))


def _said(folder: Path) -> tuple[Mapping[str, Any], str, list[list[dict[str, Any]]]]:
    """The header of a transcript, the first thing that was asked, and what the model said to it, turn by turn."""
    header: Mapping[str, Any] = {}
    task = ""
    turns: list[list[dict[str, Any]]] = []
    blocks: dict[int, Mapping[str, Any]] = {}
    for told in records(folder):
        match told.get("type"):
            case "session":
                header = told
            case "user" if not task and told.get("content"):
                task = str(told["content"][0].get("text", ""))
            case "block" if isinstance(told.get("block"), Mapping):
                blocks[int(told.get("index", len(blocks)))] = told["block"]
            case "dropped":
                blocks = {}
            case "answered":
                if blocks:
                    turns.append([*_steps(blocks), *_ending(told)])
                blocks = {}
    return header, task, turns


def _steps(blocks: Mapping[int, Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    for _, block in sorted(blocks.items()):
        match block.get("type"):
            case "text":
                yield {"text": block["text"]}
            case "thinking":
                yield {"think": block["thinking"], "signature": block.get("signature", "")}
            case "tool_use":
                yield {"call": block["name"], "id": block["id"], "input": block["input"]}


def _ending(answered: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    usage = answered.get("usage")
    if isinstance(usage, Mapping) and any(usage.values()):
        yield {"usage": dict(usage)}
    if answered.get("stop_reason") in ("max_tokens", "refusal", "pause_turn", "stop_sequence"):
        yield {"stop": answered["stop_reason"]}
