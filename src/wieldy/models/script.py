"""A scripted model for tests and demos: replays turns, with delays, errors and cut streams.

A script is a JSON file: `{"turns": [[step, …], …]}`. A step is one of

    {"text": "…"}                         {"think": "…", "signature": "…"}
    {"call": "Read", "input": {…}}        {"call": "Read", "raw": "{\\"file_path\\""}      raw JSON as it is, even broken
    {"usage": {"input_tokens": 10, …}}    {"stop": "max_tokens"}
    {"fail": "overloaded", "status": 529, "message": "…", "retry_after": 1}      here, before or in mid-stream
    {"cut": true}                         the connection drops here; `retry_after` as above
    {"pause": 0.5}

Text, thoughts and inputs come in pieces of `chunk` characters, `delay` seconds apart (per step, or for the whole script).

Turns of subagents are in `"agents": [{"type": "explore", "prompt": "where is", "turns": […]}, …]`: each of them follows
the first entry whose `type` is its own and whose `prompt` is part of its task; either may be left out.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Self, TypeAlias

from msgspec.structs import replace

from wieldy.core.errors import SessionError
from wieldy.core.provider import (
    BlockDelta,
    BlockEnded,
    BlockStarted,
    Delta,
    Field,
    ProviderFailure,
    Request,
    Stopped,
    Usage,
    UsageReported,
)

Step = Mapping[str, Any]
Part: TypeAlias = "tuple[str | None, str, Script]"
_PACE = ("chunk", "delay", "open")
# What each kind of step may say besides.
FIELDS: Mapping[str, Sequence[str]] = {
    "text": _PACE,
    "think": ("signature", *_PACE),
    "call": ("input", "raw", "id", *_PACE),
    "usage": (),
    "stop": (),
    "fail": ("status", "message", "retry_after"),
    "cut": ("message", "retry_after"),
    "pause": (),
}


class Script:
    """A model that follows a script. In code: `Script().calls("add", a=2, b=3).says("It is 5.")`.

    `requests` keeps the requests it got, unless `remember` is false. Raises `ValueError` for a step that is misspelled.
    """

    name = "script"

    def __init__(
        self,
        turns: Sequence[Sequence[Step]] = (),
        *,
        chunk: int = 0,
        delay: float = 0.0,
        model: str = "script",
        context_window: int = 200_000,
        remember: bool = True,
        agents: Sequence[Part] = (),
    ) -> None:
        self.turns: list[list[Step]] = _check_turns(turns)
        self.chunk = chunk
        self.delay = delay
        self.model = model
        self.context_window = context_window
        self.remember = remember
        self.agents: list[Part] = list(agents)
        self.requests: list[Request] = []
        self._next = 0
        self._calls = 0
        self._open = False

    @classmethod
    def load(cls, path: str | Path) -> Script:
        """Read a script from a file. Raises `SessionError`."""
        try:
            data = json.loads(Path(path).read_text(encoding="utf-8"))
            script = cls(
                data["turns"],
                chunk=int(data.get("chunk", 0)),
                delay=float(data.get("delay", 0)),
                model=f"script:{path}",
            )
            for part in data.get("agents", ()):
                agent = cls(part["turns"], chunk=script.chunk, delay=script.delay, model=script.model)
                script.sends(part.get("type"), agent, prompt=part.get("prompt", ""))
        except OSError as error:
            raise SessionError(f"the script {path} cannot be read: {error.strerror}") from None
        except (ValueError, KeyError, TypeError) as error:
            raise SessionError(f"the script {path} is not a script: {error}") from None
        return script

    def says(self, text: str) -> Self:
        """Answer with text and end the turn; after calls, in the turn that follows them."""
        if self._open and any("call" in step for step in self.turns[-1]):
            self._open = False
        self._turn().append({"text": text})
        self._open = False
        return self

    def thinks(self, text: str, signature: str = "signed") -> Self:
        self._turn().append({"think": text, "signature": signature})
        return self

    def calls(self, tool: str, /, **input: Any) -> Self:
        """Call a tool. Calls that follow one another are of one turn until `then` or `says`."""
        self._turn().append({"call": tool, "input": input})
        return self

    def does(self, **step: Any) -> Self:
        _check_step(step)
        self._turn().append(step)
        return self

    def then(self) -> Self:
        self._open = False
        return self

    def sends(self, type: str | None, agent: Script, *, prompt: str = "") -> Self:
        """Set the script of subagents of this type (None: any) whose task contains `prompt`."""
        self.agents.append((type, prompt, agent))
        return self

    def delegated(self, agent_type: str, prompt: str) -> Script:
        """The model of a subagent: a fresh copy of its part of the script."""
        for type, prompt_part, part in self.agents:
            if type in (None, agent_type) and prompt_part in prompt:
                return part._copy(self)
        return Script([[{"fail": "bad_request", "message": f"the script has no turns for this {agent_type} agent"}]])

    def _copy(self, whole: Script) -> Script:
        other = Script(
            self.turns,
            chunk=self.chunk,
            delay=self.delay,
            model=whole.model,
            context_window=self.context_window,
            remember=self.remember,
            agents=self.agents or whole.agents,
        )
        other.requests = self.requests
        return other

    def _turn(self) -> list[Step]:
        if not self._open:
            self.turns.append([])
            self._open = True
        return self.turns[-1]

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[AsyncIterator[Delta]]:
        """Give the deltas of the next turn. Raises `ProviderFailure`."""
        if self.remember:
            self.requests.append(replace(request, messages=tuple(request.messages)))
        if self._next >= len(self.turns):
            raise ProviderFailure("bad_request", "the script has no more turns")
        turn = self.turns[self._next]
        self._next += 1
        if turn and "fail" in turn[0]:
            raise _failure(turn[0])
        yield self._deltas(turn)

    async def aclose(self) -> None:
        """Do nothing."""

    async def _deltas(self, turn: Sequence[Step]) -> AsyncIterator[Delta]:
        reason: Any = None
        has_calls = False
        for index, step in enumerate(turn):
            if "pause" in step:
                await asyncio.sleep(step["pause"])
            elif "fail" in step:
                raise _failure(step)
            elif step.get("cut"):
                raise _failure({"fail": "connection", "message": "the connection was cut", **step})
            elif "usage" in step:
                yield UsageReported(Usage(**step["usage"]))
            elif "stop" in step:
                reason = step["stop"]
            else:
                has_calls = has_calls or "call" in step
                delay = float(step.get("delay", self.delay))
                for delta in self._block(index, step):
                    if delay and isinstance(delta, BlockDelta):
                        await asyncio.sleep(delay)
                    yield delta
        yield Stopped(reason or ("tool_use" if has_calls else "end_turn"))

    def _block(self, index: int, step: Step) -> list[Delta]:
        field: Field
        if "call" in step:
            self._calls += 1
            id = step.get("id") or f"toolu_{self._calls:04}"
            start = {"type": "tool_use", "id": id, "name": step["call"], "input": {}}
            text = step["raw"] if "raw" in step else json.dumps(step.get("input", {}), ensure_ascii=False)
            field = "input"
        elif "think" in step:
            start, text, field = {"type": "thinking", "thinking": ""}, step["think"], "thinking"
        else:
            start, text, field = {"type": "text", "text": ""}, step["text"], "text"
        deltas: list[Delta] = [BlockStarted(index, start)]
        if chunk := int(step.get("chunk", self.chunk)):
            deltas += [BlockDelta(index, field, text[at : at + chunk]) for at in range(0, len(text), chunk)]
        elif text:
            deltas.append(BlockDelta(index, field, text))
        if signature := step.get("signature"):
            deltas.append(BlockDelta(index, "signature", signature))
        if not step.get("open"):
            deltas.append(BlockEnded(index))
        return deltas


def _check_turns(turns: Any) -> list[list[Step]]:
    if not isinstance(turns, Sequence) or not all(isinstance(turn, Sequence) for turn in turns):
        raise ValueError("`turns` must be a list of lists of steps")
    for turn in turns:
        for step in turn:
            _check_step(step)
    return [list(turn) for turn in turns]


def _check_step(step: Any) -> None:
    shown = repr(step)[:100]
    kind = next((name for name in FIELDS if name in step), None) if isinstance(step, Mapping) else None
    if kind is None:
        raise ValueError(f"{shown} is not a step: a step has one of {', '.join(FIELDS)}")
    for name in step:
        if name != kind and name not in FIELDS[kind]:
            known = ", ".join(FIELDS[kind]) or "nothing else"
            raise ValueError(f"{shown}: a step with `{kind}` has no `{name}`; it may have {known}")


def _failure(step: Step) -> ProviderFailure:
    return ProviderFailure(
        step["fail"],
        step.get("message", f"the script says: {step['fail']}"),
        status=step.get("status"),
        retry_after=step.get("retry_after"),
    )
