"""Calls as an MCP client makes them, in both revisions of the protocol, through the official SDK's client in this process."""

from __future__ import annotations

import asyncio
import base64
import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp import Client, MCPError
from mcp.shared.memory import create_client_server_memory_streams

from wieldy import Image, Output, Progress, Tool, Toolbox, tool
from wieldy.core.event import Event, ToolCancelled, ToolEnded
from wieldy.mcp.server import OneRoom, Service
from wieldy.mcp.server_room import Room

ERAS = ("legacy", "2026-07-28")
both_eras = pytest.mark.parametrize("era", ERAS)

Elicited = Callable[[Any, types.ElicitRequestParams], Any]


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WIELDY_HOME", str(tmp_path / "state"))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


@asynccontextmanager
async def connected(
    root: Path, era: str, *, tools: tuple[Tool, ...] = (), settings: Mapping[str, Any] | None = None, **client: Any
) -> AsyncIterator[tuple[Client, Room]]:
    room = Room(lambda ask: Toolbox(root, tools=tools, ask=ask, settings=settings or {}))
    await room.open()
    try:
        async with Client(_wire(Service(OneRoom(room)).server()), mode=era, cache=None, **client) as peer:
            yield peer, room
    finally:
        await room.aclose()


@asynccontextmanager
async def _wire(server: Any) -> AsyncIterator[Any]:
    async with create_client_server_memory_streams() as (ours, theirs), anyio.create_task_group() as group:
        group.start_soon(server.run, *theirs, server.create_initialization_options())
        yield ours
        group.cancel_scope.cancel()


def text(result: types.CallToolResult) -> str:
    return "\n".join(block.text for block in result.content if isinstance(block, types.TextContent))


def answering(decision: str | None, action: str = "accept", words: str = "") -> tuple[list[str], Elicited]:
    seen: list[str] = []

    async def elicited(context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        assert isinstance(params, types.ElicitRequestFormParams)
        seen.append(params.message)
        choices = params.requested_schema["properties"]["decision"]["enum"]
        chosen = next((choice for choice in choices if decision and choice.startswith(decision)), decision)
        return types.ElicitResult(action=action, content={"decision": chosen, "words": words} if chosen else None)  # type: ignore[arg-type]

    return seen, elicited


@both_eras
@pytest.mark.asyncio
async def test_every_offered_tool_is_listed_in_the_order_of_the_pool(root: Path, era: str):
    async with connected(root, era) as (client, room):
        listed = (await client.list_tools()).tools
        offered = [entry.tool for entry in await room.box.offer() if entry.offered]
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
async def test_a_client_that_cannot_ask_gets_a_no_with_the_rule_that_would_help(root: Path, era: str):
    (root / "a.txt").write_text("one\n")
    async with connected(root, era) as (client, _):
        result = await client.call_tool("Bash", {"command": "rm a.txt"})
    assert result.is_error
    assert "cannot ask its user" in text(result)
    assert "Bash(rm" in text(result)
    assert (root / "a.txt").exists()


@both_eras
@pytest.mark.asyncio
async def test_allowed_once_means_once(root: Path, era: str):
    seen, elicited = answering("Allow once")
    async with connected(root, era, elicitation_callback=elicited) as (client, _):
        for name in ("one", "one"):
            result = await client.call_tool("Write", {"file_path": "a.txt", "content": name})
            assert not result.is_error, text(result)
            (root / "a.txt").unlink()
    assert len(seen) == 2
    assert "a.txt" in seen[0] and "one" in seen[0]


@both_eras
@pytest.mark.asyncio
async def test_always_allowed_is_not_asked_again(root: Path, era: str):
    seen, elicited = answering("Always allow")
    (root / "a.txt").write_text("")
    async with connected(root, era, elicitation_callback=elicited) as (client, _):
        for _ in range(2):
            result = await client.call_tool("Bash", {"command": "touch b.txt"})
            assert not result.is_error, text(result)
    assert len(seen) == 1


@both_eras
@pytest.mark.parametrize(
    ("decision", "action", "said"),
    [
        ("Deny", "accept", "use git mv"),
        (None, "decline", "declined"),
        (None, "cancel", "dismissed"),
        (None, "accept", "declined"),
        ("allow", "accept", "declined"),
    ],
)
@pytest.mark.asyncio
async def test_anything_but_a_plain_yes_is_a_no(root: Path, era: str, decision: str | None, action: str, said: str):
    words = "use git mv" if decision == "Deny" else ""
    _, elicited = answering(decision, action, words)
    async with connected(root, era, elicitation_callback=elicited) as (client, _):
        result = await client.call_tool("Write", {"file_path": "a.txt", "content": "x"})
    assert result.is_error
    assert said in text(result)
    assert not (root / "a.txt").exists()


@both_eras
@pytest.mark.asyncio
async def test_nothing_hides_in_a_question(root: Path, era: str):
    seen, elicited = answering("Deny")
    async with connected(root, era, elicitation_callback=elicited) as (client, _):
        await client.call_tool("Bash", {"command": "touch a\u202etxt.\x1b[8m"})
    assert "⟨U+202E⟩" in seen[0]
    assert "\x1b" not in seen[0]


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

    async with connected(root, era, tools=(endless,)) as (client, room):
        room.box.subscribe(note)
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
    async with connected(root, era) as (client, room):
        folder = room.spilled.folder
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
    async with connected(root, era, tools=many) as (client, room):
        first = await client.list_tools()
        assert first.next_cursor
        second = await client.list_tools(cursor=first.next_cursor)
        assert second.next_cursor is None
        names = [one.name for one in (*first.tools, *second.tools)]
        assert names == [entry.tool.name for entry in await room.box.offer() if entry.offered]
        for cursor in ("99999", "-1", "x", "٣", "9" * 5000):
            with pytest.raises(MCPError, match="no page"):
                await client.list_tools(cursor=cursor)


@both_eras
@pytest.mark.asyncio
async def test_roots_of_the_client_are_folders_to_work_in(root: Path, era: str, tmp_path: Path):
    other, third = tmp_path / "an other", tmp_path / "third"
    for folder in (other, third):
        folder.mkdir()
        (folder / "a.txt").write_text("from there\n")
    asked = 0

    async def roots(context: Any) -> types.ListRootsResult:
        nonlocal asked
        asked += 1
        uris = (other.as_uri(), "file:///", (tmp_path / "gone").as_uri(), root.as_uri())
        return types.ListRootsResult(roots=[types.Root(uri=uri) for uri in uris])  # type: ignore[arg-type]

    async with connected(root, era, list_roots_callback=roots) as (client, room):
        inside = await client.call_tool("Read", {"file_path": str(other / "a.txt")})
        outside = await client.call_tool("Read", {"file_path": str(third / "a.txt")})
        assert room.box.workspace.roots == (str(root), str(other))
    assert "from there" in text(inside)
    assert outside.is_error and "denied" in text(outside)
    assert asked == 1


@pytest.mark.asyncio
async def test_changed_roots_are_asked_for_again(root: Path, tmp_path: Path):
    now = [tmp_path / "one", tmp_path / "two"]
    for folder in now:
        folder.mkdir()

    async def roots(context: Any) -> types.ListRootsResult:
        return types.ListRootsResult(roots=[types.Root(uri=now[0].as_uri())])  # type: ignore[arg-type]

    async with connected(root, "legacy", list_roots_callback=roots) as (client, room):
        await client.call_tool("Think", {"thought": "x"})
        assert room.box.workspace.extra_roots == (str(tmp_path / "one"),)
        del now[0]
        await client.session.send_notification(types.RootsListChangedNotification())
        for _ in range(100):
            await client.call_tool("Think", {"thought": "x"})
            if room.box.workspace.extra_roots == (str(tmp_path / "two"),):
                break
        assert room.box.workspace.extra_roots == (str(tmp_path / "two"),)


@pytest.mark.asyncio
async def test_an_answer_is_good_for_the_question_it_answers_and_once(root: Path):
    _, elicited = answering("Allow once")
    async with connected(root, "2026-07-28", elicitation_callback=elicited) as (client, _):

        async def call(content: str, token: str | None = None, yes: bool = False) -> Any:
            said = types.ElicitResult(action="accept", content={"decision": "Allow once"})
            return await client.session.call_tool(
                "Write",
                {"file_path": "a.txt", "content": content},
                input_responses={"permission": said} if yes else None,
                request_state=token,
                allow_input_required=True,
            )

        asked = await call("harmless")
        assert isinstance(asked, types.InputRequiredResult)
        with pytest.raises(MCPError, match="not handed out for this very call"):
            await call("harmful", asked.request_state, yes=True)
        with pytest.raises(MCPError, match="used already"):
            await call("harmless", asked.request_state, yes=True)
        without_token = await call("harmful", None, yes=True)
        assert isinstance(without_token, types.InputRequiredResult)
        asked = await call("harmless")
        done = await call("harmless", asked.request_state, yes=True)
        assert isinstance(done, types.CallToolResult) and not done.is_error
        (root / "a.txt").unlink()
        with pytest.raises(MCPError, match="used already"):
            await call("harmless", asked.request_state, yes=True)
    assert not (root / "a.txt").exists()
