"""A call works in the folder that the calls before it leave, however long it waits, and is judged for that one."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from wieldy import Toolbox, ToolContext, tool
from wieldy.core.decision import Advice, Question
from wieldy.core.outcome import ToolResult

pytestmark = pytest.mark.asyncio
DENY = {"permissions": {"deny": ["Read(./secret/**)"]}, "journal": {"enabled": False}}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WIELDY_HOME", str(tmp_path / "home"))
    root = tmp_path / "project"
    for folder in ("secret", "sub", "sub/deep"):
        (root / folder).mkdir(parents=True)
        (root / folder / "f").write_text(f"f of {folder}\n")
    (root / "secret" / "x").write_text("the secret\n")
    (root / "f").write_text("f of the root\n")
    return root


def bash(command: str, **more: Any) -> tuple[str, dict[str, Any]]:
    return "Bash", {"command": command, **more}


async def run(root: Path, calls: Sequence[Any], **options: Any) -> tuple[list[ToolResult], Path]:
    async with Toolbox(root, **options) as box:
        results = await asyncio.wait_for(box.call_many(calls), 60)
        return results, Path(box.workspace.cwd)


async def test_a_denied_file_stays_denied_after_a_cd_in_the_same_answer(project: Path) -> None:
    calls = [bash("cd secret"), *[bash("sleep 0.3")] * 9, bash("cat x")]
    results, cwd = await run(project, calls, settings=DENY)
    assert cwd == project / "secret"
    assert results[-1].is_error
    assert "the secret" not in results[-1].text
    assert "Read(./secret/**)" in results[-1].text


async def test_with_a_single_slot_too(project: Path) -> None:
    results, _ = await run(project, [bash("cd secret"), bash("cat x")], settings=DENY, max_concurrency=1)
    assert "the secret" not in results[-1].text


async def test_a_file_outside_the_project_is_asked_about(project: Path) -> None:
    (project.parent / "f").write_text("outside\n")
    calls = [bash("cd sub"), *[bash("sleep 0.2")] * 9, bash("cd .. && cat ../f")]
    results, _ = await run(project, calls, settings={"journal": {"enabled": False}}, max_concurrency=1)
    assert "outside\n" not in results[-1].text
    assert results[-1].is_error


async def test_a_question_about_a_relative_path_is_about_the_file_after_the_earlier_cd(project: Path) -> None:
    asked: list[tuple[str, str]] = []

    async def answer(question: Question) -> bool:
        asked.append((question.plan.input.get("file_path", ""), question.plan.cwd))
        await asyncio.sleep(0.2)
        return True

    calls = [bash("cd sub"), ("Write", {"file_path": "new", "content": "n"}), bash("cd deep")]
    results, cwd = await run(project, calls, settings={}, ask=answer)
    assert [result.is_error for result in results] == [False] * 3
    assert asked == [(str(project / "sub" / "new"), str(project / "sub"))]
    assert (project / "sub" / "new").read_text() == "n"
    assert cwd == project / "sub" / "deep"


@pytest.mark.parametrize(
    "calls", [["cd sub", "Write g"], ["cd sub && ls", "Read f"], ["cd sub && cat f", "cd .. && pwd"]]
)
async def test_what_follows_a_cd_works_where_it_leads(project: Path, calls: list[str]) -> None:
    made = {
        "Write g": ("Write", {"file_path": "g", "content": "g"}),
        "Read f": ("Read", {"file_path": "f"}),
    }
    results, cwd = await run(project, [made.get(call) or bash(call) for call in calls], settings={}, mode="acceptEdits")
    assert [result.is_error for result in results] == [False, False]
    match calls[1]:
        case "Write g":
            assert (project / "sub" / "g").exists()
            assert not (project / "g").exists()
        case "Read f":
            assert "f of sub" in results[1].text
        case _:
            assert results[1].text == str(project)
            assert cwd == project


async def test_a_call_before_a_cd_sees_the_folder_before_it_however_late_it_runs(project: Path) -> None:
    class Late:
        def wants(self, plan: Any) -> bool:
            return bool(plan.tool.name == "Read")

        async def advise(self, plan: Any) -> Advice:
            await asyncio.sleep(0.3)
            return Advice(updated_input={"file_path": "f", "limit": 5})

    results, _ = await run(project, [("Read", {"file_path": "f"}), bash("cd sub")], settings={}, advisers=[Late()])
    assert "f of the root" in results[0].text


async def test_a_file_named_by_an_absolute_path_is_read_beside_a_cd(project: Path) -> None:
    reading = asyncio.Event()

    class UntilRead:
        def wants(self, plan: Any) -> bool:
            return True

        async def advise(self, plan: Any) -> Advice:
            if plan.tool.name == "Read":
                reading.set()
            else:
                await asyncio.wait_for(reading.wait(), 10)
            return Advice()

    calls = [bash("cd sub"), ("Read", {"file_path": str(project / "f")})]
    results, _ = await run(project, calls, settings={}, advisers=[UntilRead()])
    assert "f of the root" in results[1].text


async def test_a_call_is_judged_again_when_a_program_moves_the_session_while_it_is_asked_about(project: Path) -> None:
    asked: list[str] = []

    def move(question: Question) -> bool:
        asked.append(question.plan.cwd)
        if len(asked) == 1:
            box.workspace.cwd = str(project / "secret")
        return True

    async with Toolbox(project, settings=DENY, ask=move) as box:
        results = await box.call_many([bash("make -v; cat x")])
    assert "the secret" not in results[0].text
    assert asked[0] == str(project)


async def test_an_answer_stands_where_the_call_is_the_same_in_the_new_folder(project: Path) -> None:
    asked: list[str] = []

    def move(question: Question) -> bool:
        asked.append(question.plan.cwd)
        box.workspace.cwd = str(project / "sub")
        return True

    async with Toolbox(project, settings={}, ask=move) as box:
        new = project / "new"
        results = await box.call_many([("Write", {"file_path": str(new), "content": "n"})])
        assert not results[0].is_error
        assert asked == [str(project)]


@pytest.mark.parametrize("command", ["cat top", "cat sub/f"])
async def test_a_command_whose_folder_is_gone_is_judged_for_the_root(project: Path, command: str) -> None:
    settings = {"permissions": {"allow": ["Bash(rm:*)"], "deny": ["Read(./top)"]}, "journal": {"enabled": False}}
    (project / "sub" / "empty").mkdir()
    (project / "top").write_text("top of the root")
    calls = [bash("cd sub/empty"), bash("rm -r ../empty"), bash(command)]
    results, cwd = await run(project, calls, settings=settings)
    assert cwd == project
    if command == "cat top":
        assert "Read(./top)" in results[2].text
        assert "top of the root" not in results[2].text
    else:
        assert "f of sub" in results[2].text
        assert "no longer exists" in results[2].text


async def test_a_symlink_made_by_an_earlier_call_is_followed_when_its_turn_comes(project: Path) -> None:
    settings = {"permissions": {"allow": ["Bash(ln:*)"]}, "journal": {"enabled": False}}
    calls = [bash("ln -s f link"), ("Read", {"file_path": "link"})]
    results, _ = await run(project, calls, settings=settings)
    assert "f of the root" in results[1].text


async def test_two_names_of_one_file_are_one_file(project: Path) -> None:
    (project / "alias").symlink_to("sub")
    written = asyncio.Event()

    class Slow:
        def wants(self, plan: Any) -> bool:
            return bool(plan.tool.name == "Write")

        async def advise(self, plan: Any) -> Advice:
            await asyncio.sleep(0.2)
            written.set()
            return Advice()

    calls = [("Write", {"file_path": "sub/new", "content": "new"}), ("Read", {"file_path": "alias/new"})]
    results, _ = await run(project, calls, settings={}, mode="acceptEdits", advisers=[Slow()])
    assert "new" in results[1].text
    assert not results[1].is_error


async def test_a_background_shell_is_there_for_the_call_after_it(project: Path) -> None:
    calls = [
        bash("sleep 0.2; cat f", run_in_background=True),
        ("BashOutput", {"bash_id": "bash_1", "wait": 5}),
        bash("sleep 30", run_in_background=True),
        ("KillShell", {"shell_id": "bash_2"}),
    ]
    results, _ = await run(project, calls, settings={})
    assert [result.is_error for result in results] == [False] * 4
    assert "f of the root" in results[1].text


async def test_a_rule_that_an_answer_adds_holds_for_the_next_call(project: Path) -> None:
    from wieldy.core.decision import Answer

    asked: list[str] = []

    async def answer(question: Question) -> Answer:
        asked.append(question.plan.input["file_path"])
        await asyncio.sleep(0.05)
        return Answer(True, remember=("Edit(sub/**)",), scope="session")

    calls = [("Write", {"file_path": f"sub/{n}", "content": "x"}) for n in range(3)]
    results, _ = await run(project, calls, settings={}, ask=answer)
    assert [result.is_error for result in results] == [False] * 3
    assert len(asked) == 1


async def test_a_tool_of_a_program_has_the_folder_it_was_judged_for(project: Path) -> None:
    @tool(read_only=True)
    async def where(ctx: ToolContext) -> str:
        """Where am I?"""
        await asyncio.sleep(0.1)
        return ctx.cwd

    results, _ = await run(project, [("where", {}), bash("cd sub"), ("where", {})], settings={}, tools=[where])
    assert [results[0].text, results[2].text] == [str(project), str(project / "sub")]
