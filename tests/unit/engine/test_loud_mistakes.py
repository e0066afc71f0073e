"""A mistake in an option, a setting or a callback is told where it is made."""

from __future__ import annotations

import asyncio
import threading
import time
import traceback
from pathlib import Path
from typing import Any

import pytest

from wieldy import (
    Answer,
    Anthropic,
    OpenAIChat,
    OpenAIResponses,
    Question,
    Refusal,
    Script,
    Session,
    SessionError,
    Toolbox,
    python_hook,
    serve_mcp,
    tool,
)
from wieldy.core.errors import ClosedError, SettingsError, ToolDefinitionError
from wieldy.core.outcome import Done, Refused


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WIELDY_HOME", str(tmp_path / "home"))


@tool
async def deploy() -> str:
    """Deploy."""
    return "deployed"


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"permissions": {"deni": ["Bash"]}}, "did you mean `permissions.deny`"),
        ({"permisions": {"deny": ["Bash"]}}, "did you mean `permissions`"),
        ({"permissions": {"deny": ["Bash("]}}, "deny rule cannot be used"),
        ({"permissions": {"allow": ["Bash("]}}, "allow rule cannot be used"),
        ({"permissions": {"deny": "Bash"}}, "must be a list of strings"),
        ({"permissions": {"defaultMode": "plann"}}, "did you mean `plan`"),
        ({"bash": {"timeoutMs": "3"}}, "must be an integer"),
        ({"bash": {"timeoutMs": -3}}, "must be at least 0"),
        ({"tools": {"Bash": {"rateLimit": "2/min"}}}, "must be an object"),
        ({"tools": {"Bash": {"rateLimit": {"calls": 2}}}}, "needs `calls` and `seconds`"),
        ({"tools": {"Bash": {"timeout": 0}}}, "must be above 0"),
        ({"tools": {"Bash": {"cacheSeconds": 5}}}, "not read-only"),
        ({"hooks": {"PreToolUs": []}}, "there is no such event"),
        ({"mcpServers": {"x": {}}}, "neither `command` nor `url`"),
        (["permissions"], "settings are a mapping"),
    ],
)
@pytest.mark.parametrize("kind", [Toolbox, Session])
@pytest.mark.parametrize("load_settings", [False, True])
def test_settings_in_code_that_do_not_parse_raise(tmp_path, settings, words, kind, load_settings):
    with pytest.raises(SettingsError, match=words):
        kind(tmp_path, settings=settings, load_settings=load_settings)


def test_a_settings_file_that_is_not_there_raises(tmp_path):
    with pytest.raises(SettingsError, match="there is no such file"):
        Toolbox(tmp_path, settings_file=tmp_path / "none.json")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"max_concurrency": -2}, "max_concurrency"),
        ({"max_concurrency": 0}, "max_concurrency"),
        ({"max_concurrency": "2"}, "max_concurrency"),
        ({"mode": "plann"}, "did you mean `plan`"),
        ({"ask": True}, "`ask` must be a function"),
        ({"ask": "defer"}, "option of Session"),
        ({"hooks": [print]}, "python_hook"),
        ({"wait_for_servers": True}, "`wait_for_servers` must be a number of seconds"),
        ({"wait_for_servers": -1}, "wait_for_servers"),
        ({"env": "PATH=/bin"}, "`env` must be a mapping"),
    ],
)
def test_an_option_that_cannot_be_meant_raises(tmp_path, options, words):
    with pytest.raises((TypeError, ValueError), match=words):
        Toolbox(tmp_path, settings={}, **options)


@pytest.mark.parametrize(
    "options", [{"max_turns": 0}, {"max_turns": "3"}, {"max_cost": -1}, {"max_cost": "1"}, {"thinking_budget": -1}]
)
def test_a_limit_of_a_session_that_cannot_be_meant_raises(tmp_path, options):
    with pytest.raises(ValueError, match=next(iter(options))):
        Session(tmp_path, settings={}, model=Script([]), **options)


@pytest.mark.parametrize("options", [{"model": 3}, {"small_model": object()}])
def test_what_is_no_model_raises(tmp_path, options):
    with pytest.raises(TypeError, match="model object"):
        Session(tmp_path, settings={}, **options)


def test_a_root_that_is_no_folder_raises(tmp_path):
    with pytest.raises(ValueError, match="`root` must be a folder"):
        Toolbox(tmp_path / "nowhere")


@pytest.mark.parametrize(("event", "options"), [("PreToolUs", {}), ("PreToolUse", {"on_error": "stop"})])
def test_a_hook_that_would_never_run_raises(event, options):
    with pytest.raises(ValueError, match=r"PreToolUse|on_error"):
        python_hook(event, print, **options)


@pytest.mark.asyncio
@pytest.mark.parametrize("reply", [None, 1, "raise", "exit", Answer("yes")])  # type: ignore[arg-type]
async def test_an_ask_callback_that_fails_is_a_refusal(tmp_path, reply):
    def ask(question: Any) -> Any:
        if reply == "raise":
            raise ValueError("no line to the office")
        if reply == "exit":
            raise SystemExit(1)
        return reply

    async with Toolbox(tmp_path, settings={}, tools=[deploy], ask=ask) as box:
        result = await box.call("deploy")
    assert isinstance(result.outcome, Refused)
    assert result.outcome.stage == "permission"
    assert "the user could not be asked" in result.text


@pytest.mark.asyncio
async def test_what_an_ask_callback_raises_is_logged_with_its_traceback_and_announced(tmp_path, caplog):
    def ask(question: Any) -> bool:
        raise ValueError("no line to the office")

    async with Toolbox(tmp_path, settings={}, tools=[deploy], ask=ask) as box, box.stream() as events:
        await box.call("deploy")
        notices = [event.text async for event in until_failed(events) if event.kind == "notice"]
    assert notices == ["the question about deploy failed: ValueError: no line to the office"]
    (record,) = [record for record in caplog.records if record.name == "wieldy" and record.exc_info]
    assert record.exc_info is not None
    assert "in ask" in "".join(traceback.format_exception(record.exc_info[1]))


async def until_failed(events: Any) -> Any:
    async for event in events:
        yield event
        if event.kind == "tool.failed":
            return


@pytest.mark.asyncio
async def test_a_question_has_the_name_input_reasons_and_all_that_would_happen(tmp_path):
    (tmp_path / "a.txt").write_text("one\ntwo\n")
    asked: list[Question] = []

    def ask(question: Question) -> bool:
        asked.append(question)
        return False

    async with Toolbox(tmp_path, settings={}, ask=ask) as box:
        await box.call("Read", file_path="a.txt")
        await box.call("Edit", file_path="a.txt", old_string="two", new_string="th\u200bree\nfour")
        await box.call("Bash", command="mkdir build")
    edit, command = asked
    path = str(tmp_path / "a.txt")
    assert (edit.name, edit.input["file_path"], edit.id) == ("Edit", path, edit.plan.call.id)
    assert edit.preview == f"file_path: {path}\n- two\n+ th<U+200B>ree\n+ four"
    assert (command.name, command.preview) == ("Bash", "command: mkdir build")
    assert {reason.behavior for reason in command.reasons} == {"ask"}


@pytest.mark.asyncio
@pytest.mark.parametrize("error", [ValueError("broken"), SystemExit(1)])
@pytest.mark.parametrize("is_async", [False, True])
async def test_a_hook_that_raises_is_a_refusal(tmp_path, error, is_async):
    def guard(payload: dict[str, Any]) -> None:
        raise error

    async def async_guard(payload: dict[str, Any]) -> None:
        raise error

    hook = python_hook("PreToolUse", async_guard if is_async else guard)
    async with Toolbox(tmp_path, settings={}, tools=[deploy], mode="bypassPermissions", hooks=[hook]) as box:
        result = await box.call("deploy")
    assert isinstance(result.outcome, Refused)
    assert type(error).__name__ in result.text


@pytest.mark.asyncio
async def test_an_adviser_that_raises_is_a_refusal_and_a_reviewer_that_raises_changes_nothing(tmp_path):
    class Adviser:
        def wants(self, plan: Any) -> bool:
            return True

        async def advise(self, plan: Any) -> Any:
            raise LookupError("no rule book")

    async with Toolbox(tmp_path, settings={}, tools=[deploy], mode="bypassPermissions", advisers=[Adviser()]) as box:
        result = await box.call("deploy")
    assert isinstance(result.outcome, Refused)
    assert "no rule book" in result.text

    def after(payload: dict[str, Any]) -> None:
        raise LookupError("no log")

    hook = python_hook("PostToolUse", after)
    async with Toolbox(tmp_path, settings={}, tools=[deploy], mode="bypassPermissions", hooks=[hook]) as box:
        assert isinstance((await box.call("deploy")).outcome, Done)


@pytest.mark.asyncio
async def test_a_blocking_ask_or_hook_holds_up_nobody(tmp_path):
    threads: list[int] = []

    def ask(question: Any) -> bool:
        threads.append(threading.get_ident())
        released.wait(10)
        return True

    def hook(payload: dict[str, Any]) -> None:
        threads.append(threading.get_ident())

    released = threading.Event()
    hooks = [python_hook("PreToolUse", hook)]
    async with Toolbox(tmp_path, settings={}, tools=[deploy], ask=ask, hooks=hooks) as box:
        call = asyncio.create_task(box.call("deploy"))
        while len(threads) < 2:
            await asyncio.sleep(0.01)
        released.set()
        assert (await call).text == "deployed"
    assert threading.get_ident() not in threads


@pytest.mark.asyncio
async def test_a_blocking_hook_is_bounded_by_its_time_out_and_a_blocking_ask_by_an_abort(tmp_path):
    released = threading.Event()
    slow = python_hook("PreToolUse", lambda payload: released.wait(30) and None, seconds=0.05)
    async with Toolbox(tmp_path, settings={}, tools=[deploy], mode="bypassPermissions", hooks=[slow]) as box:
        assert "did not end within 0.05 s" in (await box.call("deploy")).text
    async with Toolbox(tmp_path, settings={}, tools=[deploy], ask=lambda question: released.wait(30)) as box:
        call = asyncio.create_task(box.call("deploy"))
        await asyncio.sleep(0.05)
        started = time.monotonic()
        box.abort()
        assert (await call).is_error
        assert time.monotonic() - started < 10
    released.set()


@pytest.mark.asyncio
async def test_no_such_tool_lists_only_what_is_offered(tmp_path):
    settings = {"permissions": {"deny": ["WebFetch"]}}
    async with Toolbox(tmp_path, settings=settings, tools=[deploy]) as box:
        for _ in range(2):
            text = (await box.call("Deplo")).text
            assert "`deploy`" in text
            assert "Grep" in text
            assert "WebFetch" not in text
            assert "StickerRequest" not in text
            await box.offering()
        box.mode = "plan"
        await box.offering()
        assert "Edit" not in (await box.call("Deplo")).text.partition("Available tools")[2]


@pytest.mark.asyncio
async def test_a_closed_toolbox_says_so(tmp_path):
    box = Toolbox(tmp_path, settings={})
    async with box:
        await box.call("LS", path=".")
    await box.aclose()
    for work in (box.call("LS", path="."), box.call_many([]), box.explain("LS", path="."), box.offer(), box.offering()):
        with pytest.raises(ClosedError, match="this toolbox is closed"):
            await work
    for use in (box.turn, box.stream, lambda: box.subscribe(print), lambda: box.add(deploy)):
        with pytest.raises(ClosedError):
            use()
    with pytest.raises(ClosedError):
        await box.__aenter__()


@pytest.mark.parametrize("behavior", ["deny", "ask", "allow"])
@pytest.mark.parametrize("rule", ["Bsh(rm:*)", "Grepp", {"rule": "Wriet(secret)"}])
def test_a_rule_in_code_with_a_misspelled_tool_is_an_error(tmp_path, behavior, rule):
    with pytest.raises(SettingsError, match=rf"{behavior} rule .*there is no tool .*did you mean"):
        Toolbox(tmp_path, settings={"permissions": {behavior: [rule]}})


def test_a_rule_may_be_about_a_tool_of_the_program_or_one_that_comes_later(tmp_path):
    @tool(name="Reads")
    def reads() -> str:
        """Read much."""
        return ""

    rules = ["Reads", "Deploy", "mcp__server__read", "Task", "mcp__*"]
    Toolbox(tmp_path, tools=[reads], settings={"permissions": {"deny": rules}})


@pytest.mark.parametrize("env", [{"A": 3}, {3: "A"}, {"A": None}])
def test_an_environment_that_is_not_of_texts_is_an_error(tmp_path, env):
    with pytest.raises(TypeError, match="`env` must be a mapping of texts"):
        Toolbox(tmp_path, settings={}, env=env)


@pytest.mark.parametrize(
    "options",
    [
        {"temperature": "hot"},
        {"temperature": 3},
        {"max_tokens": "many"},
        {"max_tokens": 0},
        {"context_window": -1},
        {"api_key": 5},
        {"model": ""},
    ],
)
@pytest.mark.parametrize("kind", [Anthropic, OpenAIChat, OpenAIResponses])
def test_an_option_of_a_model_object_that_cannot_be_meant_is_an_error(kind, options):
    with pytest.raises((TypeError, ValueError), match=next(iter(options))):
        kind(**{"model": "m", "api_key": "k", **options})


@pytest.mark.parametrize("messages", ["hi", {"role": "user", "content": "hi"}])
def test_a_history_that_is_no_list_is_an_error(tmp_path, messages):
    with pytest.raises(ValueError, match="`messages` must be a list of messages"):
        Session(tmp_path, model=Script([]), settings={}, messages=messages)


@pytest.mark.asyncio
async def test_messages_of_a_turn_that_was_not_fed_need_the_name_of_an_api(tmp_path):
    async with Toolbox(tmp_path, settings={}) as box, box.turn() as turn:
        turn.submit(("LS", {"path": "."}))
        with pytest.raises(ValueError, match="say which API the messages are for: 'anthropic'"):
            await turn.messages()
        assert len(await turn.messages("openai")) == 1


@pytest.mark.asyncio
async def test_what_is_closed_cannot_be_changed_or_undone(tmp_path):
    async with Session(tmp_path, model=Script([]), settings={}) as session:
        pass
    for change in (lambda: setattr(session, "mode", "plan"), lambda: setattr(session.box, "mode", "plan")):
        with pytest.raises(ClosedError):
            change()
    for work in (session.box.undo(), session.box.redo(), session.box.reload(), session.box.connected()):
        with pytest.raises(ClosedError):
            await work


@pytest.mark.parametrize(
    "options", [{"session_id": "../evil"}, {"session_id": ""}, {"resume": "../../evil"}, {"resume": 3}, {"fork": True}]
)
@pytest.mark.parametrize("store", [None, object()])
def test_an_id_that_is_no_name_of_a_folder_is_an_error(tmp_path, options, store):
    with pytest.raises((ValueError, SessionError), match=r"session_id|resume|not the id of a session"):
        Session(tmp_path, model=Script([]), settings={}, store=store, **options)


@pytest.mark.parametrize("prompt", [3, None, {"type": "text", "text": "x"}, ["x"]])
@pytest.mark.asyncio
async def test_a_prompt_that_is_no_prompt_is_an_error(tmp_path, prompt):
    async with Session(tmp_path, model=Script([]), settings={}) as session:
        with pytest.raises(SessionError, match="a prompt is text"):
            await session.ask(prompt)


@pytest.mark.asyncio
async def test_serving_a_toolbox_instead_of_a_function_that_makes_one_is_an_error(tmp_path):
    box: Any = Toolbox(tmp_path, settings={})
    with pytest.raises(TypeError, match="takes a function that makes a toolbox"):
        await serve_mcp(box, http=0)


@pytest.mark.asyncio
async def test_a_program_that_misspells_a_tool_is_told_only_those_that_can_be_called(tmp_path):
    for use in ("call", "explain"):
        async with Toolbox(tmp_path, settings={}) as box:
            if use == "call":
                text = (await box.call("Raed", file_path="a")).text
            else:
                with pytest.raises(Refusal) as refusal:
                    await box.explain("Raed", file_path="a")
                text = str(refusal.value)
            assert "Did you mean `Read`?" in text
            offered = text.partition("Available tools: ")[2].strip(" .").split(", ")
            assert set(offered) <= {each.tool.name for each in await box.offer() if each.offered}
            assert "Agent" not in offered  # there is no model


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("name", "input", "fields", "words"),
    [
        ("LS", 5, {}, "the input of LS is a dict of its fields, or JSON text, not 5"),
        ("LS", ["."], {}, "the input of LS is a dict"),
        ("LS", {"path": "."}, {"path": ".."}, r"the input of LS is given twice, .* \(`path`\)"),
        ("LS", None, {"path": b"."}, "`path` of LS is bytes"),
        ("LS", {"path": bytearray()}, {}, "`path` of LS is bytearray"),
        (b"LS", {}, {}, "no tool call"),
    ],
)
async def test_a_call_of_the_program_that_cannot_be_meant_raises(tmp_path, name, input, fields, words):
    async with Toolbox(tmp_path, settings={}) as box:
        for method in (box.call, box.explain):
            with pytest.raises(TypeError, match=words):
                await method(name, input, **fields)


@pytest.mark.asyncio
async def test_an_input_of_a_model_that_is_no_object_is_a_refusal_with_a_sentence(tmp_path):
    async with Toolbox(tmp_path, settings={}) as box:
        (result,) = await box.call_many([{"type": "tool_use", "id": "a", "name": "LS", "input": [1]}])
    assert isinstance(result.outcome, Refused)
    assert "an object is needed" in result.text


@pytest.mark.asyncio
async def test_a_tool_that_returns_bytes_is_an_error(tmp_path):
    @tool(read_only=True)
    def raw() -> bytes:
        """Return bytes."""
        return b"abc"

    async with Toolbox(tmp_path, settings={}, tools=[raw]) as box:
        result = await box.call("raw")
    assert result.is_error
    assert "the tool returned bytes" in result.text


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "options", [{"turn": True, "everything": True}, {"call_id": "a", "turn": True}, {"turn": True, "since": 1.0}]
)
async def test_an_undo_of_two_things_at_once_raises(tmp_path, options):
    async with Toolbox(tmp_path, settings={}) as box:
        with pytest.raises(ValueError, match="undo takes one of"):
            await box.undo(**options)


def test_a_parameter_without_an_annotation_raises(tmp_path):
    @tool
    def add(number):
        """Add."""

    with pytest.raises(ToolDefinitionError, match="parameter `number` has no annotation"):
        Toolbox(tmp_path, settings={}, tools=[add])
