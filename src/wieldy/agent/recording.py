"""Turns the transcript of a session into a script that replays what the model said."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from wieldy.agent.records import AssistantBlock, AssistantMessageEnded, MessageDiscarded, SessionHeader, UserMessage
from wieldy.agent.transcript import NAME, records
from wieldy.core.errors import SessionError


def record_script(folder: Path) -> dict[str, Any]:
    """The script of a session and its subagents, by the session's folder. Raises `SessionError`."""
    if not (folder / NAME).exists():
        raise SessionError(f"there is no transcript in {folder}")
    header, _, turns = _read(folder)
    agents = []
    for path in folder.glob(f"agents/**/{NAME}"):
        agent_header, prompt, agent_turns = _read(path.parent)
        type = agent_header.agent if agent_header is not None and agent_header.agent else "general"
        agents.append({"type": type, "prompt": prompt, "turns": agent_turns})
    # A replay takes the first agent whose prompt is contained in the task: longer prompts first.
    agents.sort(key=lambda agent: (-len(agent["prompt"]), agent["prompt"]))
    script = {"recorded_from": header.model if header is not None else "", "turns": turns}
    return {**script, "agents": agents} if agents else script


def _read(folder: Path) -> tuple[SessionHeader | None, str, list[list[dict[str, Any]]]]:
    """The header of a transcript, the first prompt, and the turns of the model."""
    header: SessionHeader | None = None
    prompt = ""
    turns: list[list[dict[str, Any]]] = []
    blocks: dict[int, Mapping[str, Any]] = {}
    for record in records(folder):
        match record:
            case SessionHeader():
                header = record
            case UserMessage() if not prompt and record.content:
                prompt = str(record.content[0].get("text", ""))
            case AssistantBlock():
                blocks[len(blocks) if record.index is None else record.index] = record.block
            case MessageDiscarded():
                blocks = {}
            case AssistantMessageEnded():
                if blocks:
                    turns.append([*_block_steps(blocks), *_end_steps(record)])
                blocks = {}
    return header, prompt, turns


def _block_steps(blocks: Mapping[int, Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    for _, block in sorted(blocks.items()):
        match block.get("type"):
            case "text":
                yield {"text": block["text"]}
            case "thinking":
                yield {"think": block["thinking"], "signature": block.get("signature", "")}
            case "tool_use":
                yield {"call": block["name"], "id": block["id"], "input": block["input"]}


def _end_steps(record: AssistantMessageEnded) -> Iterator[dict[str, Any]]:
    if any(record.usage.values()):
        yield {"usage": record.usage}
    if record.stop_reason in ("max_tokens", "refusal", "pause_turn", "stop_sequence"):
        yield {"stop": record.stop_reason}
