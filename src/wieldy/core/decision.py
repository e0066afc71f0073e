"""Who may do what, as data: opinions go in, one decision with its reasons comes out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

from msgspec import Struct

if TYPE_CHECKING:
    from wieldy.core.call import PlannedCall
    from wieldy.core.outcome import Outcome

Behavior: TypeAlias = Literal["allow", "ask", "deny"]
STRICTNESS: Mapping[Behavior, int] = {"allow": 0, "ask": 1, "deny": 2}


class Reason(Struct, frozen=True):
    """One step of the trail: what spoke, what it said, and where it is written."""

    kind: Literal["rule", "mode", "hook", "default", "guard", "path", "analysis", "tool", "answer"]
    behavior: Behavior
    text: str
    rule: str | None = None
    file: str | None = None
    line: int | None = None
    part: str | None = None

    def __str__(self) -> str:
        where = f" ({self.file}{f':{self.line}' if self.line else ''})" if self.file else ""
        part = f" for `{self.part}`" if self.part else ""
        return f"{self.behavior}: {self.text}{part}{where}"


class Opinion(Struct, frozen=True):
    """What a hook or an analysis thinks of a call; the decision weighs it with rules and mode."""

    who: str
    behavior: Behavior
    why: str


class Decision(Struct, frozen=True):
    """Allow, ask or deny, with the whole trail. `suggestions` are rules that would have allowed the call."""

    behavior: Behavior
    reasons: tuple[Reason, ...]
    suggestions: tuple[str, ...] = ()

    @property
    def why(self) -> str:
        """The reason that decided: the first of the strictest."""
        for reason in self.reasons:
            if reason.behavior == self.behavior:
                return str(reason)
        return self.behavior


class Advice(Struct, frozen=True):
    """What one adviser has to say before a call runs; `updated_input` replaces the whole input."""

    opinions: tuple[Opinion, ...] = ()
    updated_input: Mapping[str, Any] | None = None
    context: tuple[str, ...] = ()


class Question(Struct, frozen=True):
    """What a person is asked; `agent` is the sub-agent that wants it, where one does."""

    plan: PlannedCall
    decision: Decision
    agent: str = ""


class Answer(Struct, frozen=True):
    """What the person said; `words` go to the model when it is a no, `remember` are rules to keep."""

    allowed: bool
    words: str = ""
    remember: tuple[str, ...] = ()
    updated_input: Mapping[str, Any] | None = None


class Adviser(Protocol):
    """Gives opinions on a planned call: hooks, analysis. All advisers of a call run side by side."""

    def wants(self, plan: PlannedCall) -> bool:
        """Whether it may have something to say. Quick: it is asked about every call."""
        ...

    async def advise(self, plan: PlannedCall) -> Advice:
        """Judge one call."""
        ...


class Reviewer(Protocol):
    """Looks at what came of a call that ran: may add to it, or replace it."""

    async def review(self, plan: PlannedCall, outcome: Outcome, seconds: float) -> Outcome:
        """The outcome to go on with."""
        ...


class Judge(Protocol):
    """Decides. Pure: no I/O, no clock, no waiting."""

    def decide(self, plan: PlannedCall, opinions: Sequence[Opinion]) -> Decision:
        """Weigh a call and the opinions on it."""
        ...


class Approver(Protocol):
    """Asks a person, one question at a time."""

    async def ask(self, question: Question) -> Answer:
        """Put the question and wait for the answer."""
        ...
