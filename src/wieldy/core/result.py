"""What goes back: to the model as a `tool_result`, to the caller as text, content and data."""

from __future__ import annotations

from typing import Any

from wieldy.core.content import Content, text_of
from wieldy.core.outcome import Outcome
from wieldy.core.record import record


@record
class ToolResult:
    """The one result of one call."""

    call_id: str
    name: str
    content: Content
    data: Any
    is_error: bool
    outcome: Outcome

    @property
    def text(self) -> str:
        """The text the model reads."""
        return text_of(self.content)

    def as_wire(self) -> dict[str, Any]:
        """The `tool_result` block of the Anthropic Messages API."""
        return {
            "type": "tool_result",
            "tool_use_id": self.call_id,
            "content": [block.as_wire() for block in self.content],
            "is_error": self.is_error,
        }
