"""Hooks that answer oddly, leave things running or never began: each is heard, none hangs, and a guard never fails open."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from wieldy import Toolbox, tool

pytestmark = pytest.mark.asyncio

DENIAL = json.dumps({"decision": "block", "reason": "not today"})


@tool(read_only=True)
async def say(text: str) -> str:
    """Say it."""
    return f"said {text}"


@pytest_asyncio.fixture
async def guarded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Any]:
    """`guarded(command)`: a toolbox whose calls pass that hook."""
    monkeypatch.setenv("WIELDY_HOME", str(tmp_path / "home"))
    boxes: list[Toolbox] = []

    def make(command: str, **more: Any) -> Toolbox:
        entry = {"type": "command", "command": command, **more}
        boxes.append(Toolbox(tmp_path, settings={"hooks": {"PreToolUse": [{"hooks": [entry]}]}}, tools=[say]))
        return boxes[-1]

    yield make
    for box in boxes:
        await box.aclose()


@pytest.mark.parametrize("ending", [f"echo '{DENIAL}'", "echo not today >&2; exit 2"])
async def test_a_hook_has_ended_when_its_process_has_whatever_it_left_running(guarded, tmp_path, ending):
    box = guarded(f"sleep 319 & echo $! > {tmp_path}/left; {ending}", timeout=60)
    try:
        result = await asyncio.wait_for(box.call("say", text="x"), 20)
    finally:
        with contextlib.suppress(OSError, ValueError):
            os.kill(int((tmp_path / "left").read_text()), signal.SIGKILL)
    assert result.is_error
    assert "not today" in result.text


async def test_a_hook_that_speaks_at_length_before_it_listens_does_not_hang(guarded):
    box = guarded("yes | head -c 300000; cat > /dev/null", timeout=60)
    result = await asyncio.wait_for(box.call("say", text="x" * 300_000), 30)
    assert not result.is_error


async def test_a_hook_that_does_not_listen_at_all_is_no_trouble(guarded):
    assert (await guarded("exec < /dev/null; sleep 0.1").call("say", text="x" * 300_000)).is_error is False


@pytest.mark.parametrize(
    "said",
    [
        {"permissionDecision": ["deny"]},
        {"permissionDecision": {"why": "no"}},
        {"permissionDecision": True},
        {"permissionDecision": "DENY"},
        {"hookSpecificOutput": "deny"},
        {"hookSpecificOutput": {"permissionDecision": "block"}},
        {"hookSpecificOutput": {"hookEventName": "PostToolUse", "permissionDecision": "deny"}},
        {"hookSpecificOutput": {"updatedInput": "x"}},
    ],
)
async def test_an_answer_of_another_shape_is_an_error_that_blocks_and_says_how_to_go_on(guarded, said):
    box = guarded(f"echo '{json.dumps(said)}'")
    result = await box.call("say", text="x")
    assert result.is_error
    assert "answered" in result.text and '"on_error": "warn"' in result.text


async def test_an_answer_nested_beyond_all_measure_is_an_error_that_blocks(guarded):
    result = await guarded("yes '{\"a\":' | head -n 100000 | tr -d '\\n'").call("say", text="x")
    assert result.is_error
    assert "begins like JSON and is not" in result.text


async def test_a_denial_behind_lines_of_chatter_is_heard(guarded):
    pretty = json.dumps(
        {"hookSpecificOutput": {"permissionDecision": "deny", "permissionDecisionReason": "no"}}, indent=1
    )
    for words in (DENIAL, pretty):
        assert (await guarded(f"echo checking; echo; echo '{words}'").call("say", text="x")).is_error
    for harmless in ('{"level": "info"}', "{oops", "{}"):
        assert not (await guarded(f"echo checking; echo '{harmless}'").call("say", text="x")).is_error


async def test_the_reason_of_a_denial_is_told_with_exit_code_two_as_well(guarded):
    assert "not today" in (await guarded(f"echo '{DENIAL}'; exit 2").call("say", text="x")).text


@pytest.mark.parametrize("command", ["python3 ghost.py", "sh ./no/ghost.sh", "python3 -u ghost.py --all"])
async def test_a_missing_script_blocks_unless_on_error_says_otherwise(guarded, command):
    result = await guarded(command).call("say", text="x")
    assert result.is_error
    assert "could not start" in result.text and '"on_error": "warn"' in result.text
    assert not (await guarded(command, on_error="warn").call("say", text="x")).is_error


@pytest.mark.parametrize(
    "words", ["config.toml: No such file or directory", "python3: can't open file '/elsewhere/other.py': [Errno 2]"]
)
async def test_a_considered_no_that_speaks_of_a_missing_file_is_a_no(guarded, tmp_path, words):
    (tmp_path / "guard.sh").write_text(f"cat >&2 <<'END'\n{words}\nEND\nexit 2\n")
    assert (await guarded("sh guard.sh", on_error="warn").call("say", text="x")).is_error


@pytest.mark.parametrize(
    "command",
    [
        'printf \'{"decision": "block", "reason": "half \\\\ud83d"}\'',
        "printf 'half \\360\\237' >&2; exit 2",
    ],
)
async def test_half_a_character_in_an_answer_is_replaced(guarded, command):
    result = await guarded(command).call("say", text="x")
    assert "half \ufffd" in result.text
    result.text.encode("utf-8")


async def test_half_a_character_in_a_rewritten_input_is_replaced(guarded):
    rewrite = 'printf \'{"hookSpecificOutput": {"updatedInput": {"text": "half \\\\ud83d"}}}\''
    assert (await guarded(rewrite).call("say", text="x")).text == "said half \ufffd"


@pytest.mark.parametrize("ending", ["kill -SEGV $$", "kill -KILL $$", "exit 137", "exit 139", "sh -c 'kill -SEGV $$'"])
async def test_a_guard_that_is_killed_blocks(guarded, ending):
    assert (await guarded(ending, on_error="block").call("say", text="x")).is_error
    assert not (await guarded(ending, on_error="warn").call("say", text="x")).is_error


async def test_a_guard_that_crashes_blocks_where_the_settings_say_so(guarded):
    crash = "echo Traceback >&2; exit 1"
    result = await guarded(crash, on_error="block").call("say", text="x")
    assert result.is_error and "Traceback" in result.text
    assert not (await guarded(crash).call("say", text="x")).is_error


@pytest.mark.parametrize("on_error", ["block", "warn"])
@pytest.mark.parametrize(
    "command",
    [
        f"printf '\\357\\273\\277'; echo '{DENIAL}'",
        """printf '{"decision": "block", "reason": "'; head -c 3000000 /dev/zero | tr '\\0' x; printf '"}'""",
        """printf '{"decision": "block", "reason": "'; head -c 20000000 /dev/zero | tr '\\0' x; printf '"}'""",
        """echo '["deny"]'""",
        """echo '"deny"'""",
        """echo '{"decision": ["deny"]}'""",
        """echo '{"hookSpecificOutput": ["deny"]}'""",
        """echo '{"decision": "deny",'""",
    ],
)
async def test_a_refusal_in_an_odd_form_is_never_taken_for_consent(guarded, command, on_error):
    assert (await guarded(command, on_error=on_error).call("say", text="x")).is_error


@pytest.mark.parametrize("matcher", ["Task", "Task|KillBash", "^Task$", "KillBash"])
async def test_old_names_of_tools_match(matcher):
    from wieldy.policy.hooks.config import compile_matcher

    matches = compile_matcher(matcher)
    assert matches("Agent") == ("Task" in matcher)
    assert matches("KillShell") == ("KillBash" in matcher)
    assert not matches("Bash")
