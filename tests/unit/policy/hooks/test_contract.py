"""Every event × every way a hook can end × what `on_error` says: the code does what the documented table says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.unit.policy.hooks.contract import EXITS, HookExit, meaning, tables

from wieldy.policy.hooks.config import Hook, compile_matcher, parse_hooks
from wieldy.policy.hooks.events import HOOK_EVENTS
from wieldy.policy.hooks.lint import lint_hooks
from wieldy.policy.hooks.reply import HookReply, combine, interpret_output

DOCS = Path(__file__).parents[4] / "docs" / "hooks.md"


def hook(event: str, on_error: str) -> Hook:
    return Hook(event, "guard.sh", "guard.sh", compile_matcher(""), on_error=on_error)  # type: ignore[arg-type]


def observed(reply: HookReply) -> str:
    """What a reply makes happen, in the table's words."""
    if reply.behavior is not None:
        return {"deny": "block", "allow": "allow", "ask": "ask"}[reply.behavior]
    if reply.context:
        return "add text"
    return "show" if reply.message else "go on"


@pytest.mark.parametrize("on_error", ["block", "warn"])
@pytest.mark.parametrize("exit", EXITS, ids=lambda exit: exit.name)
@pytest.mark.parametrize("event", HOOK_EVENTS)
def test_an_ending_means_what_the_table_says(event: str, exit: HookExit, on_error: str):
    expected = meaning(exit, event)
    if expected == "by on_error":
        expected = "block" if on_error == "block" else "show"
    assert observed(interpret_output(hook(event, on_error), exit.output)) == expected


def test_a_failure_that_blocks_names_the_hook_and_how_to_switch_it_off():
    for exit in EXITS:
        reply = interpret_output(hook("PreToolUse", "block"), exit.output)
        if meaning(exit, "PreToolUse") == "by on_error":
            assert "`guard.sh`" in reply.reason
            assert '"on_error": "warn"' in reply.reason


def test_the_docs_show_the_table_as_it_is():
    text = DOCS.read_text(encoding="utf-8")
    shown = re.search(r"<!-- contract -->\n(.*?)<!-- end -->", text, re.DOTALL)
    assert shown is not None
    assert shown[1].strip() == "\n".join(tables()).strip(), (
        "run `python -m tests.unit.policy.hooks.contract` and paste its output"
    )


def test_guards_block_by_default_and_others_warn():
    section = {event: [{"hooks": [{"command": "x"}]}] for event in HOOK_EVENTS}
    hooks, problems = parse_hooks(section)
    assert problems == []
    assert {one.event: one.on_error for one in hooks} == {
        event: "block" if kind.fails_closed else "warn" for event, kind in HOOK_EVENTS.items()
    }


def test_the_order_of_replies_is_that_of_the_configuration_and_the_strictest_wins():
    allow = HookReply("a", behavior="allow", updated_input={"n": 1}, context=("one",))
    deny = HookReply("b", behavior="deny", reason="no", context=("two",))
    ask = HookReply("c", behavior="ask", updated_input={"n": 2})
    combined = combine([allow, deny, ask])
    assert combined.behavior == "deny"
    assert combined.blocked == "b: no"
    assert combined.updated_input == {"n": 2}
    assert combined.context == ("one", "two")
    assert combine([allow, ask]).behavior == "ask"
    assert combine([]).behavior is None


def test_identical_hooks_of_one_event_run_once():
    same = {"matcher": "Bash", "hooks": [{"command": "x"}, {"command": "x"}]}
    hooks, _ = parse_hooks({"PreToolUse": [same, same], "PostToolUse": [same]})
    assert [one.event for one in hooks] == ["PreToolUse", "PostToolUse"]


@pytest.mark.parametrize(
    "section",
    [
        [],
        {"PreToolUse": "x"},
        {"PreToolUse": [{"hooks": "x"}]},
        {"PreToolUse": [{"hooks": [{"type": "http", "url": "x"}]}]},
        {"PreToolUse": [{"hooks": [{"command": "x", "timeout": -1}]}]},
        {"PreToolUse": [{"hooks": [{"command": "x", "on_error": "explode"}]}]},
        {"PreToolUse": [{"hooks": [{"command": "x", "if": "Bash(("}]}]},
        {"PreToolUse": [{"hooks": [{"command": "x", "if": ["Bash(ls)"]}]}]},
        {"PreToolUse": [{"hooks": [{"command": "x", "args": "a b"}]}]},
        {"PreToolUse": [{"matcher": "(", "hooks": [{"command": "x"}]}]},
        {"PreToolUse": [{"matcher": ["Bash"], "hooks": [{"command": "x"}]}]},
        {"PreToolUse": [{"mather": "Bash", "hooks": [{"command": "x"}]}]},
        {"PreToolUse": [{"hooks": [{"command": "x", "on_eror": "block"}]}]},
        {"PreToolUse": [{"hooks": [{"command": "x", "timout": 3}]}]},
    ],
)
def test_what_is_wrong_with_a_hook_is_said_and_the_hook_left_out(section):
    hooks, problems = parse_hooks(section)
    assert hooks == []
    assert len(problems) == 1


def test_keys_of_other_programs_are_no_mistake():
    entry = {"type": "command", "command": "x", "async": True, "once": True, "statusMessage": "…", "asyncRewake": True}
    hooks, problems = parse_hooks({"PreToolUse": [{"hooks": [entry], "description": "…"}]})
    assert (len(hooks), problems) == (1, [])


def test_a_matcher_that_is_no_regular_expression_is_refused():
    with pytest.raises(ValueError, match="no regular expression"):
        compile_matcher("(")


def test_the_linter_names_what_can_never_work(tmp_path):
    (tmp_path / "there.py").write_text("")
    section = {
        "PreToolUse": [
            {"matcher": "Bahs", "hooks": [{"command": "true"}]},
            {"matcher": "^Zz", "hooks": [{"command": "true"}]},
            {"matcher": "Bash|mcp__x__y", "hooks": [{"command": "python3 ghost.py"}, {"command": "python3 there.py"}]},
            {"hooks": [{"command": "./missing.sh"}, {"command": "$HOME/x.sh"}, {"command": "no-such-program-here"}]},
        ],
        "Stop": [{"matcher": "Bash", "hooks": [{"command": "true"}]}],
    }
    hooks, _ = parse_hooks(section)
    lines = list(lint_hooks(hooks, {"Bash", "Read"}, str(tmp_path)))
    named = [line.split("`")[1] for line in lines]
    assert named == ["true", "true", "python3 ghost.py", "./missing.sh", "no-such-program-here", "true"]
    assert "no tool Bahs" in lines[0]
    assert "ghost.py does not exist" in lines[2]
