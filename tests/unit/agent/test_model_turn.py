"""Streams that break: before a tool has started they are asked for again, afterwards what was said stands."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.unit.agent.conftest import ended, events_of
from tests.unit.agent.oracle import check_history

from wieldy import Script, Session
from wieldy.agent.loop import MAX_BACKOFF_SECONDS, MAX_RETRY_AFTER_SECONDS, retry_delay
from wieldy.agent.records import AssistantBlock, AssistantMessageEnded, MessageDiscarded
from wieldy.agent.transcript import records
from wieldy.core.events import ModelAnswered, ModelRequested, Retried, ToolEnded, ToolStarted, ToolSucceeded
from wieldy.core.provider import ProviderFailure, Request

FAIL = {"fail": "overloaded", "status": 529, "retry_after": 0}
NOTE = {"call": "note", "input": {"word": "once"}}


@pytest.mark.asyncio
async def test_a_stream_that_breaks_before_any_tool_started_is_asked_for_again(make_session, ledger):
    model = Script([[{"text": "half"}, FAIL], [FAIL], [NOTE], [{"text": "done"}]])
    async with make_session(model) as session:
        events = await events_of(session)
        assert ended(events).why == "done"
        assert [event.status for event in events if isinstance(event, Retried)] == [529, 529]
        assert ledger.ran == ["once"]
        assert "half" not in str(session.messages)
        check_history(session.messages)


def discarded_texts(folder):
    """The texts in a transcript that were followed by another attempt, in order."""
    open_texts, discarded = [], []
    for record in records(folder):
        match record:
            case AssistantBlock(block={"type": "text", "text": text}):
                open_texts.append(text)
            case MessageDiscarded():
                discarded += open_texts
                open_texts = []
            case AssistantMessageEnded():
                open_texts = []
    return discarded


@pytest.mark.asyncio
async def test_text_of_a_broken_stream_stays_in_the_transcript_and_the_model_reads_it_once(make_session):
    half = {"text": "half of it", "open": True}
    model = Script([[half, FAIL], [FAIL], [{"text": "half of it and the rest"}], [{"text": "bye"}]])
    async with make_session(model) as session:
        assert await session.ask("go") == "half of it and the rest"
        await session.ask("again")
        assert discarded_texts(session.box.workspace.session_dir) == ["half of it"]
    assert str(model.requests[-1].messages).count("half of it") == 1


@pytest.mark.asyncio
@pytest.mark.parametrize("later", [[], [[FAIL]] * 7])
async def test_text_of_a_stream_that_no_attempt_could_finish_is_part_of_the_conversation(make_session, later):
    end = FAIL if later else {"fail": "auth"}
    model = Script([[{"think": "hm"}, {"text": "half of it", "open": True}, end], *later, [{"text": "bye"}]])
    async with make_session(model) as session:
        assert ended(await events_of(session)).why == "error"
        assert [block["type"] for block in session.messages[-1]["content"]] == ["thinking", "text"]
        assert await session.ask("go on") == "bye"
        check_history(session.messages)
    sent = model.requests[-1].messages
    assert [message.role for message in sent] == ["user", "assistant", "user"]
    assert sent[1].content[-1] == {"type": "text", "text": "half of it"}
    async with make_session(Script([[{"text": "still"}]]), resume=session.id) as again:
        await again.ask("and now?")
        assert "half of it" in str(again.messages)


@pytest.mark.asyncio
async def test_text_is_kept_where_the_person_stops_the_wait_for_another_attempt(make_session):
    wait = {"fail": "overloaded", "status": 529, "retry_after": 60}
    async with make_session(Script([[{"text": "half of it", "open": True}, wait]])) as session:
        async for event in session.run("go"):
            if isinstance(event, Retried):
                session.abort()
        assert session.messages[-1]["content"] == [{"type": "text", "text": "half of it"}]


@pytest.mark.asyncio
async def test_a_call_without_input_that_a_broken_stream_left_undecided_is_forgotten(make_session, ledger):
    model = Script([[{"text": "first"}, {"call": "note", "raw": ""}, {"fail": "auth"}], [{"text": "bye"}]])
    async with make_session(model) as session:
        assert ended(await events_of(session)).why == "error"
        assert session.messages[-1]["content"] == [{"type": "text", "text": "first"}]
        assert ledger.ran == []


@pytest.mark.asyncio
async def test_a_stream_that_breaks_after_a_tool_started_keeps_its_result_and_goes_on(make_session, ledger):
    model = Script([[{"text": "first"}, NOTE, {"text": "and th"}, FAIL], [{"text": "done"}]])
    async with make_session(model) as session:
        events = await events_of(session)
        assert ended(events).why == "done"
        assert ledger.ran == ["once"]
        assert [e.stop_reason for e in events if isinstance(e, ModelAnswered)] == ["broken", "end_turn"]
        kinds = [[block["type"] for block in message["content"]] for message in session.messages]
        assert kinds == [["text"], ["text", "tool_use", "text"], ["tool_result"], ["text"]]
        check_history(session.messages)


@pytest.mark.asyncio
async def test_half_a_call_of_a_broken_stream_is_forgotten(make_session, ledger):
    half = {"call": "note", "raw": '{"word": "tw', "open": True}
    async with make_session(Script([[NOTE, half, FAIL], [{"text": "done"}]])) as session:
        await events_of(session)
        assert ledger.ran == ["once"]
        assert len(session.messages[1]["content"]) == 1


@pytest.mark.asyncio
@pytest.mark.parametrize("kind", ["auth", "model", "bad_request", "protocol", "overflow"])
async def test_failures_that_cannot_pass_end_the_run_at_once_with_their_message(make_session, kind):
    model = Script([[{"fail": kind, "message": "so it is"}]])
    async with make_session(model) as session:
        last = ended(await events_of(session))
        assert (last.why, last.detail, last.is_error) == ("error", "so it is", True)
        assert len(model.requests) == 1


@pytest.mark.asyncio
async def test_it_gives_up_after_eight_attempts_and_the_session_can_go_on(make_session):
    model = Script([[FAIL]] * 8 + [[{"text": "back"}]])
    async with make_session(model) as session:
        assert ended(await events_of(session)).why == "error"
        assert len(model.requests) == 8
        assert await session.ask("still there?") == "back"
        check_history(session.messages)


@pytest.mark.asyncio
async def test_a_broken_stream_that_no_retry_can_mend_ends_the_run_with_the_results_kept(make_session, ledger):
    async with make_session(Script([[NOTE, {"fail": "bad_request"}]])) as session:
        assert ended(await events_of(session)).why == "error"
        assert session.messages[2]["content"][0]["content"] == [{"type": "text", "text": "noted once"}]


@pytest.mark.asyncio
async def test_a_tool_runs_while_the_model_still_speaks(make_session, ledger):
    released = asyncio.Event()

    class Holding(Script):
        """Speaks on only when the tool has run."""

        async def _deltas(self, turn):
            async for delta in super()._deltas(turn):
                yield delta
                if getattr(delta, "index", None) == 0 and type(delta).__name__ == "BlockEnded":
                    await released.wait()

    model = Holding([[NOTE, {"text": "and so on"}], [{"text": "done"}]])
    order = []
    async with make_session(model) as session:
        async for event in session.run("go"):
            order.append(event.kind)
            if isinstance(event, ToolSucceeded):
                released.set()
    assert order.index("tool.succeeded") < order.index("model.said") < order.index("model.answered")


@pytest.mark.asyncio
@pytest.mark.parametrize("steps", range(14))
async def test_a_result_is_in_the_next_request_at_whatever_step_of_the_loop_the_tool_ends(make_session, steps):
    class Lingering(Script):
        """Goes on for some steps of the event loop after its call."""

        async def _deltas(self, turn):
            async for delta in super()._deltas(turn):
                if type(delta).__name__ == "Stopped":
                    for _ in range(steps):
                        await asyncio.sleep(0)
                yield delta

    model = Lingering([[NOTE], [{"text": "done"}]])
    async with make_session(model) as session:
        await events_of(session)
    assert model.requests[1].messages[-1].content[0]["content"] == [{"type": "text", "text": "noted once"}]


@pytest.mark.asyncio
async def test_a_call_cut_off_by_the_length_limit_is_never_run(make_session, ledger):
    cut = {"call": "note", "raw": '{"word": "x"', "open": True}
    model = Script([[cut, {"stop": "max_tokens"}], [{"text": "less then"}]])
    async with make_session(model) as session:
        assert ended(await events_of(session)).why == "done"
        assert ledger.ran == []
        assert "cut off" in str(session.messages[2])


@pytest.mark.asyncio
async def test_closed_blocks_of_incomplete_json_are_never_run(make_session, ledger):
    model = Script([[{"call": "note", "raw": '{"word": "x"'}, {"stop": "max_tokens"}], [{"text": "ok"}]])
    async with make_session(model) as session:
        await events_of(session)
        assert ledger.ran == []
        assert session.messages[1]["content"][0]["input"] == {}


@pytest.mark.asyncio
async def test_results_come_in_the_order_of_the_calls(make_session):
    calls = [{"call": "slow", "input": {"word": str(n), "seconds": 0.03 - n / 100}} for n in range(3)]
    async with make_session(Script([calls, [{"text": "done"}]])) as session:
        await events_of(session)
        assert [b["content"][0]["text"] for b in session.messages[2]["content"]] == ["noted 0", "noted 1", "noted 2"]


@pytest.mark.asyncio
async def test_the_same_failing_call_is_refused_the_third_time_and_ends_the_run_the_fifth(make_session, ledger):
    async with make_session(Script([[{"call": "fails", "input": {"word": "x"}}]] * 9)) as session:
        assert ended(await events_of(session)).why == "looping"
        assert ledger.ran == ["x", "x"]
        assert len(session.messages) == 11
        check_history(session.messages)


@pytest.mark.asyncio
async def test_a_command_may_fail_as_often_as_something_is_edited_before_it(make_session, tmp_path):
    test = {"call": "Bash", "input": {"command": f"grep -q 7 {tmp_path}/answer.txt || exit 3"}}
    edits = [{"call": "Write", "input": {"file_path": f"{tmp_path}/answer.txt", "content": str(n)}} for n in range(8)]
    model = Script([[step] for edit in edits for step in (edit, test)] + [[{"text": "done"}]])
    async with make_session(model, builtins=True, mode="bypassPermissions") as session:
        events = await events_of(session)
    codes = [event.result.data["exitCode"] for event in events if isinstance(event, ToolEnded) and event.name == "Bash"]
    assert codes == [3] * 7 + [0]
    assert ended(events).why == "done"


@pytest.mark.asyncio
async def test_a_new_prompt_lets_a_call_that_has_failed_run_again(make_session, ledger):
    again = [{"call": "fails", "input": {"word": "x"}}]
    async with make_session(Script([again, again, [{"text": "fails"}], again, [{"text": "fails"}]])) as session:
        await session.ask("go")
        await session.ask("I have mended it: again")
    assert ledger.ran == ["x", "x", "x"]


@pytest.mark.asyncio
async def test_every_request_and_start_is_announced(make_session):
    async with make_session(Script([[NOTE], [{"text": "x"}]])) as session:
        events = await events_of(session)
    assert [e.turn for e in events if isinstance(e, ModelRequested)] == [1, 2]
    assert [dict(e.input) for e in events if isinstance(e, ToolStarted)] == [{"word": "once"}]


@pytest.mark.parametrize(
    ("failure", "attempt", "seconds"),
    [
        (ProviderFailure("overloaded", ""), 1, 1.0),
        (ProviderFailure("overloaded", ""), 3, 4.0),
        (ProviderFailure("connection", ""), 8, None),
        (ProviderFailure("rate", "", retry_after=17), 1, 17),
        (ProviderFailure("rate", "", retry_after=MAX_RETRY_AFTER_SECONDS + 1), 1, None),
        (ProviderFailure("auth", ""), 1, None),
    ],
)
def test_how_long_to_wait(failure, attempt, seconds):
    assert retry_delay(failure, attempt, jitter=lambda: 1.0) == seconds


def test_waits_are_bounded_and_never_the_same():
    assert retry_delay(ProviderFailure("rate", ""), 20, 30, lambda: 1.0) == MAX_BACKOFF_SECONDS
    assert retry_delay(ProviderFailure("rate", ""), 1, jitter=lambda: 0.0) == 0.5


class Thinking(Script):
    """A recorded model that answers once what commands need is there, for which it waits before its first answer."""

    session: Session

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[Any]:
        async with asyncio.timeout(30):
            while (shells := self.session.box.workspace.services.existing("shells")) is None or not shells.guardian.pid:
                await asyncio.sleep(0.005)
        async with super().stream(request) as deltas:
            yield deltas


@pytest.mark.asyncio
async def test_the_first_command_is_prepared_while_the_model_thinks(tmp_path):
    model = Thinking().calls("Bash", command="echo ready").says("done")
    model.session = Session(tmp_path, model=model, settings={}, mode="bypassPermissions")
    async with model.session as session:
        events = await events_of(session)
        assert [event.result.text for event in events if isinstance(event, ToolEnded)] == ["ready"]


@pytest.mark.asyncio
async def test_nothing_is_prepared_for_a_model_that_answers_at_once(tmp_path):
    async with Session(tmp_path, model=Script().says("done"), settings={}) as session:
        assert await session.ask("go") == "done"
        assert session.box.workspace.services.existing("shells") is None
