"""Prompts of servers, as a person types them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from wieldy.core.errors import ToolFailure
from wieldy.mcp.resources import ServerPrompt, list_prompts, parse_arguments, render_prompt

SERVER = Path(__file__).with_name("prompting_server.py")
GREET = ServerPrompt("mcp__p__greet", "p", "greet", "Greet somebody.", ("name", "style"), ("name",))


@pytest.mark.parametrize(
    ("words", "given"),
    [
        ("Ann", {"name": "Ann"}),
        ("Ann very warm", {"name": "Ann", "style": "very warm"}),
        ("'Ann Lee' warm", {"name": "Ann Lee", "style": "warm"}),
        ("style=cool Ann Lee", {"name": "Ann Lee", "style": "cool"}),
        ("name=Ann style='a b'", {"name": "Ann", "style": "a b"}),
        ("it's", {"name": "it's"}),
        ("a=b", {"name": "a=b"}),
    ],
)
def test_words_are_arguments_by_name_or_in_order(words: str, given: dict[str, str]):
    assert parse_arguments(GREET, words) == given


@pytest.mark.parametrize(
    ("words", "said"), [("", "name is missing: /mcp__p__greet name [style]"), ("name=a style=b c", "`c` is too much")]
)
def test_what_is_missing_or_too_much_is_said_with_the_usage(words: str, said: str):
    with pytest.raises(ToolFailure) as caught:
        parse_arguments(GREET, words)
    assert said in caught.value.message


@pytest.mark.asyncio
async def test_list_prompts_all_servers_are_listed_and_parse_arguments_in(stage):
    prompting = {"command": sys.executable, "args": [str(SERVER)]}
    async with stage.box(p=prompting, s=stage.entry()) as box:
        servers = box.workspace.services.mcp_servers
        await box.connected()
        found = await list_prompts(servers)
        assert found["mcp__p__greet"] == GREET
        assert list(found) == ["mcp__p__greet", "mcp__p__plain_words"]
        assert await render_prompt(servers, found["mcp__p__greet"], "Ann") == "Write a friendly greeting for Ann."
        assert await render_prompt(servers, found["mcp__p__plain_words"], "") == "Just say hello."
