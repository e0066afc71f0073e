"""The rules of the Messages API as far as a client can break them, written down apart from the code that keeps them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
IMAGES = {"image/png", "image/jpeg", "image/gif", "image/webp"}


def check_request(messages: Sequence[Mapping[str, Any]]) -> None:
    """Fail unless these messages could be sent now."""
    check_history(messages)
    assert messages[-1]["role"] == "user", "the last word is the user's"


def check_history(messages: Sequence[Mapping[str, Any]]) -> None:
    """Fail unless the API would accept these messages, whoever spoke last."""
    assert messages, "a request has messages"
    json.dumps(messages, ensure_ascii=False).encode("utf-8")
    assert messages[0]["role"] == "user", "the user speaks first"
    ids: set[str] = set()
    asked: list[str] = []
    for number, message in enumerate(messages):
        assert set(message) == {"role", "content"}
        assert message["role"] == ("user", "assistant")[number % 2], "they take turns"
        content = message["content"]
        assert isinstance(content, list)
        assert content, "no message is empty"
        if message["role"] == "user":
            _check_user(content, asked)
            asked = []
        else:
            asked = _check_assistant(content, ids)
    assert not asked or messages[-1]["role"] == "assistant"


def _check_user(content: list[Mapping[str, Any]], asked: list[str]) -> None:
    results = [block["tool_use_id"] for block in content if block["type"] == "tool_result"]
    assert results == asked, "every call has exactly one result, in order, and nothing else has one"
    kinds = [block["type"] for block in content]
    assert kinds[: len(results)] == ["tool_result"] * len(results), "results come first"
    for block in content:
        if block["type"] == "tool_result":
            _check_result(block)
        else:
            _check_shown(block)


def _check_assistant(content: list[Mapping[str, Any]], ids: set[str]) -> list[str]:
    calls: list[str] = []
    assert any(block["type"] not in ("thinking", "redacted_thinking") for block in content), "more than thoughts"
    for block in content:
        match block["type"]:
            case "text":
                assert block["text"].strip(), "text is not blank"
            case "tool_use":
                assert NAME.fullmatch(block["name"])
                assert isinstance(block["id"], str) and block["id"]
                assert block["id"] not in ids, "ids are unique in the whole conversation"
                assert isinstance(block["input"], Mapping)
                ids.add(block["id"])
                calls.append(block["id"])
            case "thinking":
                assert isinstance(block["thinking"], str)
            case "redacted_thinking" | "server_tool_use" | "web_search_tool_result":
                pass
            case other:
                raise AssertionError(f"the model does not say {other}")
    return calls


def _check_result(block: Mapping[str, Any]) -> None:
    content = block["content"]
    assert content, "a result says something"
    if isinstance(content, str):
        assert content.strip()
        return
    for part in content:
        _check_shown(part)


def _check_shown(block: Mapping[str, Any]) -> None:
    match block["type"]:
        case "text":
            assert block["text"].strip(), "text is not blank"
        case "image":
            source = block["source"]
            if source["type"] == "base64":
                assert source["media_type"] in IMAGES
                assert 0 < len(source["data"]) <= 5 * 1024 * 1024
        case other:
            raise AssertionError(f"the user does not say {other}")
