from __future__ import annotations

import pytest

from wieldy.core.decision import Behavior
from wieldy.policy.permissions.rules import RuleError, parse, split_list, unknown_tool


@pytest.mark.parametrize(
    ("text", "behavior", "kind", "subject"),
    [
        ("Bash", "allow", "tool", "Bash"),
        ("Bash(*)", "allow", "command", "Bash"),
        ("Bash(npm run test)", "allow", "command", "Bash"),
        ("Bash(npm run test:*)", "allow", "command", "Bash"),
        ("Bash(git * main)", "allow", "command", "Bash"),
        ("Bash(echo (a))", "allow", "command", "Bash"),
        ("Bash(run_in_background:true)", "deny", "parameter", "Bash"),
        ("Bash(deploy:prod)", "deny", "command", "Bash"),
        ("Bash(timeout:*)", "deny", "command", "Bash"),
        ("Bash(timeout:*)", "allow", "command", "Bash"),
        ("Read(./src/**)", "allow", "path", "Read"),
        ("Edit(/docs/**)", "deny", "path", "Edit"),
        ("Read(~/.ssh/**)", "deny", "path", "Read"),
        ("Read(//etc/**)", "deny", "path", "Read"),
        ("WebFetch(domain:example.com)", "allow", "domain", "WebFetch"),
        ("mcp__github", "allow", "mcp", "mcp__github"),
        ("mcp__github__get_issue", "allow", "mcp", "mcp__github__get_issue"),
        ("mcp__github__*", "allow", "mcp", "mcp__github__*"),
        ("mcp__github__get_*", "allow", "mcp", "mcp__github__get_*"),
        ("mcp__*", "deny", "mcp", "mcp__*"),
        ("*", "ask", "tool", "*"),
        ("Agent(explore)", "allow", "choice", "Agent"),
        ("Task(explore)", "allow", "choice", "Agent"),
        ("Skill(pdf *)", "allow", "choice", "Skill"),
        ("mcp__db__query(mode:write*)", "deny", "parameter", "mcp__db__query"),
        ("Agent(model:opus)", "deny", "parameter", "Agent"),
    ],
)
def test_every_form_is_read_and_printed_as_it_was_written(
    text: str, behavior: Behavior, kind: str, subject: str
) -> None:
    rule = parse(text, behavior)
    assert (rule.kind, rule.subject) == (kind, subject)
    assert str(rule) == text


@pytest.mark.parametrize(
    ("text", "behavior", "message"),
    [
        ("", "allow", "empty"),
        ("Bash(", "allow", "no closing parenthesis"),
        ("Bash(ls", "allow", "did you mean `Bash(ls)`"),
        ("Bash()", "allow", "did you mean `Bash`"),
        ("Bash(:*)", "allow", "names no command"),
        ("(ls)", "allow", "not a tool name"),
        ("git commit -m x", "allow", "not a tool name"),
        ("Bash(cat <<EOF\nx\nEOF)", "allow", "one line"),
        ("*", "allow", "only after `mcp__server__`"),
        ("mcp__*", "allow", "only after `mcp__server__`"),
        ("mcp__*__get", "allow", "only after `mcp__server__`"),
        ("Ba*(x)", "deny", "takes no specifier"),
        ("Write(src/**)", "allow", "did you mean `Edit(src/**)`"),
        ("Glob(src/**)", "allow", "did you mean `Read(src/**)`"),
        ("Read(~bob/x)", "deny", "another user's home"),
        ("Read(!keep)", "allow", "did you mean `Read(keep)`"),
        ("WebFetch(https://example.com/a)", "allow", "did you mean `WebFetch(domain:example.com)`"),
        ("WebFetch(domain:https://example.com)", "allow", "did you mean `WebFetch(domain:example.com)`"),
        ("WebSearch(python)", "allow", "did you mean `WebSearch`"),
        ("mcp__db__query(mode:read)", "allow", "only deny and ask"),
        ("mcp__db__query(command:x)", "deny", "rules of its own kind"),
        ("Weather(Berlin)", "deny", "parameter:value"),
        ("Bash(*) when cwd(x)", "allow", "`when cwd(x)` follows the rule `Bash(*)`"),
        ("Read(src/**) when cwd(x)", "deny", "`when cwd(x)` follows the rule"),
        ("Bash(*) when sandboxed", "allow", "`when sandboxed` follows the rule"),
        ("Bash when sandboxed", "allow", "not a tool name"),
    ],
)
def test_a_rule_that_cannot_work_is_refused_with_a_way_on(text: str, behavior: Behavior, message: str) -> None:
    with pytest.raises(RuleError) as caught:
        parse(text, behavior)
    assert message in str(caught.value)


def test_a_path_rule_for_another_tool_forbids_what_it_must_mean_and_says_so() -> None:
    rule = parse("Write(.env)", "deny")
    assert (rule.kind, rule.subject) == ("path", "Edit")
    assert rule.warning is not None and "Edit(.env)" in rule.warning


@pytest.mark.parametrize("behavior", ["deny", "ask", "allow"])
def test_a_rule_for_a_tool_that_does_not_exist_is_doubted(behavior) -> None:
    for slip in ("bash", "BASH", "Bassh", "Bahs", "Bash-"):
        warning = unknown_tool(parse(slip, behavior))
        assert warning is not None and "did you mean `Bash`" in warning
    assert "`Read`" in str(unknown_tool(parse("Raed", behavior)))
    assert "`BrowserClick`" in str(unknown_tool(parse("BrowserClik", behavior)))
    for name in ("Shell", "Terminal", "Deploy"):
        assert "does nothing unless a program adds such a tool" in str(unknown_tool(parse(name, behavior)))
        assert unknown_tool(parse(name, behavior), {name}) is None
    for name in ("Bash", "mcp__x", "Task", "KillShell", "mcp__server__*"):
        assert unknown_tool(parse(name, behavior)) is None


def test_a_misspelled_tool_with_a_specifier_is_named_in_the_error() -> None:
    with pytest.raises(RuleError, match=r"there is no tool `Raed`; did you mean `Read\(x\)`"):
        parse("Raed(x)", "deny")


def test_an_absolute_path_written_with_one_slash_is_doubted() -> None:
    warning = parse("Read(/etc/passwd)", "deny").warning
    assert warning is not None and "//etc/passwd" in warning


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Bash(gh:*),Bash(cat:*)", ["Bash(gh:*)", "Bash(cat:*)"]),
        ("Bash(gh:*) Bash(cat a b)", ["Bash(gh:*)", "Bash(cat a b)"]),
        ("Read, Edit(src/**) ,Bash", ["Read", "Edit(src/**)", "Bash"]),
        ("Bash(echo a, b)", ["Bash(echo a, b)"]),
        ("Bash(echo (x) y),Read", ["Bash(echo (x) y)", "Read"]),
        ("Bash(gh", ["Bash(gh"]),
        ("Bash(*) when cwd(x)", ["Bash(*) when cwd(x)"]),
        ("Bash(*) when sandboxed Read", ["Bash(*) when sandboxed", "Read"]),
        ("Bash when sandboxed,Read", ["Bash when sandboxed", "Read"]),
        ("  ", []),
    ],
)
def test_a_list_is_split_between_rules_and_never_inside_one(text: str, expected: list[str]) -> None:
    assert split_list(text) == expected


def test_an_unclosed_list_is_an_error_and_never_the_bare_tool() -> None:
    (text,) = split_list("Bash(gh:*,Read")
    with pytest.raises(RuleError):
        parse(text, "allow")
