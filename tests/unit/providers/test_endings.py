"""How few bytes an ending takes, on either wire, held against the shortest there can be and those that servers send."""

from __future__ import annotations

import json
from typing import Any

import pytest

from wieldy.providers import anthropic
from wieldy.providers import openai_chat as completion


def compact(event: dict[str, Any], *, named: bool) -> bytes:
    name = f"event:{event['type']}\n" if named else ""
    return f"{name}data:{json.dumps(event, separators=(',', ':'))}\n\n".encode()


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("kind", ["text", "thinking"])
def test_no_ending_of_a_message_is_shorter_than_what_is_waited_for(named, kind):
    grown = {"type": f"{kind}_delta", kind: "word"}
    waited = anthropic.ending(compact({"type": "content_block_delta", "index": 0, "delta": grown}, named=named))
    stop: dict[str, Any] = {"type": "content_block_stop", "index": 0}
    reasons = ("end_turn", "max_tokens", "stop_sequence", "tool_use", "pause_turn", "refusal")
    ends = [[stop, {"type": "message_delta", "delta": {"stop_reason": r}}, {"type": "message_stop"}] for r in reasons]
    block = {"type": "tool_use", "id": "", "name": "", "input": {}}
    call = [stop, {"type": "content_block_start", "index": 1, "content_block": block}, stop]
    lengths = [sum(len(compact(event, named=named)) for event in end) for end in [*ends, call]]
    assert waited == min(lengths)
    spoken = {"type": "content_block_delta", "index": 0, "delta": {**grown, kind: "event: word"}}
    assert anthropic.ending(b"77\r\n" + compact(spoken, named=named) + b"\r\n") == waited
    assert anthropic.ending(b'event: ping\ndata: {"type": "ping"}\n\n') == 1


PLAIN = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
USAGE = {"prompt_tokens": 9, "completion_tokens": 9, "total_tokens": 18}
NULLS: dict[str, Any] = {"logprobs": None, "finish_reason": None}
CALL = {"index": 0, "id": "", "function": {"name": "f", "arguments": "{}"}}
DONE = b"data: [DONE]\n\n"


def chunk(delta: dict[str, Any], choice: dict[str, Any], **more: Any) -> bytes:
    whole = {**PLAIN, "choices": [{"index": 0, "delta": delta, **choice}], **more}
    return compact(whole, named=False)


FORMS = {
    "OpenAI": (
        chunk({"content": "word"}, NULLS, usage=None, obfuscation="x" * 12),
        chunk({}, {"logprobs": None, "finish_reason": "stop"}, usage=None, obfuscation="")
        + compact({**PLAIN, "choices": [], "usage": USAGE, "obfuscation": ""}, named=False),
    ),
    "vLLM": (
        chunk({"content": "word"}, NULLS),
        chunk({"content": ""}, {"logprobs": None, "finish_reason": "stop", "stop_reason": None})
        + compact({**PLAIN, "choices": [], "usage": USAGE}, named=False),
    ),
    "vLLM, thinking": (
        chunk({"reasoning_content": "word"}, NULLS),
        chunk({"content": "x"}, {"logprobs": None, "finish_reason": "length", "stop_reason": None})
        + compact({**PLAIN, "choices": [], "usage": USAGE}, named=False),
    ),
    "SGLang": (
        chunk({"role": "assistant", "content": "word", "reasoning_content": None}, NULLS),
        chunk({}, {"logprobs": None, "finish_reason": "stop"})
        + compact({**PLAIN, "choices": [], "usage": USAGE}, named=False),
    ),
    "llama.cpp": (
        chunk({"content": "word"}, {"finish_reason": None}),
        chunk({}, {"finish_reason": "stop"}) + compact({**PLAIN, "choices": [], "usage": USAGE}, named=False),
    ),
    "usage with the reason": (
        chunk({"content": 'wo}"rd'}, NULLS, usage=None),
        chunk({}, {"logprobs": None, "finish_reason": "stop"}, usage=USAGE),
    ),
    "a call": (
        chunk({"content": "word"}, {"finish_reason": None}),
        chunk({"tool_calls": [CALL]}, {"finish_reason": None}),
    ),
}


@pytest.mark.parametrize("form", FORMS)
def test_no_ending_of_a_completion_is_shorter_than_what_is_waited_for_and_no_word_as_long(form):
    piece, end = FORMS[form]
    end += b"" if form == "a call" else DONE
    assert len(piece) < completion.ending(piece) <= len(end)


@pytest.mark.parametrize(
    "delta", [{}, {"role": "assistant", "content": ""}, {"content": None}, {"audio": {"content": "a"}}]
)
def test_a_chunk_without_words_says_nothing_of_the_ending(delta):
    assert completion.ending(chunk(delta, NULLS)) == 1
    assert completion.ending(b": still here\n\n") == 1
