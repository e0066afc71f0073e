"""What the two APIs of OpenAI have in common: where they are, tools, counts of tokens, and the outline of their streams."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from wieldy.core.messages import ContentBlock
from wieldy.core.provider import Delta, ProviderFailure, Request, Stopped, StopReason, Usage
from wieldy.core.schema.strict_json import encode_json
from wieldy.models.catalog import PROVIDERS
from wieldy.models.http import HttpModel, decode_event

DONE = b"[DONE]"
REASONING_MODELS = ("o1", "o3", "o4", "gpt-5", "gpt-6")


class OpenAIModel(HttpModel):
    """One model behind an API of OpenAI, or one that speaks like it."""

    name = "openai"
    provider = PROVIDERS["openai"]
    default_context_window = 128_000


def request_head(request: Request, model: str, *, token_limit: str, **fields: Any) -> dict[str, Any]:
    """The fields of a request besides history and tools; `token_limit` is what this API calls the greatest length."""
    head: dict[str, Any] = {"model": model, "stream": True, **fields}
    if request.max_tokens is not None:
        head[token_limit] = request.max_tokens
    if request.temperature is not None:
        head["temperature"] = request.temperature
    return head


def join_items(items: Iterable[Mapping[str, Any]]) -> bytes:
    """Encode what one of our messages is here: one or several items, joined by commas."""
    return b",".join(encode_json(item) for item in items)


def result_text(content: Any) -> str:
    """The text of a tool result without pictures."""
    if isinstance(content, str):
        return content
    return "\n".join(part["text"] for part in content if part["type"] == "text") or "(no output)"


def count_usage(input_tokens: int, output_tokens: int, cached: int) -> Usage:
    """The counts of an API whose input includes what came from the cache."""
    return Usage(input_tokens=max(input_tokens - cached, 0), output_tokens=output_tokens, cache_read_tokens=cached)


class OpenAIParser:
    """Parses the stream of one answer. Blocks are numbered in the order in which they begin."""

    def __init__(self, model: str = "") -> None:
        self.finished = False
        self._model = model
        self._stop_reason: StopReason | None = None
        self._next_block = 0

    def feed(self, data: bytes) -> Iterator[Delta]:
        """Parse one event. Raises `ProviderFailure`."""
        if data.strip() == DONE:
            self.finished = True
            return
        yield from self.feed_event(decode_event(data))

    @abstractmethod
    def feed_event(self, event: Mapping[str, Any]) -> Iterator[Delta]:
        """Parse one decoded event. Raises `ProviderFailure`."""

    def close(self) -> Iterator[Delta]:
        """Close open blocks; half a call that the length limit or the server cut off stays open and so is never run.

        Raises `ProviderFailure` where the answer has not ended.
        """
        reason = self._stop_reason
        if reason is None and self.finished and self._next_block:
            reason = "end_turn"  # some servers only say [DONE]: they had ended, unless half a call tells otherwise
        if reason is None:
            raise ProviderFailure("connection", "the stream ended before the answer did")
        yield from self._close_blocks(is_cut_off=reason == "max_tokens")
        yield Stopped("tool_use" if self._has_calls and reason == "end_turn" else reason)

    @property
    @abstractmethod
    def _has_calls(self) -> bool: ...

    @abstractmethod
    def _close_blocks(self, *, is_cut_off: bool) -> Iterator[Delta]: ...

    def _begin_block(self) -> int:
        self._next_block += 1
        return self._next_block - 1


def image_url(block: ContentBlock) -> str:
    """The address of a picture; a `data:` URL for one that is sent along."""
    source = block["source"]
    return source["url"] if source["type"] == "url" else f"data:{source['media_type']};base64,{source['data']}"


def is_reasoning_model(model: str) -> bool:
    """Whether a model of OpenAI thinks before it answers, as far as its name tells."""
    return model.startswith(REASONING_MODELS) and "-chat" not in model
