"""The recorded model: says what a script says, turn by turn, with its pace, its errors and its cut streams.

A script is a JSON file: `{"turns": [[step, …], …]}`. A step is one of

    {"text": "…"}                         {"think": "…", "signature": "…"}
    {"call": "Read", "input": {…}}        {"call": "Read", "raw": "{\\"file_path\\""}      raw JSON as it is, even broken
    {"usage": {"input_tokens": 10, …}}    {"stop": "max_tokens"}
    {"fail": "overloaded", "status": 529, "message": "…", "retry_after": 1}      here, before or in mid-stream
    {"cut": true}                         the connection drops here; `retry_after` as above
    {"pause": 0.5}

Text, thoughts and inputs come in pieces of `chunk` characters, `delay` seconds apart (per step, or for the whole script).

What sub-agents say stands in `"agents": [{"type": "explore", "prompt": "where is", "turns": […]}, …]`: each of them follows
the first entry whose `type` is its own and whose `prompt` is part of its task; either may be left out.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Self, TypeAlias

from msgspec.structs import replace

from wieldy.core.errors import SessionError
from wieldy.core.provider import (
    BlockEnded,
    BlockGrew,
    BlockStarted,
    Delta,
    Field,
    Metered,
    ProviderFailure,
    Request,
    Stopped,
    Usage,
)
from wieldy.schema.strict_json import dense_text

Step = Mapping[str, Any]
Part: TypeAlias = "tuple[str | None, str, Script]"
KINDS = frozenset({"text", "think", "call", "usage", "stop", "fail", "cut", "pause"})


class Script:
    """A model that follows a script. In code: `Script().calls("add", a=2, b=3).says("It is 5.")`.

    `requests` are those it was sent, unless told not to `remember` them.
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
        self.turns: list[list[Step]] = [list(turn) for turn in turns]
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
        """A script from a file."""
        try:
            found = json.loads(Path(path).read_text(encoding="utf-8"))
            turns = _checked(found["turns"])
            script = cls(
                turns,
                chunk=int(found.get("chunk", 0)),
                delay=float(found.get("delay", 0)),
                model=f"script:{path}",
            )
            for part in found.get("agents", ()):
                agent = cls(_checked(part["turns"]), chunk=script.chunk, delay=script.delay, model=script.model)
                script.sends(part.get("type"), agent, prompt=part.get("prompt", ""))
        except OSError as error:
            raise SessionError(f"the script {path} cannot be read: {error.strerror}") from None
        except (ValueError, KeyError, TypeError) as error:
            raise SessionError(f"the script {path} is not a script: {error}") from None
        return script

    def says(self, text: str) -> Self:
        """Say something, after the results of the calls before it; ends the turn."""
        if self._open and any("call" in step for step in self.turns[-1]):
            self._open = False
        self._turn().append({"text": text})
        self._open = False
        return self

    def thinks(self, text: str, signature: str = "signed") -> Self:
        """Think first."""
        self._turn().append({"think": text, "signature": signature})
        return self

    def calls(self, tool: str, /, **input: Any) -> Self:
        """Call a tool. Calls that follow one another are of one turn until `then` or `says`."""
        self._turn().append({"call": tool, "input": input})
        return self

    def does(self, **step: Any) -> Self:
        """Any other step."""
        self._turn().append(step)
        return self

    def then(self) -> Self:
        """Begin the next turn."""
        self._open = False
        return self

    def sends(self, type: str | None, agent: Script, *, prompt: str = "") -> Self:
        """What a sub-agent of this kind (or of any) says, if `prompt` is part of its task."""
        self.agents.append((type, prompt, agent))
        return self

    def delegated(self, agent_type: str, prompt: str) -> Script:
        """The model of a sub-agent: a part of its own, from its first turn on."""
        for kind, words, part in self.agents:
            if kind in (None, agent_type) and words in prompt:
                return part._anew(self)
        return Script([[{"fail": "bad_request", "message": f"the script has no words for this {agent_type} agent"}]])

    def _anew(self, whole: Script) -> Script:
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

    def stream(self, request: Request) -> AbstractAsyncContextManager[AsyncIterator[Delta]]:
        """The next turn of the script."""
        return Spoken(self, request)

    def answer(self, request: Request) -> AsyncIterator[Delta]:
        """What comes back for a request. Raises `ProviderFailure`."""
        if self.remember:
            self.requests.append(replace(request, messages=tuple(request.messages)))
        if self._next >= len(self.turns):
            raise ProviderFailure("bad_request", "the script has no more turns")
        turn = self.turns[self._next]
        self._next += 1
        if turn and "fail" in turn[0]:
            raise _failure(turn[0])
        return self._deltas(turn)

    async def aclose(self) -> None:
        """Nothing to let go of."""

    async def _deltas(self, turn: Sequence[Step]) -> AsyncIterator[Delta]:
        reason: Any = None
        called = False
        for index, step in enumerate(turn):
            if "pause" in step:
                await asyncio.sleep(step["pause"])
            elif "fail" in step:
                raise _failure(step)
            elif step.get("cut"):
                raise _failure({"fail": "connection", "message": "the connection was cut", **step})
            elif "usage" in step:
                yield Metered(Usage(**step["usage"]))
            elif "stop" in step:
                reason = step["stop"]
            else:
                called = called or "call" in step
                delay = float(step.get("delay", self.delay))
                for delta in self._block(index, step):
                    if delay and isinstance(delta, BlockGrew):
                        await asyncio.sleep(delay)
                    yield delta
        yield Stopped(reason or ("tool_use" if called else "end_turn"))

    def _block(self, index: int, step: Step) -> list[Delta]:
        field: Field
        if "call" in step:
            self._calls += 1
            id = step.get("id") or f"toolu_{self._calls:04}"
            start = {"type": "tool_use", "id": id, "name": step["call"], "input": {}}
            text = step["raw"] if "raw" in step else dense_text(step.get("input", {}))
            field = "input"
        elif "think" in step:
            start, text, field = {"type": "thinking", "thinking": ""}, step["think"], "thinking"
        else:
            start, text, field = {"type": "text", "text": ""}, step["text"], "text"
        said: list[Delta] = [BlockStarted(index, start)]
        if chunk := int(step.get("chunk", self.chunk)):
            said += [BlockGrew(index, field, text[at : at + chunk]) for at in range(0, len(text), chunk)]
        elif text:
            said.append(BlockGrew(index, field, text))
        if signature := step.get("signature"):
            said.append(BlockGrew(index, "signature", signature))
        if not step.get("open"):
            said.append(BlockEnded(index))
        return said


class Spoken:
    """One turn of a script, for as long as it is listened to."""

    __slots__ = ("_request", "_script")

    def __init__(self, script: Script, request: Request) -> None:
        self._script = script
        self._request = request

    async def __aenter__(self) -> AsyncIterator[Delta]:
        return self._script.answer(self._request)

    async def __aexit__(self, *_: object) -> None:
        return None


def _checked(turns: Any) -> list[list[Step]]:
    """The turns of a file. Raises `ValueError` for a step nobody could follow."""
    if not isinstance(turns, list) or not all(isinstance(turn, list) for turn in turns):
        raise ValueError("`turns` must be a list of lists of steps")
    for turn in turns:
        for step in turn:
            if not isinstance(step, dict) or not KINDS & step.keys():
                raise ValueError(f"{json.dumps(step)[:100]} is no step; one has one of {', '.join(sorted(KINDS))}")
    return turns


def _failure(step: Step) -> ProviderFailure:
    return ProviderFailure(
        step["fail"],
        step.get("message", f"the script says: {step['fail']}"),
        status=step.get("status"),
        retry_after=step.get("retry_after"),
    )
