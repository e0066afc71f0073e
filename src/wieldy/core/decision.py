"""Permission decisions: opinions go in, one decision with its reasons comes out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from json import dumps
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

from msgspec import Struct

from wieldy.core.call import EDIT_FIELDS, list_edits
from wieldy.core.json_values import fields_to_json, to_json
from wieldy.core.text import escape_invisible

if TYPE_CHECKING:
    from wieldy.core.call import PlannedCall
    from wieldy.core.outcome import Outcome

Behavior: TypeAlias = Literal["allow", "ask", "deny"]
GrantScope: TypeAlias = Literal["session", "project", "user"]
STRICTNESS: Mapping[Behavior, int] = {"allow": 0, "ask": 1, "deny": 2}


class Reason(Struct, frozen=True):
    """One step of the reason trail: what kind of source, its verdict, and where it is written."""

    kind: Literal["rule", "mode", "hook", "default", "guard", "path", "analysis", "tool", "answer"]
    behavior: Behavior
    text: str
    rule: str | None = None
    file: str | None = None
    line: int | None = None
    part: str | None = None

    def __str__(self) -> str:
        where = f" ({self.file}{f':{self.line}' if self.line else ''})" if self.file else ""
        if self.kind in ("rule", "mode") or not self.part:
            text = f"{self.text} for `{self.part}`" if self.part else self.text
        else:
            text = self.text if f"`{self.part}`" in self.text else f"`{self.part}`: {self.text}"
        return f"{self.behavior}: {text}{where}"


class Opinion(Struct, frozen=True):
    """The verdict of a hook, an analysis or a tool's own check, which is combined with rules and mode."""

    who: str
    behavior: Behavior
    why: str


class Decision(Struct, frozen=True):
    """Allow, ask or deny, with all reasons. `suggestions` are rules that would have allowed the call."""

    behavior: Behavior
    reasons: tuple[Reason, ...]
    suggestions: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """The decision as JSON, with `why` as text."""
        return {**fields_to_json(self), "why": self.why}

    @property
    def why(self) -> str:
        """The reason that decided: the first of the strictest."""
        for reason in self.reasons:
            if reason.behavior == self.behavior:
                return str(reason)
        return self.behavior

    @property
    def explanation(self) -> str:
        """`why` for a sentence that says itself whether the call was allowed."""
        return self.why.removeprefix(f"{self.behavior}: ")


class Advice(Struct, frozen=True):
    """What one adviser returns before a call runs; `updated_input` replaces the whole input."""

    opinions: tuple[Opinion, ...] = ()
    updated_input: Mapping[str, Any] | None = None
    context: tuple[str, ...] = ()


class Question(Struct, frozen=True):
    """A permission question for a person; `agent` names the subagent that makes the call, if any.

    `agent_calls` are the ids of the calls that lead to this subagent, the outermost first.
    """

    plan: PlannedCall
    decision: Decision
    agent: str = ""
    agent_calls: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        """The id of the call that the question is about."""
        return self.plan.call.id

    @property
    def name(self) -> str:
        """The tool that is called."""
        return self.plan.tool.name

    @property
    def input(self) -> Mapping[str, Any]:
        """The input as it would run, with absolute paths."""
        return self.plan.input

    @property
    def reasons(self) -> tuple[Reason, ...]:
        """Why it is asked; `decision.reasons` has also what speaks for the call."""
        return tuple(reason for reason in self.decision.reasons if reason.behavior == self.decision.behavior)

    @property
    def preview(self) -> str:
        """All of the input as text for a person: edits as lines with `-` and `+`, invisible characters as `<U+200B>`."""
        edits = list_edits(self.input)
        fields = {name: value for name, value in self.input.items() if not edits or name not in EDIT_FIELDS}
        lines = [f"{name}: {_to_text(value)}" for name, value in fields.items()]
        for old, new in edits:
            lines += [f"- {line}" for line in old.splitlines()] + [f"+ {line}" for line in new.splitlines()]
        return escape_invisible("\n".join(lines))

    def as_dict(self) -> dict[str, Any]:
        """The question as JSON."""
        data = {"id": self.id, "kind": "permission", "name": self.name, "input": to_json(self.input)}
        return {**data, "decision": self.decision.as_dict(), **({"agent": self.agent} if self.agent else {})}


def _to_text(value: Any) -> str:
    return value if isinstance(value, str) else dumps(to_json(value), ensure_ascii=False)


class Answer(Struct, frozen=True):
    """The person's answer; `words` go to the model when it is a no, `remember` are rules to save, `scope` says where."""

    allowed: bool
    words: str = ""
    remember: tuple[str, ...] = ()
    scope: GrantScope = "project"
    updated_input: Mapping[str, Any] | None = None

    def as_dict(self) -> dict[str, Any]:
        """The answer as JSON."""
        return fields_to_json(self)


class Adviser(Protocol):
    """Gives opinions on a planned call, such as hooks. All advisers of a call run side by side."""

    def wants(self, plan: PlannedCall) -> bool:
        """Whether to call `advise`. Must be fast: it runs for every call."""
        ...

    async def advise(self, plan: PlannedCall) -> Advice: ...


class Reviewer(Protocol):
    """Reviews the outcome of a call that ran, such as a PostToolUse hook."""

    async def review(self, plan: PlannedCall, outcome: Outcome, seconds: float) -> Outcome:
        """Return the outcome, changed or not."""
        ...


class Judge(Protocol):
    """Decides on calls. Pure: no I/O, no clock, no waiting."""

    def decide(self, plan: PlannedCall, opinions: Sequence[Opinion]) -> Decision: ...


class Approver(Protocol):
    """Asks a person. The engine asks one question at a time."""

    async def ask(self, question: Question) -> Answer: ...
