"""A transcript in other forms: a script that replays what the model said, and a trajectory in ATIF v1.8 of Harbor."""

from __future__ import annotations

import base64
import datetime
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any

from wieldy.agent.records import (
    AssistantBlock,
    AssistantMessageEnded,
    HistoryReplaced,
    MessageDiscarded,
    ModelChanged,
    SessionHeader,
    SubagentStarted,
    ToolResultRecord,
    TranscriptRecord,
    UserMessage,
)
from wieldy.agent.transcript import records
from wieldy.core.errors import SessionError
from wieldy.core.provider import ToolSpec
from wieldy.core.session_files import TRANSCRIPT_NAME
from wieldy.core.state_dirs import open_private


def record_script(folder: Path) -> dict[str, Any]:
    """The script of a session and its subagents, by the session's folder. Raises `SessionError`."""
    if not (folder / TRANSCRIPT_NAME).exists():
        raise SessionError(f"there is no transcript in {folder}")
    header, _, turns = _read(folder)
    agents = []
    for path in folder.glob(f"agents/**/{TRANSCRIPT_NAME}"):
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


SCHEMA_VERSION = "ATIF-v1.8"
IMAGE_FOLDER = "images"
IMAGE_SUFFIXES = {"image/png": ".png", "image/jpeg": ".jpg", "image/gif": ".gif", "image/webp": ".webp"}


def build_trajectory(folder: Path, system: Sequence[str] = (), tools: Sequence[ToolSpec] = ()) -> dict[str, Any]:
    """The trajectory of the session whose files are in a folder. Images are written to its folder `images`."""
    builder = TrajectoryBuilder(folder, folder)
    return builder.build(records(folder), system, tools)


class TrajectoryBuilder:
    """Folds the records of one transcript into steps. `images` is the folder of the session, where image files go."""

    def __init__(self, folder: Path, images: Path) -> None:
        self._folder = folder
        self._images = images
        self._steps: list[dict[str, Any]] = []
        self._blocks: dict[int, Mapping[str, Any]] = {}
        self._early_results: list[ToolResultRecord] = []
        self._step_of_call: dict[str, dict[str, Any]] = {}
        self._subagents: list[tuple[str, str]] = []
        self._header: SessionHeader | None = None
        self._model = ""

    def build(
        self, transcript: Iterable[TranscriptRecord], system: Sequence[str], tools: Sequence[ToolSpec]
    ) -> dict[str, Any]:
        from wieldy import __version__

        if system:
            self._add("system", message="\n\n".join(system))
        for record in transcript:
            self._fold(record)
        self._end_message(None)
        agent: dict[str, Any] = {"name": "wieldy", "version": __version__}
        if self._header is not None and self._header.model:
            agent["model_name"] = self._header.model
        if tools:
            agent["tool_definitions"] = [_definition(tool) for tool in tools]
        id = self._header.id if self._header is not None else self._folder.name
        trajectory: dict[str, Any] = {"schema_version": SCHEMA_VERSION, "session_id": id, "trajectory_id": id}
        subagents = self._embed_subagents()
        if not self._steps:
            self._add("system", message="(nothing happened)")
        trajectory |= {"agent": agent, "steps": self._steps, "final_metrics": self._totals()}
        return {**trajectory, "subagent_trajectories": subagents} if subagents else trajectory

    def _fold(self, record: TranscriptRecord) -> None:
        match record:
            case SessionHeader():
                self._header, self._model = record, record.model
            case ModelChanged():
                self._model = record.model
            case UserMessage():
                self._end_message(None)
                self._add("user", message=self._content(record.content))
            case AssistantBlock():
                self._blocks[len(self._blocks) if record.index is None else record.index] = record.block
            case MessageDiscarded():
                self._blocks = {}
            case AssistantMessageEnded():
                self._end_message(record)
            case ToolResultRecord():
                self._add_result(record)
            case HistoryReplaced() if record.trigger != "fork":
                self._end_message(None)
                text = [self._text(message.get("content")) for message in record.messages if isinstance(message, dict)]
                self._add("system", message="\n\n".join(text), extra={"compaction": record.trigger})
            case SubagentStarted():
                self._subagents.append((record.id, record.call))

    def _add(self, source: str, **fields: Any) -> dict[str, Any]:
        step = {"step_id": len(self._steps) + 1, "source": source, **fields}
        self._steps.append(step)
        return step

    def _end_message(self, ended: AssistantMessageEnded | None) -> None:
        blocks = [block for _, block in sorted(self._blocks.items())]
        self._blocks = {}
        if not blocks:
            return
        fields: dict[str, Any] = {"message": self._text(blocks)}
        if thoughts := "\n".join(str(block.get("thinking", "")) for block in blocks if block.get("type") == "thinking"):
            fields["reasoning_content"] = thoughts
        calls = [block for block in blocks if block.get("type") == "tool_use"]
        if calls:
            fields["tool_calls"] = [_call(block) for block in calls]
        if ended is not None:
            fields |= _metrics(ended)
        if self._model and self._header is not None and self._model != self._header.model:
            fields["model_name"] = self._model
        step = self._add("agent", **fields)
        for block in calls:
            self._step_of_call[str(block.get("id"))] = step
        results, self._early_results = self._early_results, []
        for result in results:
            self._add_result(result)

    def _add_result(self, record: ToolResultRecord) -> None:
        call_id = str(record.block.get("tool_use_id"))
        step = self._step_of_call.get(call_id)
        if step is None:
            if self._blocks:  # a tool may end before the model's message does
                self._early_results.append(record)
            return
        result: dict[str, Any] = {"source_call_id": call_id, "content": self._content(record.block.get("content"))}
        extra: dict[str, Any] = {}
        if record.block.get("is_error"):
            extra["is_error"] = True
        if record.refused:
            extra["refused"] = record.refused
        if extra:
            result["extra"] = extra
        step.setdefault("observation", {"results": []})["results"].append(result)

    def _embed_subagents(self) -> list[dict[str, Any]]:
        paths = {path.parent.name: path.parent for path in self._folder.glob(f"agents/*/{TRANSCRIPT_NAME}")}
        embedded = []
        for agent_id, call_id in self._subagents:
            if (folder := paths.pop(agent_id, None)) is None:
                continue
            embedded.append(
                {**TrajectoryBuilder(folder, self._images).build(records(folder), (), ()), "trajectory_id": agent_id}
            )
            step = self._step_of_call.get(call_id, {})
            for result in step.get("observation", {}).get("results", ()):
                if result["source_call_id"] == call_id:
                    result.setdefault("subagent_trajectory_ref", []).append({"trajectory_id": agent_id})
        return embedded

    def _content(self, content: Any) -> str | list[dict[str, Any]]:
        """Text, or parts where there is an image among it."""
        blocks = content if isinstance(content, list) else []
        if not any(isinstance(block, Mapping) and block.get("type") == "image" for block in blocks):
            return self._text(content)
        parts = [self._part(block) for block in blocks if isinstance(block, Mapping)]
        return [part for part in parts if part is not None]

    def _part(self, block: Mapping[str, Any]) -> dict[str, Any] | None:
        if block.get("type") == "text":
            return {"type": "text", "text": str(block.get("text", ""))}
        source = block.get("source")
        if block.get("type") != "image" or not isinstance(source, Mapping):
            return None
        media_type = str(source.get("media_type"))
        if media_type not in IMAGE_SUFFIXES or not isinstance(source.get("data"), str):
            return {"type": "text", "text": "(an image)"}
        data = base64.b64decode(source["data"])
        name = f"{IMAGE_FOLDER}/{blake2b(data, digest_size=8).hexdigest()}{IMAGE_SUFFIXES[media_type]}"
        file = self._images / name
        file.parent.mkdir(mode=0o700, exist_ok=True)
        with open(file, "wb", opener=open_private) as stream:
            stream.write(data)
        return {"type": "image", "source": {"media_type": media_type, "path": name}}

    def _text(self, content: Any) -> str:
        if isinstance(content, str):
            return content
        blocks = content if isinstance(content, list) else []
        return "\n".join(str(b.get("text", "")) for b in blocks if isinstance(b, Mapping) and b.get("type") == "text")

    def _totals(self) -> dict[str, Any]:
        metrics = [step["metrics"] for step in self._steps if "metrics" in step]
        totals: dict[str, Any] = {"total_steps": len(self._steps)}
        for name in ("prompt_tokens", "completion_tokens", "cached_tokens", "cost_usd"):
            totals[f"total_{name}"] = sum(each.get(name, 0) for each in metrics)
        return totals


def _definition(tool: ToolSpec) -> dict[str, Any]:
    function = {"name": tool.name, "description": tool.description, "parameters": dict(tool.input_schema)}
    return {"type": "function", "function": function}


def _call(block: Mapping[str, Any]) -> dict[str, Any]:
    input = block.get("input")
    return {
        "tool_call_id": str(block.get("id")),
        "function_name": str(block.get("name")),
        "arguments": dict(input) if isinstance(input, Mapping) else {},
    }


def _metrics(ended: AssistantMessageEnded) -> dict[str, Any]:
    usage = ended.usage
    cached = usage.get("cache_read_tokens", 0)
    metrics: dict[str, Any] = {
        "prompt_tokens": usage.get("input_tokens", 0) + cached + usage.get("cache_write_tokens", 0),
        "completion_tokens": usage.get("output_tokens", 0),
        "cached_tokens": cached,
    }
    if ended.cost is not None:
        metrics["cost_usd"] = ended.cost
    fields: dict[str, Any] = {"metrics": metrics, "llm_call_count": 1}
    if ended.at is not None:
        fields["timestamp"] = datetime.datetime.fromtimestamp(ended.at, datetime.UTC).isoformat()
    return fields
