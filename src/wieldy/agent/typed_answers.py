"""Answers with a type: the schema goes to the model with the prompt, its last text is checked and converted."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Awaitable, Iterator, Mapping
from typing import Any

from msgspec import Struct

from wieldy.agent.loop import AgentLoop, RunEnd
from wieldy.agent.prompts import Prompt, prompt_content
from wieldy.agent.runs import Work
from wieldy.core.abort import Abort
from wieldy.core.json_values import to_json
from wieldy.core.schema.check import InvalidInput, SchemaError, UnsupportedAnnotation
from wieldy.core.schema.parameters import Parameters

MAX_CORRECTIONS = 3
_FENCE = re.compile(r"```(?:json)?[ \t]*\n(.*?)\n?```", re.DOTALL)


class TypedAnswer(Struct, frozen=True):
    """An answer that fits: the Python value, and the JSON it was made from."""

    value: Any
    data: Any


class AnswerProblem(Exception):
    """An answer does not fit; the message is for the model."""


class AnswerType:
    """What an answer must be: an annotation, such as a dataclass or `list[Plan]`, or a JSON Schema.

    Raises `TypeError` or `ValueError` for something else.
    """

    def __init__(self, returns: Any) -> None:
        try:
            if isinstance(returns, Mapping):
                self._parameters = Parameters.from_schema(returns)
                self._parameters.compile()
            else:
                self._parameters = Parameters.from_annotation(returns, "the answer")
        except SchemaError as error:
            raise ValueError(f"the schema of the answer cannot be used: {error}") from None
        except UnsupportedAnnotation as error:
            raise TypeError(f"`returns` cannot be used: {error}") from None

    @property
    def instruction(self) -> str:
        """What is sent with the prompt."""
        schema = json.dumps(self._parameters.schema, ensure_ascii=False)
        return f"When you are done, answer with JSON alone, without any other text. It must fit this JSON Schema:\n{schema}"

    def read(self, text: str) -> TypedAnswer:
        """Read the model's last text. Raises `AnswerProblem`."""
        first_error: InvalidInput | None = None
        for data in _find_json(text):
            try:
                return TypedAnswer(self._parameters.accept(data), data)
            except InvalidInput as error:
                first_error = first_error or error
        if first_error is None:
            raise AnswerProblem("Your answer is not JSON.")
        problems = "\n".join(f"- {problem}" for problem in first_error.problems)
        raise AnswerProblem(f"Your answer does not fit the schema:\n{problems}")

    def check(self, work: Work) -> Work:
        """Run some work until the last text fits; after some corrections that do not help the run ends with an error."""

        async def checked(loop: AgentLoop, context: tuple[str, ...], abort: Abort) -> RunEnd:
            attempt: Awaitable[RunEnd] = work(loop, context, abort)
            problem = ""
            for _ in range(MAX_CORRECTIONS + 1):
                end = await attempt
                if end.why != "done":
                    return end
                try:
                    answer = self.read(end.text)
                except AnswerProblem as error:
                    problem = str(error)
                else:
                    return RunEnd(end.why, end.detail, end.text, end.failure, answer.value, to_json(answer.data))
                attempt = loop.correct(f"{problem}\nAnswer again with JSON alone that fits the schema.", abort)
            attempt.close()  # type: ignore[attr-defined]
            lines = " ".join(problem.split())
            return RunEnd(
                "invalid_answer", f"the answer does not fit after {MAX_CORRECTIONS} corrections: {lines}", end.text
            )

        return checked


def send_prompt(prompt: Prompt, returns: Any = None) -> Work:
    """The work of sending a prompt; with `returns`, until the answer fits."""
    answer_type = None if returns is None else AnswerType(returns)

    async def send(loop: AgentLoop, context: tuple[str, ...], abort: Abort) -> RunEnd:
        content = prompt_content(prompt)
        if answer_type is not None:
            content.append({"type": "text", "text": answer_type.instruction})
        return await loop.run(content, context, abort)

    return send if answer_type is None else answer_type.check(send)


def _find_json(text: str) -> Iterator[Any]:
    """The JSON values that a text may mean: all of it, then what stands in a code fence, in brackets or in braces."""
    text = text.strip()
    candidates = [text, *(match[1] for match in reversed(list(_FENCE.finditer(text))))]
    for opening, closing in sorted((("[", "]"), ("{", "}")), key=lambda pair: text.find(pair[0])):
        start, end = text.find(opening), text.rfind(closing)
        if 0 <= start < end:
            candidates.append(text[start : end + 1])
    for candidate in candidates:
        with contextlib.suppress(ValueError, RecursionError):
            yield json.loads(candidate)
