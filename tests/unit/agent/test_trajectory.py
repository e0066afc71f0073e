"""Trajectories in ATIF: every step, its calls and observations, in the form that Harbor reads."""

from __future__ import annotations

import json
from typing import Any

import pytest

from wieldy import Image, Script, Session, tool
from wieldy.agent.export import build_trajectory

pytestmark = pytest.mark.asyncio(loop_scope="function")

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


async def trajectory(make_session, model: Script, **options: Any) -> dict[str, Any]:
    async with make_session(model, **options) as session:
        async for _ in session.run("fix it"):
            pass
        return build_trajectory(session.box.workspace.session_dir, session.system_prompt, session.tool_specs)


def check_rules(trajectory: dict[str, Any]) -> None:
    """The rules of the format that a schema cannot say."""
    assert trajectory["schema_version"] == "ATIF-v1.8"
    for number, step in enumerate(trajectory["steps"], 1):
        assert step["step_id"] == number
        calls = {call["tool_call_id"] for call in step.get("tool_calls", ())}
        for result in step.get("observation", {}).get("results", ()):
            assert result["source_call_id"] in calls
        if step["source"] != "agent":
            assert not {"tool_calls", "metrics", "reasoning_content"} & step.keys()
    embedded = [each["trajectory_id"] for each in trajectory.get("subagent_trajectories", ())]
    assert len(set(embedded)) == len(embedded)
    for each in trajectory.get("subagent_trajectories", ()):
        check_rules(each)


async def test_a_session_becomes_steps_with_prompt_tools_and_observations(make_session):
    usage = {"usage": {"input_tokens": 10, "output_tokens": 5, "cache_read_tokens": 3}}
    turns: list[list[dict[str, Any]]] = [
        [{"think": "hm"}, {"text": "let me see"}, {"call": "note", "input": {"word": "a"}}, usage],
        [{"call": "fails", "input": {"word": "b"}}, {"call": "note", "input": {"word": "c"}}],
        [{"text": "done"}],
    ]
    built = await trajectory(make_session, Script(turns))
    check_rules(built)
    json.dumps(built)
    system, user, first, second, last = built["steps"]
    assert (system["source"], user["message"], last["message"]) == ("system", "fix it", "done")
    assert "note" in {each["function"]["name"] for each in built["agent"]["tool_definitions"]}
    assert (first["reasoning_content"], first["message"]) == ("hm", "let me see")
    assert first["metrics"] == {"prompt_tokens": 13, "completion_tokens": 5, "cached_tokens": 3}
    assert first["observation"]["results"][0]["content"] == "noted a"
    assert len(second["observation"]["results"]) == 2
    assert second["observation"]["results"][0]["extra"] == {"is_error": True}
    assert built["final_metrics"]["total_prompt_tokens"] == 13


async def test_images_are_files_beside_it(tmp_path, make_session, monkeypatch):
    @tool(read_only=True)
    async def look() -> Image:
        """Look."""
        return Image("image/png", PIXEL)

    model = Script([[{"call": "look", "input": {}}], [{"text": "nice"}]])
    async with Session(tmp_path / "project", model=model, tools=[look], builtins=False, settings={}) as session:
        await session.ask("go")
        folder = session.box.workspace.session_dir
        built = build_trajectory(folder)
    check_rules(built)
    part = built["steps"][1]["observation"]["results"][0]["content"][0]
    assert part["source"]["media_type"] == "image/png"
    assert (folder / part["source"]["path"]).read_bytes().startswith(b"\x89PNG")


async def test_subagents_are_embedded_and_referred_to(make_session):
    model = Script([[{"call": "Agent", "input": {"description": "look", "prompt": "where", "subagent_type": "explore"}}],
                    [{"text": "found"}]])  # fmt: skip
    model.sends("explore", Script([[{"text": "here"}]]))
    built = await trajectory(make_session, model, builtins=True, mode="bypassPermissions")
    check_rules(built)
    (agent,) = built["subagent_trajectories"]
    assert agent["steps"][-1]["message"] == "here"
    (result,) = built["steps"][2]["observation"]["results"]
    assert result["subagent_trajectory_ref"] == [{"trajectory_id": agent["trajectory_id"]}]
