from __future__ import annotations

import pytest

from wieldy.core.decision import Opinion
from wieldy.core.effects import NO_EFFECTS, Opaque, Runs
from wieldy.policy.permissions.modes import find_mode
from wieldy.policy.permissions.rules import Origin, parse
from wieldy.policy.permissions.ruleset import RuleSet


def test_a_tool_that_says_nothing_asks_and_one_that_touches_nothing_does_not(judge, plan) -> None:
    decision = judge().decide(plan("Deploy"))
    assert decision.behavior == "ask"
    assert decision.suggestions == ("Deploy",)
    assert judge().decide(plan("Clock", NO_EFFECTS, read_only=True)).behavior == "allow"
    own = plan("KillShell", NO_EFFECTS)
    own.tool.needs_permission = lambda input, effects: False
    assert judge().decide(own).behavior == "allow"


def test_a_call_that_runs_a_harmless_command_and_more_is_asked_about(judge, plan) -> None:
    assert judge().decide(plan("Bash", (Runs("ls"), Opaque()), {"command": "ls"})).behavior == "ask"


def test_what_a_foreign_server_says_of_itself_is_not_believed(judge, plan) -> None:
    innocent = plan("mcp__files__list", NO_EFFECTS, read_only=True)
    assert judge().decide(innocent).behavior == "ask"
    for rule in ("mcp__files", "mcp__files__*", "mcp__files__list", "mcp__files__l*"):
        assert judge(allow=[rule]).decide(innocent).behavior == "allow", rule
    assert judge(allow=["mcp__file"]).decide(innocent).behavior == "ask"
    assert judge(allow=["mcp__files"], deny=["mcp__*"]).decide(innocent).behavior == "deny"


@pytest.mark.parametrize("mode", ["default", "acceptEdits", "plan", "bypassPermissions", "dontAsk"])
def test_a_denied_tool_is_denied_in_every_mode_and_whatever_a_hook_says(judge, plan, mode: str) -> None:
    yes = (Opinion("hook", "allow", "fine by me"),)
    assert judge(deny=["Deploy"], allow=["Deploy"], mode=mode).decide(plan("Deploy"), yes).behavior == "deny"


def test_deny_beats_ask_beats_allow_in_whatever_file_each_is(judge, plan) -> None:
    assert judge(allow=["Deploy"]).decide(plan("Deploy")).behavior == "allow"
    assert judge(allow=["Deploy"], ask=["Deploy"]).decide(plan("Deploy")).behavior == "ask"
    assert judge(allow=["Deploy"], ask=["Deploy"], deny=["Dep*"]).decide(plan("Deploy")).behavior == "deny"
    assert judge(ask=["Deploy"], mode="bypassPermissions").decide(plan("Deploy")).behavior == "ask"


def test_the_reason_names_the_rule_its_file_and_its_line(judge, plan, root: str) -> None:
    decision = judge(deny=["Deploy"]).decide(plan("Deploy"))
    first = decision.reasons[0]
    assert (first.kind, first.rule, first.file, first.line) == ("rule", "Deploy", f"{root}/.wieldy/settings.json", 3)
    assert "settings.json:3" in decision.why


def test_hooks_can_allow_and_tighten_but_not_lift_a_rule(judge, plan) -> None:
    yes, no, hm = (Opinion("guard", b, "because") for b in ("allow", "deny", "ask"))
    assert judge().decide(plan("Deploy"), [yes]).behavior == "allow"
    assert judge(allow=["Deploy"]).decide(plan("Deploy"), [no]).behavior == "deny"
    assert judge(allow=["Deploy"]).decide(plan("Deploy"), [hm]).behavior == "ask"
    assert judge(mode="bypassPermissions").decide(plan("Deploy"), [hm]).behavior == "ask"
    assert judge(ask=["Deploy"]).decide(plan("Deploy"), [yes]).behavior == "ask"
    assert judge().decide(plan("Deploy"), [yes, no]).behavior == "deny"
    assert "guard: because" in judge().decide(plan("Deploy"), [no]).why


def test_a_tools_own_doubt_is_named_as_such(judge, plan) -> None:
    decision = judge(allow=["Deploy"]).decide(plan("Deploy"), [Opinion("Deploy", "ask", "production")])
    assert decision.behavior == "ask"
    assert decision.reasons[0].kind == "tool"


def test_dont_ask_turns_a_question_into_a_refusal_and_keeps_its_trail(judge, plan) -> None:
    decision = judge(mode="dontAsk").decide(plan("Deploy"))
    assert decision.behavior == "deny"
    assert decision.reasons[0].kind == "mode"
    assert any(reason.behavior == "ask" for reason in decision.reasons)
    assert judge(mode="dontAsk", allow=["Deploy"]).decide(plan("Deploy")).behavior == "allow"


def test_plan_mode_refuses_what_nobody_can_see_through(judge, plan) -> None:
    assert judge(mode="plan", allow=["Deploy"]).decide(plan("Deploy")).behavior == "deny"
    assert judge(mode="plan").decide(plan("Clock", NO_EFFECTS, read_only=True)).behavior == "allow"


@pytest.mark.parametrize(
    ("rule", "given", "hit"),
    [
        ("Query(mode:write*)", {"mode": "write-all"}, True),
        ("Query(mode:write*)", {"mode": "read"}, False),
        ("Query(mode:write*)", {}, False),
        ("Query(force:true)", {"force": True}, True),
        ("Query(limit:5)", {"limit": 5}, True),
        ("Query(mode:*)", {"mode": ["write"]}, False),
        ("Query(sql:a[1]*)", {"sql": "a[1] = 2"}, True),
        ("Query(sql:a[1]*)", {"sql": "a1"}, False),
    ],
)
def test_a_parameter_rule_looks_at_one_plain_value(judge, plan, rule: str, given: dict[str, object], hit: bool) -> None:
    behavior = judge(deny=[rule], allow=["Query"]).decide(plan("Query", input=given)).behavior
    assert behavior == ("deny" if hit else "allow")


def test_a_skill_rule_takes_further_words_only_where_it_says_so(judge, plan) -> None:
    for rule, skill, expected in (
        ("Skill(pdf)", "pdf", "allow"),
        ("Skill(pdf)", "pdf merge", "ask"),
        ("Skill(pdf *)", "pdf merge", "allow"),
        ("Skill(pdf *)", "pdfkit", "ask"),
    ):
        assert judge(allow=[rule]).decide(plan("Skill", input={"skill": skill})).behavior == expected, (rule, skill)


def test_an_agent_rule_looks_at_the_type(judge, plan) -> None:
    for named in ("agent_type", "subagent_type"):
        explore = plan("Agent", input={named: "explore", "prompt": "x"})
        assert judge().decide(explore).behavior == "allow", "what it does is judged call by call"
        assert judge(ask=["Agent(explore)"]).decide(explore).behavior == "ask"
        assert judge(ask=["Agent(review)"]).decide(explore).behavior == "allow"
        assert judge(deny=["Agent(ex*)"], allow=["Agent"]).decide(explore).behavior == "deny"


@pytest.mark.parametrize(
    ("rule", "url", "expected"),
    [
        ("domain:example.com", "https://example.com/a", "allow"),
        ("domain:example.com", "https://EXAMPLE.com:8443/a", "allow"),
        ("domain:example.com", "https://example.com./a", "allow"),
        ("domain:example.com", "https://www.example.com/", "ask"),
        ("domain:example.com", "https://example.com.evil.net/", "ask"),
        ("domain:example.com", "https://example.com@evil.net/", "ask"),
        ("domain:example.com", "https://evil.net/?q=example.com", "ask"),
        ("domain:example.com", "https://example.com\\@evil.net/", "ask"),
        ("domain:*.example.com", "https://a.b.example.com/", "allow"),
        ("domain:*.example.com", "https://example.com/", "ask"),
        ("domain:api-*.example.com", "https://api-eu.example.com/", "allow"),
        ("domain:api-*.example.com", "https://api-eu.x.example.com/", "ask"),
        ("domain:bücher.example", "https://xn--bcher-kva.example/", "allow"),
    ],
)
def test_a_domain_rule_covers(judge, called, rule: str, url: str, expected: str) -> None:
    assert judge(allow=[f"WebFetch({rule})"]).decide(called("WebFetch", url)).behavior == expected


def test_fetching_asks_and_offers_a_rule_for_that_host(judge, called) -> None:
    decision = judge().decide(called("WebFetch", "https://docs.python.org/3/"))
    assert decision.behavior == "ask"
    assert decision.suggestions == ("WebFetch(domain:docs.python.org)",)
    assert (
        judge(deny=["WebFetch(domain:*.evil.net)"], allow=["WebFetch"])
        .decide(called("WebFetch", "http://a.evil.net"))
        .behavior
        == "deny"
    )


def test_levels_and_lists_of_a_tool_come_from_settings(judge, plan, called, root: str) -> None:
    assert judge(tools={"Deploy": {"level": "safe"}}).decide(plan("Deploy")).behavior == "allow"
    assert (
        judge(tools={"Clock": {"level": "confirm"}}).decide(plan("Clock", NO_EFFECTS, read_only=True)).behavior == "ask"
    )
    assert judge(tools={"Read": {"level": "confirm"}}).decide(called("Read", f"{root}/a")).behavior == "ask"
    assert (
        judge(tools={"Read": {"level": "confirm"}}, allow=["Read(src/**)"])
        .decide(called("Read", f"{root}/src/a"))
        .behavior
        == "allow"
    )
    forbidden = judge(tools={"Deploy": {"level": "forbidden"}}, allow=["Deploy"], mode="bypassPermissions")
    assert forbidden.decide(plan("Deploy")).behavior == "deny"
    assert forbidden.removal_reason("Deploy") is not None
    lists = {"Deploy": {"allowlist": {"target": ["staging*"]}, "blocklist": {"target": ["*prod*"]}}}
    for target, expected in (("staging-1", "allow"), ("qa", "ask"), ("staging-prod", "deny")):
        assert judge(tools=lists).decide(plan("Deploy", input={"target": target})).behavior == expected, target
    assert judge(tools=lists).decide(plan("Deploy", input={})).behavior == "ask"


def test_a_bare_deny_takes_a_tool_from_what_is_offered_and_a_scoped_one_does_not(judge) -> None:
    policy = judge(deny=["Bash", "mcp__github", "WebFetch(domain:evil.net)", "Edit(.env)"])
    assert str(policy.removal_reason("Bash")).startswith("deny: rule `Bash`")
    assert policy.removal_reason("mcp__github__issue") is not None
    for name in ("WebFetch", "Edit", "Read", "mcp__gitlab__issue"):
        assert policy.removal_reason(name) is None, name
    assert judge(deny=["Bash(*)"]).removal_reason("Bash") is not None
    assert judge(deny=["*"]).removal_reason("Anything") is not None
    assert judge(deny=["Edit"]).removal_reason("Write") is not None


def test_with_a_broken_settings_file_nothing_is_allowed_unasked(judge, plan, called, root: str) -> None:
    policy = judge(allow=["Deploy"], mode="bypassPermissions")
    policy.replace_rules(RuleSet(policy.rules.rules, broken="the settings file x.json:2:5: expected `,`"))
    for one in (plan("Deploy"), called("Read", f"{root}/a")):
        decision = policy.decide(one)
        assert decision.behavior == "ask"
        assert "x.json:2:5" in decision.why


def test_a_grant_holds_until_the_session_ends_and_survives_new_settings(judge, plan) -> None:
    policy = judge()
    policy.grant(parse("Deploy", "allow", Origin("session")))
    assert policy.decide(plan("Deploy")).behavior == "allow"
    policy.replace_rules(RuleSet())
    assert policy.decide(plan("Deploy")).behavior == "allow"
    policy.mode = "plan"
    assert policy.decide(plan("Deploy")).behavior == "deny"


def test_modes_are_named_and_an_unknown_one_is_refused_with_a_suggestion() -> None:
    assert find_mode("manual").name == "default"
    with pytest.raises(ValueError, match="did you mean `acceptEdits`"):
        find_mode("acceptedits")
