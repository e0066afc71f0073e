"""One call's whole way: what it gives back when all is well, and in each of the six ways it can fail."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import pytest

from wieldy import Image, Output, Progress, Refusal, Text, Tool, ToolContext, ToolFailure, tool
from wieldy.core.call import PlannedCall, ToolCall
from wieldy.core.decision import Advice, Answer, Decision, Opinion, Reason
from wieldy.core.outcome import Done, Failed, Refused
from wieldy.core.tool import Doubt

pytestmark = pytest.mark.asyncio


@tool(read_only=True)
async def add(a: Annotated[int, "first"], b: int = 1) -> int:
    """Add two integers."""
    return a + b


GREETING = {"type": "object", "properties": {"who": {"type": "string"}}, "required": ["who"]}


@tool(read_only=True)
def shout(text: str, loud: bool = False) -> str:
    """Say it again."""
    return text.upper() if loud else text


async def test_a_call_gives_text_for_the_model_and_data_for_the_caller(make_box):
    async with make_box(add) as box:
        result = await box.call("add", a=2, b=3)
    assert (result.text, result.data, result.is_error) == ("5", 5, False)
    assert isinstance(result.outcome, Done)
    assert result.as_wire() == {
        "type": "tool_result",
        "tool_use_id": result.call_id,
        "content": [{"type": "text", "text": "5"}],
        "is_error": False,
    }


async def test_input_may_be_a_dict_json_text_or_keywords(make_box):
    async with make_box(add) as box:
        for result in (
            await box.call("add", {"a": 2}),
            await box.call("add", '{"a": 2}'),
            await box.call("add", b'{"a": 2}'),
            await box.call("add", a=2),
        ):
            assert result.text == "3"


async def test_an_unknown_tool_is_answered_with_the_nearest_names(make_box):
    async with make_box(add, shout) as box:
        result = await box.call("Shuot", text="x")
    assert result.is_error
    assert "No such tool: `Shuot`. Did you mean `shout`?" in result.text
    assert isinstance(result.outcome, Refused)
    assert result.outcome.stage == "lookup"


async def test_every_wrong_field_is_named_at_once(make_box):
    async with make_box(add) as box:
        result = await box.call("add", {"b": "three", "c": 4})
    assert result.is_error
    assert result.text.startswith("InputValidationError")
    for word in ("`a`", "`b`", "`c`", "integer"):
        assert word in result.text, result.text


async def test_a_call_whose_json_was_cut_off_is_never_run(make_box):
    ran: list[int] = []

    @tool(read_only=True)
    async def note(n: int) -> str:
        """Note a number."""
        ran.append(n)
        return "noted"

    async with make_box(note) as box:
        cut = await box.call("note", '{"n": 1')
        stopped = (await box.call_many([ToolCall("c1", "note", '{"n": 1}', complete=False)]))[0]
    assert ran == []
    for result in (cut, stopped):
        assert result.is_error
        assert "cut off" in result.text


async def test_mended_json_runs_and_the_result_says_so(make_box):
    async with make_box(add) as box:
        result = await box.call("add", '```json\n{"a": 2,}\n```')
    assert not result.is_error
    assert result.content[0] == Text("3")
    assert len(result.content) == 2


async def test_a_nearly_right_type_is_accepted_where_it_is_unambiguous(make_box):
    @tool(read_only=True)
    async def total(values: list[int], label: str = "") -> str:
        """Add up."""
        return f"{label}{sum(values)}"

    async with make_box(total) as box:
        result = await box.call("total", {"values": "[1, 2, 3]", "label": "007"})
    assert result.content[0] == Text("0076")


async def test_a_tool_that_raises_fails_with_one_plain_sentence(make_box):
    @tool(read_only=True)
    async def broken() -> str:
        """Break."""
        raise KeyError("missing\nkey")

    async with make_box(broken) as box:
        result = await box.call("broken")
    assert result.text == r"broken failed: KeyError: 'missing\nkey'"
    assert isinstance(result.outcome, Failed)


async def test_a_shell_like_failure_shows_message_then_stderr_then_stdout(make_box):
    @tool(read_only=True)
    async def fails() -> str:
        """Fail."""
        raise ToolFailure("exit code 2", stderr="err", stdout="out")

    async with make_box(fails) as box:
        assert (await box.call("fails")).text == "exit code 2\nerr\nout"


async def test_a_long_failure_is_cut_in_the_middle_with_a_count(make_box):
    @tool(read_only=True)
    async def fails() -> str:
        """Fail."""
        raise ToolFailure("x" * 30_000)

    async with make_box(fails) as box:
        text = (await box.call("fails")).text
    assert len(text) < 10_100
    assert "20,000 characters left out" in text


async def test_the_tools_own_check_can_refuse_or_have_the_person_asked(make_box):
    async def check(input: Any, ctx: ToolContext) -> Doubt | None:
        if input["n"] < 0:
            raise Refusal("check", "n must not be negative. Send zero or more.")
        return Doubt("that is a lot") if input["n"] > 9 else None

    @tool(read_only=True, check=check)
    async def count(n: int) -> str:
        """Count."""
        return f"counted {n}"

    asked: list[str] = []

    def answer(question: Any) -> str:
        asked.append(question.decision.why)
        return "take fewer"

    async with make_box(count, ask=answer) as box:
        assert (await box.call("count", n=3)).text == "counted 3"
        assert (await box.call("count", n=-1)).text == "n must not be negative. Send zero or more."
        assert (await box.call("count", n=10)).text == "Permission denied for count. The user said: take fewer"
    assert asked == ["ask: that is a lot"]


async def test_where_nobody_can_answer_a_question_is_a_denial(make_box):
    async with make_box(add, verdicts={"add": "ask"}) as box:
        result = await box.call("add", a=1)
    assert result.is_error
    assert "there is no one to ask" in result.text


async def test_a_denial_names_its_reason(make_box):
    async with make_box(add, verdicts={"add": "deny"}) as box:
        result = await box.call("add", a=1)
    assert result.text.startswith("Permission denied for add: deny: as told")


async def test_an_approver_may_change_the_input_and_it_is_checked_again(make_box):
    answers = [Answer(True, updated_input={"a": 40, "b": 2}), Answer(True)]
    async with make_box(add, verdicts={"add": "ask"}, ask=lambda question: answers.pop(0)) as box:
        assert (await box.call("add", a=1)).text == "42"
    async with make_box(
        add, verdicts={"add": "ask"}, ask=lambda question: Answer(True, updated_input={"a": "x"})
    ) as box:
        assert (await box.call("add", a=1)).text.startswith("InputValidationError")


class Advisers:
    """An analysis that vouches for small numbers, and a hook that writes another one."""

    def __init__(self, written: int | None) -> None:
        self.written = written
        self.seen: list[int] = []

    def wants(self, plan: PlannedCall) -> bool:
        return True

    async def advise(self, plan: PlannedCall) -> Advice:
        if self.written is not None:
            return Advice(updated_input={"a": self.written, "b": 0})
        self.seen.append(plan.input["a"])
        return Advice((Opinion("analysis", "allow" if plan.input["a"] < 10 else "ask", "how large it is"),))


async def test_advice_about_an_input_that_a_hook_has_replaced_does_not_count(make_box):
    analysis = Advisers(None)
    async with make_box(add, advisers=[analysis, Advisers(100)], ask=lambda question: False) as box:
        assert (await box.call("add", a=1)).text.startswith("Permission denied")
    assert analysis.seen == [1, 100]
    async with make_box(add, advisers=[Advisers(None), Advisers(2)], ask=lambda question: False) as box:
        assert (await box.call("add", a=100)).text == "2"


async def test_an_opinion_that_allows_does_not_count_for_an_input_the_person_has_changed(make_box):
    judged: list[list[str]] = []

    class Judge:
        def decide(self, plan: PlannedCall, opinions: Sequence[Opinion]) -> Decision:
            judged.append([opinion.behavior for opinion in opinions])
            return Decision("ask", (Reason("default", "ask", "always"),))

    def person(question):
        return Answer(True, updated_input={"a": 100, "b": 0})

    async with make_box(add, judge=Judge(), advisers=[Advisers(None)], ask=person) as box:
        assert (await box.call("add", a=1)).text == "100"
    assert judged[-2:] == [["allow"], []]


async def test_a_call_ends_only_when_all_of_its_advisers_have(make_box):
    class Failing(Advisers):
        async def advise(self, plan: PlannedCall) -> Advice:
            raise RuntimeError("broken")

    class Slow(Advisers):
        async def advise(self, plan: PlannedCall) -> Advice:
            await asyncio.sleep(0.05)
            return await super().advise(plan)

    slow = Slow(None)
    async with make_box(add, advisers=[Failing(None), slow]) as box:
        assert "could not be checked (RuntimeError: broken)" in (await box.call("add", a=1)).text
        assert slow.seen == [1]


async def test_advisers_that_keep_changing_the_input_are_a_refusal(make_box):
    class Fickle(Advisers):
        async def advise(self, plan: PlannedCall) -> Advice:
            return Advice(updated_input={"a": 3}) if plan.input["a"] != 1 else Advice()

    async with make_box(add, advisers=[Fickle(None), Advisers(2)]) as box:
        result = await box.call("add", a=1)
    assert result.is_error and "cannot agree" in result.text


@pytest.mark.parametrize(
    ("value", "text", "data"),
    [
        ("plain", "plain", None),
        (None, "(no output)", None),
        ("  \n", "(no output)", None),
        ({"a": [1]}, '{\n  "a": [\n    1\n  ]\n}', {"a": [1]}),
        (True, "true", True),
        (Output("said", data=7), "said", 7),
        ("half \ud83d emoji \ude00", "half \ufffd emoji \ufffd", None),
        ("nul\0 and \x1b[31mred\x1b[0m", "nul and [31mred[0m", None),
    ],
)
async def test_what_a_tool_returns_becomes_clean_text_and_data(make_box, value, text, data):
    @tool(read_only=True)
    async def give() -> Any:
        """Give."""
        return value

    async with make_box(give) as box:
        result = await box.call("give")
    assert (result.text, result.data) == (text, data)


async def test_images_stay_images(make_box):
    @tool(read_only=True)
    async def look() -> Any:
        """Look."""
        return [Text("a dot"), Image("image/png", "aGk=")]

    async with make_box(look) as box:
        result = await box.call("look")
    assert result.content == (Text("a dot"), Image("image/png", "aGk="))


async def test_a_long_result_goes_to_disk_and_the_model_gets_head_tail_size_and_path(make_box):
    lines = "\n".join(f"line {n}" for n in range(20_000))

    @tool(read_only=True, max_result_chars=5_000)
    async def talk() -> str:
        """Talk."""
        return lines

    async with make_box(talk) as box:
        result = await box.call("talk")
        folder = box.workspace.session_dir / "tool-results"
        (kept,) = folder.iterdir()
    assert kept.read_text() == lines
    assert str(kept) in result.text
    assert f"{len(lines):,} characters, 20,000 lines" in result.text
    assert "line 0\n" in result.text
    assert result.text.endswith("line 19999")
    assert len(result.text) < 5_500


async def test_a_result_that_cannot_be_kept_is_still_a_result(make_box):
    @tool(read_only=True, max_result_chars=100)
    async def talk() -> str:
        """Talk."""
        return "x" * 1_000

    async with make_box(talk) as box:
        box.workspace.session_dir.parent.mkdir(parents=True)
        box.workspace.session_dir.write_text("a file where the folder should be")
        result = await box.call("talk")
    assert not result.is_error
    assert "could not be kept on disk" in result.text


async def test_progress_goes_to_people_and_never_to_the_model(make_box):
    @tool(read_only=True)
    async def slow() -> AsyncIterator[Progress | Output]:
        """Be slow."""
        yield Progress("half way")
        yield Output("there")

    heard: list[str] = []

    async def listen(event: Any) -> None:
        heard.append(event.kind)

    async with make_box(slow) as box:
        box.subscribe(listen)
        result = await box.call("slow")
        await asyncio.sleep(0.01)
    assert result.text == "there"
    assert heard == ["tool.requested", "permission.decided", "tool.started", "tool.progress", "tool.succeeded"]


async def test_a_class_tool_with_a_raw_schema_gets_what_fits_it(make_box):
    class Greet(Tool):
        name = "Greet"
        description = "Greets."
        input_schema = GREETING
        read_only = True

        async def run(self, args: dict[str, Any], ctx: ToolContext) -> str:  # type: ignore[override]
            return f"hello {args['who']} ({ctx.call_id})"

    async with make_box(Greet()) as box:
        result = await box.call("Greet", who="you")
        assert result.text == f"hello you ({result.call_id})"
        assert (await box.call("Greet", {})).is_error


async def test_from_schema_takes_sync_and_async_handlers(make_box):
    schema = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 1}}, "required": ["n"]}
    one = Tool.from_schema("one", "Doubles.", schema, lambda input: input["n"] * 2, read_only=True)

    async def triple(input: dict[str, Any], ctx: ToolContext) -> str:
        return f"{input['n'] * 3} in {Path(ctx.workspace.root).name}"

    two = Tool.from_schema("two", "Triples.", schema, triple, read_only=True)
    async with make_box(one, two) as box:
        assert (await box.call("one", n=4)).text == "8"
        assert (await box.call("two", n=4)).text.startswith("12 in ")
        assert "at least 1" in (await box.call("one", n=0)).text


async def test_paths_are_absolute_before_the_tool_sees_them(make_box, tmp_path):
    @tool(reads="file_path", aliases={"path": "file_path"})
    async def show(file_path: str) -> str:
        """Show a path."""
        return file_path

    async with make_box(show) as box:
        assert (await box.call("show", path="a/../b.txt")).text == str(tmp_path / "b.txt")
        assert (await box.call("show", file_path="~/x")).text == str(Path.home() / "x")
        assert "NUL" in (await box.call("show", file_path="a\0b")).text
        assert "another user" in (await box.call("show", file_path="~nobody/x")).text
        assert "too long" in (await box.call("show", file_path="x" * 300)).text
