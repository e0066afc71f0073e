"""Calls as an MCP client makes them, in both revisions of the protocol, through the official SDK's client in this process."""

from __future__ import annotations

import asyncio
import base64
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from mcp import MCPError
from tests.unit.mcp.serving import both_eras, connected, text

from wieldy import Image, Output, Progress, Tool, tool
from wieldy.core.events import Event, ToolCancelled, ToolEnded


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WIELDY_HOME", str(tmp_path / "state"))
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


@both_eras
@pytest.mark.asyncio
async def test_every_offered_tool_is_listed_in_the_order_of_the_pool(root: Path, era: str):
    async with connected(root, era) as (client, session):
        listed = (await client.list_tools()).tools
        offered = [entry.tool for entry in await session.box.offer() if entry.offered]
    assert [one.name for one in listed] == [one.name for one in offered]
    assert [one.input_schema for one in listed] == [one.schema for one in offered]
    by_name = {one.name: one for one in listed}
    read, bash, write = (by_name[name].annotations for name in ("Read", "Bash", "Write"))
    assert read and read.read_only_hint and read.idempotent_hint and not read.destructive_hint
    assert bash and not bash.read_only_hint and bash.destructive_hint
    assert write and not write.read_only_hint


@both_eras
@pytest.mark.asyncio
async def test_a_denied_tool_is_not_listed_and_says_why_when_called(root: Path, era: str):
    async with connected(root, era, settings={"permissions": {"deny": ["Bash"]}}) as (client, _):
        assert "Bash" not in {one.name for one in (await client.list_tools()).tools}
        result = await client.call_tool("Bash", {"command": "true"})
    assert result.is_error
    assert "denied" in text(result)


@both_eras
@pytest.mark.asyncio
async def test_what_is_wrong_with_a_call_is_a_result_the_model_can_act_on(root: Path, era: str):
    async with connected(root, era) as (client, _):
        missing = await client.call_tool("Read", {})
        unknown = await client.call_tool("Raed", {"file_path": "a"})
        absent = await client.call_tool("Read", {"file_path": "nowhere.txt"})
    assert missing.is_error and "file_path" in text(missing)
    assert unknown.is_error and "Read" in text(unknown)
    assert absent.is_error and "nowhere.txt" in text(absent)


@both_eras
@pytest.mark.asyncio
async def test_data_comes_as_structured_content_and_pictures_as_pictures(root: Path, era: str):
    pixel = base64.b64encode(b"\x89PNG not really").decode()

    @tool(read_only=True)
    async def picture() -> Image:
        """Give a picture."""
        return Image("image/png", pixel)

    @tool(read_only=True)
    async def numbers() -> list[int]:
        """Give numbers."""
        return [1, 2]

    @tool(read_only=True)
    async def odd() -> Output:
        """Give what JSON cannot hold."""
        return Output("see", data={"x": float("nan")})

    (root / "a.txt").write_text("one\n")
    async with connected(root, era, tools=(picture, numbers, odd)) as (client, _):
        shown = await client.call_tool("picture", {})
        found = await client.call_tool("Glob", {"pattern": "*.txt"})
        listed = await client.call_tool("numbers", {})
        unfit = await client.call_tool("odd", {})
    (block,) = shown.content
    assert isinstance(block, types.ImageContent)
    assert (block.mime_type, block.data) == ("image/png", pixel)
    assert isinstance(found.structured_content, dict)
    assert listed.structured_content == {"result": [1, 2]}
    assert unfit.structured_content is None
    assert text(unfit) == "see"


@both_eras
@pytest.mark.asyncio
async def test_what_a_call_changed_can_be_undone(root: Path, era: str):
    (root / "a.txt").write_text("before\n")
    rules = {"permissions": {"allow": ["Edit", "Write"]}}
    async with connected(root, era, settings=rules) as (client, session):
        await client.call_tool("Read", {"file_path": "a.txt"})
        edited = await client.call_tool("Edit", {"file_path": "a.txt", "old_string": "before", "new_string": "after"})
        assert not edited.is_error, text(edited)
        await session.box.undo()
    assert (root / "a.txt").read_text() == "before\n"


@both_eras
@pytest.mark.asyncio
async def test_progress_of_a_call_reaches_the_client_before_its_result(root: Path, era: str):
    @tool(read_only=True)
    async def stepwise(other: bool = False) -> AsyncIterator[Any]:
        """Go step by step."""
        for step in range(3):
            yield Progress(f"{'other ' if other else ''}step {step}")
        yield Output("done")

    heard: list[tuple[float, str | None]] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        heard.append((progress, message))

    async with connected(root, era, tools=(stepwise,)) as (client, _):
        mine, _ = await asyncio.gather(
            client.call_tool("stepwise", {}, progress_callback=on_progress),
            client.call_tool("stepwise", {"other": True}),
        )
        await asyncio.sleep(0)
    assert text(mine) == "done"
    assert heard == [(1, "step 0"), (2, "step 1"), (3, "step 2")]


@both_eras
@pytest.mark.asyncio
async def test_a_cancelled_call_is_interrupted_and_the_next_one_runs(root: Path, era: str):
    started, stopped = asyncio.Event(), asyncio.Event()

    @tool(read_only=True)
    async def endless() -> str:
        """Never come back by itself."""
        started.set()
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0.05)  # a clean-up that takes several steps is not cut short
            stopped.set()
        return "never"

    ended: list[Event] = []

    async def note(event: Event) -> None:
        if isinstance(event, ToolEnded):
            ended.append(event)

    async with connected(root, era, tools=(endless,)) as (client, session):
        session.box.subscribe(note)
        call = asyncio.ensure_future(client.call_tool("endless", {}))
        await started.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await asyncio.wait_for(stopped.wait(), 5)
        assert text(await client.call_tool("Think", {"thought": "on"})) == "Noted."
        await asyncio.sleep(0.05)
    assert isinstance(ended[0], ToolCancelled)


@both_eras
@pytest.mark.asyncio
async def test_a_result_that_is_too_long_is_kept_whole_as_a_resource(root: Path, era: str):
    @tool(read_only=True, max_result_chars=100)
    async def long() -> str:
        """Talk at length."""
        return "".join(f"line {number}\n" for number in range(1000))

    async with connected(root, era, tools=(long,)) as (client, _):
        result = await client.call_tool("long", {})
        (link,) = [block for block in result.content if isinstance(block, types.ResourceLink)]
        (listed,) = (await client.list_resources()).resources
        (whole,) = (await client.read_resource(str(link.uri))).contents
        templates = (await client.list_resource_templates()).resource_templates
    assert str(listed.uri) == str(link.uri)
    assert listed.size == link.size
    assert isinstance(whole, types.TextResourceContents)
    assert whole.text.endswith("line 999\n")
    assert [one.uri_template for one in templates] == ["wieldy://results/{name}"]


@both_eras
@pytest.mark.asyncio
async def test_only_kept_results_can_be_read(root: Path, era: str, tmp_path: Path):
    (tmp_path / "secret.txt").write_text("secret")
    async with connected(root, era) as (client, session):
        folder = session.spilled.folder
        folder.mkdir(parents=True)
        (folder / "link.txt").symlink_to(tmp_path / "secret.txt")
        os.mkfifo(folder / "pipe.txt")
        (folder / "folder.txt").mkdir()
        for name in (
            "../secret.txt",
            "%2e%2e/secret.txt",
            "..",
            ".",
            "",
            "link.txt",
            "pipe.txt",
            "folder.txt",
            "no.txt",
        ):
            with pytest.raises(MCPError, match="kept result"):
                await client.read_resource(f"wieldy://results/{name}")
        with pytest.raises(MCPError, match="kept result"):
            await client.read_resource((tmp_path / "secret.txt").as_uri())
        assert (await client.list_resources()).resources == []


@both_eras
@pytest.mark.asyncio
async def test_a_list_comes_in_pages_and_a_made_up_page_is_an_error(root: Path, era: str):
    many = tuple(
        Tool.from_schema(f"tool_{number:03}", "One of many.", {"type": "object"}, lambda input: "x", read_only=True)
        for number in range(150)
    )
    async with connected(root, era, tools=many) as (client, session):
        first = await client.list_tools()
        assert first.next_cursor
        second = await client.list_tools(cursor=first.next_cursor)
        assert second.next_cursor is None
        names = [one.name for one in (*first.tools, *second.tools)]
        assert names == [entry.tool.name for entry in await session.box.offer() if entry.offered]
        for cursor in ("99999", "-1", "x", "٣", "9" * 5000):
            with pytest.raises(MCPError, match="no page"):
                await client.list_tools(cursor=cursor)


@both_eras
@pytest.mark.asyncio
async def test_names_that_are_no_text_are_sent_as_text(root: Path, era: str):
    """File names are bytes; what is not UTF-8 reaches us as halves of characters, which no wire can carry."""

    @tool(read_only=True)
    async def odd() -> AsyncIterator[Any]:
        """Say what cannot be said."""
        yield Progress("at \udcff")
        yield Output("text \udcff", data={"name\udcff": ["\udcff"]})

    heard: list[str | None] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        heard.append(message)

    async with connected(root, era, tools=(odd,)) as (client, _):
        result = await client.call_tool("odd", {}, progress_callback=on_progress)
        assert text(await client.call_tool("Think", {"thought": "on"})) == "Noted."
    assert result.structured_content == {"name\ufffd": ["\ufffd"]}
    for said in (text(result), *(message or "" for message in heard)):
        assert said.encode()
    assert heard
