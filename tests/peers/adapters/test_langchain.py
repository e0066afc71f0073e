"""The LangChain tools, driven by LangChain's agent on LangGraph with a scripted chat model."""

from __future__ import annotations

from typing import Any

import pytest
from tests.needs import import_or_skip

from wieldy import Toolbox, WieldyError

import_or_skip("langchain.agents")
from langchain.agents import create_agent
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

pytestmark = [pytest.mark.slow, pytest.mark.peer, pytest.mark.asyncio]
CONFIG: Any = {"configurable": {"thread_id": "t"}}


class Calling(GenericFakeChatModel):
    """LangChain's fake model, with tools bound to nothing."""

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        return self


def calling(*steps: list[tuple[str, dict[str, Any]]]) -> Calling:
    """A model that makes these calls, step by step, and then says that it is done."""
    messages = [
        AIMessage(
            "", tool_calls=[{"name": name, "args": args, "id": f"c{s}-{n}"} for n, (name, args) in enumerate(step)]
        )
        for s, step in enumerate(steps)
    ]
    return Calling(messages=iter([*messages, AIMessage("done")]))


def tool_messages(state: dict[str, Any]) -> list[ToolMessage]:
    return [message for message in state["messages"] if isinstance(message, ToolMessage)]


async def test_a_tool_is_called_and_its_data_is_the_artifact(box):
    agent = create_agent(calling([("Read", {"file_path": "a.txt"})]), box.as_langchain())
    state = await agent.ainvoke({"messages": [("user", "look")]})
    (message,) = tool_messages(state)
    assert "alpha" in message.content
    assert message.status == "success"
    assert message.artifact
    assert state["messages"][-1].content == "done"


async def test_a_tool_can_be_called_without_a_graph(box):
    read = next(tool for tool in box.as_langchain() if tool.name == "Read")
    assert "alpha" in await read.ainvoke({"file_path": "a.txt"})
    assert read.args["file_path"]["type"] == "string"
    with pytest.raises(NotImplementedError, match="ainvoke"):
        read.invoke({"file_path": "a.txt"})


async def test_a_question_outside_of_a_graph_is_an_error_message(box, project):
    write = next(tool for tool in box.as_langchain() if tool.name == "Write")
    args = {"file_path": "new.txt", "content": "x"}
    message = await write.ainvoke({"name": "Write", "args": args, "id": "c", "type": "tool_call"})
    assert message.status == "error"
    assert "no graph" in message.content
    assert not (project / "new.txt").exists()


async def test_a_question_in_a_graph_without_a_checkpointer_raises(box, project):
    agent = create_agent(calling([("Write", {"file_path": "new.txt", "content": "x"})]), box.as_langchain())
    with pytest.raises(WieldyError, match="the graph has no checkpointer"):
        await agent.ainvoke({"messages": [("user", "write")]})
    assert not (project / "new.txt").exists()


async def test_a_denied_call_is_an_error_message_and_not_an_exception(box):
    agent = create_agent(calling([("Read", {"file_path": "secret.txt"})]), box.as_langchain())
    (message,) = tool_messages(await agent.ainvoke({"messages": [("user", "look")]}))
    assert message.status == "error"
    assert "denied" in message.content.lower()


async def test_a_question_interrupts_the_graph_and_an_approval_runs_the_call(box, project):
    model = calling([("Write", {"file_path": "new.txt", "content": "new"})])
    agent = create_agent(model, box.as_langchain(), checkpointer=InMemorySaver())
    state = await agent.ainvoke({"messages": [("user", "write")]}, CONFIG)
    (interrupt,) = state["__interrupt__"]
    assert interrupt.value["action_requests"][0]["name"] == "Write"
    assert interrupt.value["review_configs"][0]["allowed_decisions"] == ["approve", "edit", "reject"]
    assert interrupt.value["metadata"]["suggested_rules"] == ["Edit(/new.txt)"]
    assert not (project / "new.txt").exists()
    state = await agent.ainvoke(Command(resume={"decisions": [{"type": "approve"}]}), CONFIG)
    assert state["messages"][-1].content == "done"
    assert (project / "new.txt").read_text() == "new"


@pytest.mark.parametrize(
    ("decision", "says"),
    [
        ({"type": "reject"}, "rejected"),
        ({"type": "reject", "message": "not in this folder"}, "not in this folder"),
        ({"type": "maybe"}, "not run"),
    ],
)
async def test_what_is_not_approved_is_not_run(box, project, decision, says):
    model = calling([("Write", {"file_path": "new.txt", "content": "new"})])
    agent = create_agent(model, box.as_langchain(), checkpointer=InMemorySaver())
    await agent.ainvoke({"messages": [("user", "write")]}, CONFIG)
    state = await agent.ainvoke(Command(resume={"decisions": [decision]}), CONFIG)
    (message,) = tool_messages(state)
    assert message.status == "error"
    assert says in message.content
    assert not (project / "new.txt").exists()


async def test_an_edited_call_runs_with_the_new_input_and_is_judged_again(box, project):
    model = calling([("Write", {"file_path": "new.txt", "content": "new"})])
    agent = create_agent(model, box.as_langchain(), checkpointer=InMemorySaver())
    await agent.ainvoke({"messages": [("user", "write")]}, CONFIG)
    edited = {"type": "edit", "edited_action": {"name": "Write", "args": {"file_path": "other.txt", "content": "x"}}}
    await agent.ainvoke(Command(resume={"decisions": [edited]}), CONFIG)
    assert not (project / "new.txt").exists()
    assert (project / "other.txt").read_text() == "x"


async def test_two_questions_of_one_step_are_answered_one_by_one(box, project):
    step = [("Write", {"file_path": f"{name}.txt", "content": name}) for name in "xy"]
    agent = create_agent(calling(step), box.as_langchain(), checkpointer=InMemorySaver())
    state = await agent.ainvoke({"messages": [("user", "write")]}, CONFIG)
    approve, reject = {"decisions": [{"type": "approve"}]}, {"decisions": [{"type": "reject"}]}
    answers = {
        each.id: approve if each.value["action_requests"][0]["args"]["content"] == "x" else reject
        for each in state["__interrupt__"]
    }
    assert len(answers) == 2
    await agent.ainvoke(Command(resume=answers), CONFIG)
    assert [(project / f"{name}.txt").exists() for name in "xy"] == [True, False]


async def test_calls_of_one_step_are_one_turn_for_undo_and_run_in_order_where_they_clash(project):
    first = [
        ("Write", {"file_path": "x.txt", "content": "one\n"}),
        ("Edit", {"file_path": "x.txt", "old_string": "one", "new_string": "two"}),
        ("Write", {"file_path": "y.txt", "content": "y"}),
    ]
    model = calling(first, [("Write", {"file_path": "z.txt", "content": "z"})])
    async with Toolbox(project, settings={"permissions": {"allow": ["Write", "Edit"]}}) as box:
        await create_agent(model, box.as_langchain()).ainvoke({"messages": [("user", "go")]})
        assert (project / "x.txt").read_text() == "two\n"
        await box.undo(turn=True)
        assert (project / "y.txt").exists()
        assert not (project / "z.txt").exists()
        await box.undo(turn=True)
    assert not (project / "x.txt").exists()
    assert not (project / "y.txt").exists()


async def test_a_picture_is_a_native_block(box):
    agent = create_agent(calling([("picture", {})]), box.as_langchain())
    (message,) = tool_messages(await agent.ainvoke({"messages": [("user", "show")]}))
    assert [block["type"] for block in message.content_blocks] == ["text", "image"]
    assert message.artifact == {"width": 1}
