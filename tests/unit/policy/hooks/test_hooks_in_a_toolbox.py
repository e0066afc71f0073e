"""Hooks as a user writes them, through a whole toolbox with real commands."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from wieldy import Toolbox, tool
from wieldy.core.errors import SettingsError
from wieldy.policy.hooks.config import python_hook

pytestmark = pytest.mark.asyncio


@tool(read_only=True)
async def say(text: str) -> str:
    """Say it."""
    return f"said {text}"


@tool(read_only=True)
async def broken() -> str:
    """Break."""
    raise ValueError("broken")


def script(folder: Path, name: str, body: str) -> str:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return str(path)


def hooked(event: str, *commands: str, matcher: str = "", **more: Any) -> dict[str, Any]:
    entries = [{"type": "command", "command": command, **more} for command in commands]
    return {"hooks": {event: [{"matcher": matcher, "hooks": entries}]}}


@pytest_asyncio.fixture
async def box_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Any]:
    monkeypatch.setenv("WIELDY_HOME", str(tmp_path / "home"))
    boxes: list[Toolbox] = []

    def make(settings: dict[str, Any], **options: Any) -> Toolbox:
        box = Toolbox(tmp_path, settings=settings, tools=[say, broken], **options)
        boxes.append(box)
        return box

    yield make
    for box in boxes:
        await box.aclose()


async def test_a_hook_is_told_of_the_call_on_stdin(box_of, tmp_path):
    box = box_of(hooked("PreToolUse", f"cat > {tmp_path}/told.json", matcher="say"))
    result = await box.call("say", text="hi")
    told = json.loads((tmp_path / "told.json").read_text())
    assert result.text == "said hi"
    assert told["hook_event_name"] == "PreToolUse"
    assert told["tool_name"] == "say"
    assert told["tool_input"] == {"text": "hi"}
    assert told["tool_use_id"] == result.call_id
    assert told["cwd"] == str(tmp_path)
    assert told["permission_mode"] == "default"
    assert told["session_id"] == box.id


async def test_exit_code_two_blocks_and_the_model_reads_why(box_of):
    box = box_of(hooked("PreToolUse", "echo 'not today' >&2; exit 2"))
    result = await box.call("say", text="hi")
    assert result.is_error
    assert "not today" in result.text


@pytest.mark.parametrize(
    "said",
    [
        {
            "hookSpecificOutput": {
                "hookEventName": "PreToolUse",
                "permissionDecision": "deny",
                "permissionDecisionReason": "no",
            }
        },
        {"decision": "block", "reason": "no"},
        {"permissionDecision": "deny", "reason": "no"},
    ],
)
@pytest.mark.parametrize("code", [0, 1, 2])
async def test_a_denial_in_json_blocks_in_any_place_with_any_exit_code(box_of, said, code):
    box = box_of(hooked("PreToolUse", f"echo '{json.dumps(said)}'; exit {code}"))
    assert (await box.call("say", text="hi")).is_error


async def test_a_hook_cannot_lift_a_deny_rule(box_of):
    allow = json.dumps({"hookSpecificOutput": {"hookEventName": "PreToolUse", "permissionDecision": "allow"}})
    box = box_of({**hooked("PreToolUse", f"echo '{allow}'"), "permissions": {"deny": ["Bash(touch:*)"]}})
    assert (await box.call("Bash", command="touch x")).is_error


async def test_a_hook_may_allow_what_would_be_asked(box_of, tmp_path):
    allow = json.dumps({"hookSpecificOutput": {"hookEventName": "PreToolUse", "permissionDecision": "allow"}})
    box = box_of(hooked("PreToolUse", f"echo '{allow}'", matcher="Bash"))
    result = await box.call("Bash", command="touch made")
    assert not result.is_error, result.text
    assert (tmp_path / "made").exists()


async def test_rewrites_are_chained_in_the_order_of_the_configuration_whatever_is_faster(box_of, tmp_path):
    def adds(letter: str, pause: str) -> str:
        program = (
            "import json,sys,time; time.sleep(%s); text = json.load(sys.stdin)['tool_input']['text']; "
            "print(json.dumps({'hookSpecificOutput': {'hookEventName': 'PreToolUse', 'updatedInput': {'text': text + '%s'}}}))"
        )
        return f'python3 -c "{program % (pause, letter)}"'

    for first, second in (("0.15", "0"), ("0", "0.15")):
        box = box_of(hooked("PreToolUse", adds("a", first), adds("b", second)))
        assert (await box.call("say", text=">")).text == "said >ab"


async def test_a_rewritten_input_is_checked_again(box_of):
    wrong = json.dumps({"hookSpecificOutput": {"hookEventName": "PreToolUse", "updatedInput": {"txet": 1}}})
    box = box_of(hooked("PreToolUse", f"echo '{wrong}'"))
    assert (await box.call("say", text="x")).text.startswith("InputValidationError")


async def test_an_allow_for_the_old_input_does_not_cover_a_rewritten_one(box_of, tmp_path):
    def allowing(payload: dict[str, Any]) -> dict[str, Any] | None:
        harmless = payload["tool_input"]["command"] == "touch harmless"
        return {"permissionDecision": "allow"} if harmless else None

    def rewriting(payload: dict[str, Any]) -> dict[str, Any]:
        return {"updatedInput": {"command": "touch other"}}

    hooks = [python_hook("PreToolUse", allowing), python_hook("PreToolUse", rewriting)]
    box = box_of({}, hooks=hooks)
    assert (await box.call("Bash", command="touch harmless")).is_error
    assert not (tmp_path / "other").exists()


async def test_matchers_are_exact_names_or_a_regular_expression(box_of, tmp_path):
    for matcher, fires in (
        ("say", True),
        ("Say|say", True),
        ("sa", False),
        ("^s.y$", True),
        ("", True),
        ("Read,say", True),
    ):
        (tmp_path / "fired").unlink(missing_ok=True)
        box = box_of(hooked("PreToolUse", f"touch {tmp_path}/fired", matcher=matcher))
        await box.call("say", text="x")
        assert (tmp_path / "fired").exists() is fires, matcher


async def test_an_if_rule_narrows_a_hook_to_the_calls_it_covers(box_of, tmp_path):
    box = box_of(
        {
            **hooked("PreToolUse", "echo stop >&2; exit 2", **{"if": "Bash(git push:*)"}),
            "permissions": {"allow": ["Bash(touch:*)"]},
        }
    )
    assert not (await box.call("Bash", command="touch a")).is_error
    assert "stop" in (await box.call("Bash", command="touch a && git push origin main")).text


@pytest.mark.parametrize("on_error", ["block", "warn"])
@pytest.mark.parametrize(
    "command", ["/no/such/script.sh", "kill -9 $$", "echo '{broken'", 'echo \'{"decision": "maybe"}\'', "sleep 30"]
)
async def test_a_hook_that_fails_means_what_on_error_says(box_of, command, on_error):
    box = box_of(hooked("PreToolUse", command, on_error=on_error, timeout=0.4))
    result = await box.call("say", text="x")
    assert result.is_error is (on_error == "block"), result.text
    if result.is_error:
        assert command in result.text
        assert "on_error" in result.text


async def test_a_guard_that_fails_blocks_by_default_and_names_itself(box_of):
    box = box_of(hooked("PreToolUse", "/no/such/guard"))
    result = await box.call("say", text="x")
    assert result.is_error
    assert "`/no/such/guard` could not start" in result.text


async def test_a_missing_script_of_an_interpreter_says_it_could_not_start(box_of):
    box = box_of(hooked("PreToolUse", "python3 ghost.py"))
    result = await box.call("say", text="x")
    assert result.is_error
    assert "could not start" in result.text
    assert "hooks.PreToolUse" in result.text


async def test_a_hook_that_hangs_is_ended_with_its_whole_tree(box_of, tmp_path):
    body = f"sleep 300 & echo $! > {tmp_path}/child; (setsid sleep 300 & echo $! > {tmp_path}/far); wait"
    box = box_of(hooked("PreToolUse", script(tmp_path, "slow.sh", body), timeout=0.6, on_error="warn"))
    result = await asyncio.wait_for(box.call("say", text="x"), 15)
    assert result.text == "said x"
    for name in ("child", "far"):
        pid = int((tmp_path / name).read_text())
        for _ in range(50):
            if not os.path.exists(f"/proc/{pid}") or "Z" in Path(f"/proc/{pid}/stat").read_text().split(")")[1][:3]:
                break
            await asyncio.sleep(0.05)
        else:
            pytest.fail(f"{name} {pid} is still alive")


async def test_an_odd_exit_code_is_shown_to_people_and_blocks_nothing(box_of):
    heard: list[str] = []
    box = box_of(hooked("PreToolUse", "echo careful >&2; exit 1"))

    async def listen(event: Any) -> None:
        if event.kind == "notice":
            heard.append(event.text)

    box.subscribe(listen)
    assert (await box.call("say", text="x")).text == "said x"
    await asyncio.sleep(0.05)
    assert heard == ["echo careful >&2; exit 1: exit code 1: careful"]


async def test_hooks_of_one_moment_run_side_by_side(box_of, tmp_path):
    wait = f"for i in $(seq 100); do [ -e {tmp_path}/m/%s ] && exit 0; sleep 0.05; done; exit 2"
    meet = f"mkdir -p {tmp_path}/m; touch {tmp_path}/m/%s; {wait}"
    box = box_of(hooked("PreToolUse", meet % ("a", "b"), meet % ("b", "a")))
    assert (await box.call("say", text="x")).text == "said x"


async def test_after_a_tool_ran_a_hook_may_add_to_its_result_or_replace_it(box_of):
    context = json.dumps({"hookSpecificOutput": {"hookEventName": "PostToolUse", "additionalContext": "mind the gap"}})
    box = box_of(hooked("PostToolUse", f"echo '{context}'"))
    assert (await box.call("say", text="x")).text == "said x\nmind the gap"
    replaced = json.dumps({"hookSpecificOutput": {"hookEventName": "PostToolUse", "updatedToolOutput": "hidden"}})
    box = box_of(hooked("PostToolUse", f"echo '{replaced}'"))
    assert (await box.call("say", text="x")).text == "hidden"
    box = box_of(hooked("PostToolUse", "echo 'lint failed' >&2; exit 2"))
    assert "lint failed" in (await box.call("say", text="x")).text


async def test_after_a_failure_its_own_event_fires_and_not_for_refused_calls(box_of, tmp_path):
    box = box_of(hooked("PostToolUseFailure", f"cat > {tmp_path}/failed.json; echo hint >&2; exit 2"))
    assert "hint" in (await box.call("broken")).text
    assert json.loads((tmp_path / "failed.json").read_text())["error"].startswith("broken failed")
    (tmp_path / "failed.json").unlink()
    await box.call("nosuch")
    await box.call("say", {"wrong": 1})
    assert not (tmp_path / "failed.json").exists()


async def test_a_permission_request_hook_answers_in_the_persons_place(box_of, tmp_path):
    yes = json.dumps({"hookSpecificOutput": {"hookEventName": "PermissionRequest", "decision": {"behavior": "allow"}}})
    box = box_of(hooked("PermissionRequest", f"echo '{yes}'"))
    assert not (await box.call("Bash", command="touch asked")).is_error
    no = json.dumps(
        {
            "hookSpecificOutput": {
                "hookEventName": "PermissionRequest",
                "decision": {"behavior": "deny", "message": "not here"},
            }
        }
    )
    box = box_of(hooked("PermissionRequest", f"echo '{no}'"))
    assert "not here" in (await box.call("Bash", command="touch other")).text


async def test_continue_false_stops_everything(box_of):
    halt = json.dumps({"continue": False, "stopReason": "enough"})
    box = box_of(hooked("PreToolUse", f"echo '{halt}'"))
    result = await box.call("say", text="x")
    assert result.is_error
    assert "enough" in result.text


BROKEN = {
    "hooks": {
        "PreToolUse": [{"hooks": [{"type": "command"}]}, {"hooks": [{"command": "echo no >&2; exit 2"}]}],
        "Nope": [],
    }
}


async def test_a_broken_hook_in_code_is_an_error(box_of):
    with pytest.raises(SettingsError, match=r"`command` is missing.*there is no such event"):
        box_of(BROKEN)


async def test_a_broken_hook_of_a_file_is_left_out_alone_and_one_that_may_block_is_an_error(box_of, tmp_path):
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "settings.json").write_text(json.dumps(BROKEN))
    box = box_of({}, load_settings=True)
    await box.call("say", text="x")
    assert [problem.partition(":")[0] for problem in box.hook_problems] == ["hooks.Nope"]
    with pytest.raises(SettingsError, match=r"PreToolUse\[0\]: `command` is missing"):
        box.settings.require_rules()
    assert (await box.call("say", text="x")).is_error


async def test_all_hooks_can_be_switched_off(box_of):
    box = box_of({**hooked("PreToolUse", "exit 2"), "disableAllHooks": True})
    assert (await box.call("say", text="x")).text == "said x"
