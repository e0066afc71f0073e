"""Tools that need a model of their own: questions about a page, and the provider's search."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.unit.models.wire import anthropic_stream, loopback, sse, status, stream
from tests.unit.web.loopback import response, serving

from wieldy import Session
from wieldy.agent.models import PAGE_PROMPT
from wieldy.models.anthropic import Anthropic
from wieldy.testing import Script

HITS = [
    {"type": "web_search_result", "url": "https://tea.example/1", "title": "Tea", "encrypted_content": "x"},
    {"type": "web_search_result", "url": "https://cake.example/2", "title": "Cake", "encrypted_content": "y"},
]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WIELDY_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HOME", str(tmp_path))


def searched(results: Any) -> bytes:
    """A Messages stream in which the server searched, then quoted what it found."""
    use = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}}
    found = {"type": "web_search_tool_result", "tool_use_id": "s1", "content": results}
    quote = {"type": "web_search_result_location", "url": "https://tea.example/1", "cited_text": "Hot \n water."}
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": {"id": "m", "usage": {"input_tokens": 10, "output_tokens": 1}}},
        {"type": "content_block_start", "index": 0, "content_block": use},
        {
            "type": "content_block_delta",
            "index": 0,
            "delta": {"type": "input_json_delta", "partial_json": '{"query":"tea"}'},
        },
        {"type": "content_block_stop", "index": 0},
        {"type": "content_block_start", "index": 1, "content_block": found},
        {"type": "content_block_stop", "index": 1},
        {"type": "content_block_start", "index": 2, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 2, "delta": {"type": "text_delta", "text": "Tea is hot."}},
        {"type": "content_block_delta", "index": 2, "delta": {"type": "citations_delta", "citation": quote}},
        {"type": "content_block_stop", "index": 2},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 42}},
        {"type": "message_stop"},
    ]
    return b"".join(map(sse, events))


def result_of(session: Session) -> str:
    """The text of the last tool result the model was given."""
    blocks = [block for message in session.messages for block in message["content"] if block["type"] == "tool_result"]
    content = blocks[-1]["content"]
    return content if isinstance(content, str) else "".join(block.get("text", "") for block in content)


async def fetched(tmp_path: Path, small: Script | None) -> tuple[Session, str]:
    """A session in which the model asks a question about a page on loopback."""
    page = b"<html><title>Prices</title><p>Tea is 3 crowns.</p></html>"
    async with serving({"/": response(page, content_type="text/html")}) as site:
        large = Script().calls("WebFetch", url=f"{site.origin}/", prompt="What is tea?").says("Done.")
        settings = {"web": {"allowPrivateHosts": [site.origin.removeprefix("http://")]}}
        async with Session(
            tmp_path, model=large, small_model=small, settings=settings, mode="bypassPermissions"
        ) as session:
            await session.ask("go")
            return session, result_of(session)


@pytest.mark.asyncio
async def test_a_question_about_a_page_is_answered_by_the_small_model(tmp_path: Path) -> None:
    small = Script(model="claude-haiku-4-5").does(usage={"input_tokens": 1_000_000}).says("3 crowns.")
    session, text = await fetched(tmp_path, small)
    assert "3 crowns." in text
    assert "Tea is 3 crowns" not in text
    (asked,) = small.requests
    assert asked.system == (PAGE_PROMPT,)
    assert "Tea is 3 crowns" in str(asked.messages[0].content)
    assert "What is tea?" in str(asked.messages[0].content)
    assert session.conversation.cost == pytest.approx(1.0)


@pytest.mark.asyncio
async def test_without_a_small_model_the_page_itself_comes_back(tmp_path: Path) -> None:
    _, text = await fetched(tmp_path, None)
    assert "Tea is 3 crowns" in text


@pytest.mark.asyncio
@pytest.mark.parametrize("small", [Script().does(fail="rate", message="slow down"), Script().says(" ")])
async def test_a_small_model_that_fails_leaves_the_page_and_says_so(tmp_path: Path, small: Script) -> None:
    _, text = await fetched(tmp_path, small)
    assert "Tea is 3 crowns" in text
    assert "could not be put to the small model" in text


@pytest.mark.asyncio
async def test_the_small_model_of_the_settings_is_asked_at_the_address_of_its_house(tmp_path: Path) -> None:
    page = b"<p>Tea is 3 crowns.</p>"
    async with serving({"/": response(page, content_type="text/html")}) as site:
        call = json.dumps({"url": f"{site.origin}/", "prompt": "What is tea?"})
        replies = [
            stream(anthropic_stream([("call", "c1", "WebFetch", call)])),
            stream(anthropic_stream([("text", "3 crowns.")])),
            stream(anthropic_stream([("text", "Done.")])),
        ]
        async with loopback(*replies) as server:
            settings = {
                "smallModel": "anthropic/claude-haiku-4-5",
                "web": {"allowPrivateHosts": [site.origin.removeprefix("http://")]},
            }
            async with Session(
                tmp_path,
                model="anthropic/claude-opus-4-5",
                base_url=server.url,
                settings=settings,
                mode="bypassPermissions",
            ) as session:
                await session.ask("go")
                assert "3 crowns." in result_of(session)
    assert [asked.body["model"] for asked in server.received] == [
        "claude-opus-4-5",
        "claude-haiku-4-5",
        "claude-opus-4-5",
    ]


async def found(tmp_path: Path, reply: Any, **wanted: Any) -> tuple[str, Any]:
    """What WebSearch gives where the provider searches, and the request that was made for it."""
    call = json.dumps({"query": "tea", **wanted})
    replies = [
        stream(anthropic_stream([("call", "c1", "WebSearch", call)])),
        reply,
        stream(anthropic_stream([("text", "Done.")])),
    ]
    async with (
        loopback(*replies) as server,
        Session(
            tmp_path,
            model="anthropic/claude-sonnet-4-5",
            base_url=server.url,
            settings={"web": {"providerSearch": True}},
            mode="bypassPermissions",
        ) as session,
    ):
        await session.ask("go")
        return result_of(session), server.received[1].body


@pytest.mark.asyncio
async def test_the_provider_searches_with_its_own_tool_and_what_it_quoted_is_the_excerpt(tmp_path: Path) -> None:
    text, asked = await found(tmp_path, stream(searched(HITS)), blocked_domains=["*.cake.example"])
    assert text == "1. Tea\n   https://tea.example/1\n   Hot water."
    assert asked["tools"] == [
        {"type": "web_search_20250305", "name": "web_search", "max_uses": 1, "blocked_domains": ["cake.example"]}
    ]
    assert asked["messages"][0]["content"][0]["text"] == "tea"


@pytest.mark.asyncio
async def test_wanted_domains_go_to_the_provider_alone_and_unwanted_ones_are_taken_out_here(tmp_path: Path) -> None:
    text, asked = await found(
        tmp_path, stream(searched(HITS)), allowed_domains=["example"], blocked_domains=["tea.example"]
    )
    assert text == "1. Cake\n   https://cake.example/2"
    assert "blocked_domains" not in asked["tools"][0]
    assert asked["tools"][0]["allowed_domains"] == ["example"]


@pytest.mark.asyncio
async def test_a_search_that_fails_at_the_provider_says_why(tmp_path: Path) -> None:
    failed = {"type": "web_search_tool_result_error", "error_code": "max_uses_exceeded"}
    text, _ = await found(tmp_path, stream(searched(failed)))
    assert "max_uses_exceeded" in text
    refused, _ = await found(tmp_path, status(403, {"error": {"type": "permission_error", "message": "not for you"}}))
    assert "not for you" in refused


def test_a_server_of_ones_own_is_not_taken_to_search() -> None:
    assert Anthropic("m", api_key="k", base_url=None, env={}).searches
    assert Anthropic("m", api_key="k", base_url="https://api.anthropic.com/v1/", env={}).searches
    assert not Anthropic("m", api_key="k", base_url="http://127.0.0.1:9", env={}).searches
