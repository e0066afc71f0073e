"""How a call ended, and its result: content blocks for the model, data for the caller."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, TypeAlias

from msgspec import Struct

from wieldy.core.errors import Stage
from wieldy.core.json_values import to_json
from wieldy.core.text import without_reminders


class Text(Struct, frozen=True):
    text: str

    def as_wire(self) -> dict[str, Any]:
        """The block in a `tool_result` of the Anthropic Messages API."""
        return {"type": "text", "text": self.text}


class Image(Struct, frozen=True):
    """An image, base64-encoded."""

    media_type: str
    data: str

    def as_wire(self) -> dict[str, Any]:
        """The block in a `tool_result` of the Anthropic Messages API."""
        return {"type": "image", "source": {"type": "base64", "media_type": self.media_type, "data": self.data}}


Block: TypeAlias = Text | Image
Content: TypeAlias = tuple[Block, ...]


def text_of(content: Content) -> str:
    """Join the text blocks by line breaks."""
    return "\n".join(block.text for block in content if isinstance(block, Text))


class Done(Struct, frozen=True):
    """The tool returned a result."""

    kind: ClassVar[Literal["done"]] = "done"

    content: Content
    data: Any = None
    is_error: bool = False


class Failed(Struct, frozen=True):
    """The tool raised an error: `message` for the model, `person` for a person where that differs."""

    kind: ClassVar[Literal["failed"]] = "failed"

    message: str
    data: Any = None
    person: str = ""


class Refused(Struct, frozen=True):
    """The tool did not run: the stage that refused, and what the model can do next; `person` says why to a person."""

    kind: ClassVar[Literal["refused"]] = "refused"

    stage: Stage
    advice: str
    data: Any = None
    person: str = ""


class Interrupted(Struct, frozen=True):
    """The user stopped the call; `partial` is the output until then."""

    kind: ClassVar[Literal["interrupted"]] = "interrupted"

    reason: str = "interrupted by the user"
    partial: str = ""


class Waiting(Struct, frozen=True):
    """The call has not run: it waits for the answer to its own question, or to that of a call before it."""

    kind: ClassVar[Literal["waiting"]] = "waiting"

    question_id: str | None = None


Outcome: TypeAlias = Done | Failed | Refused | Interrupted | Waiting


class ToolResult(Struct, frozen=True):
    """What the model and the caller get."""

    call_id: str
    name: str
    content: Content
    data: Any
    is_error: bool
    outcome: Outcome

    @property
    def text(self) -> str:
        return text_of(self.content)

    @property
    def person_text(self) -> str:
        """The result for a person: without next steps and reminders for the model."""
        match self.outcome:
            case Refused(advice=text, person=person) | Failed(message=text, person=person):
                return without_reminders(person or text)
        return without_reminders(self.text)

    def as_dict(self) -> dict[str, Any]:
        """The result as JSON: `outcome` says how the call ended, `stage` which stage refused it."""
        refusal = {"stage": self.outcome.stage} if isinstance(self.outcome, Refused) else {}
        return {
            "call_id": self.call_id,
            "name": self.name,
            "outcome": self.outcome.kind,
            **refusal,
            "is_error": self.is_error,
            "content": [block.as_wire() for block in self.content],
            "data": to_json(self.data),
        }

    def as_wire(self) -> dict[str, Any]:
        """The `tool_result` block of the Anthropic Messages API."""
        return {
            "type": "tool_result",
            "tool_use_id": self.call_id,
            "content": [block.as_wire() for block in self.content],
            "is_error": self.is_error,
        }
