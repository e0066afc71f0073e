from __future__ import annotations

import json
from pathlib import Path

from wieldy.core.call import PlannedCall
from wieldy.core.decision import Behavior
from wieldy.core.effects import NO_EFFECTS
from wieldy.core.text import describe_invisible, escape_invisible
from wieldy.policy.permissions.explain import check_examples, explain, format_rules, replay, rules_as_json
from wieldy.policy.permissions.rules import Examples, Origin, parse
from wieldy.policy.permissions.ruleset import RuleSet


def test_an_explanation_names_every_command_its_effects_the_rule_and_the_line(judge, called, root: str) -> None:
    policy = judge(deny=["Bash(rm:*)"])
    explanation = explain(policy, called("Bash", "ls | xargs rm && cat a > b"))
    assert explanation.decision.behavior == "deny"
    assert [part.text for part in explanation.parts] == ["ls", "xargs rm", "cat a"]
    assert explanation.parts[1].via == ("xargs",)
    assert set(explanation.parts[2].effects) == {f"reads {root}/a", f"writes {root}/b"}
    text = "\n".join(explanation.lines())
    assert text.startswith("DENY Bash")
    assert f"rule `Bash(rm:*)` for `xargs rm` ({root}/.wieldy/settings.json:3)" in text
    data = json.loads(json.dumps(explanation.as_json()))
    assert data["behavior"] == "deny"
    assert data["reasons"][0] == {
        "kind": "rule",
        "behavior": "deny",
        "text": "rule `Bash(rm:*)`",
        "rule": "Bash(rm:*)",
        "file": f"{root}/.wieldy/settings.json",
        "line": 3,
        "part": "xargs rm",
    }
    assert [part["read_only"] for part in data["parts"]] == [True, False, False]


def test_an_explanation_offers_the_rule_that_would_help(judge, called) -> None:
    explanation = explain(judge(), called("Bash", "npm run test"))
    assert explanation.lines()[-1] == "  to allow it: wieldy permissions allow 'Bash(npm run test:*)'"


def test_an_explanation_of_a_tool_without_commands_shows_its_effects(judge, called, plan, root: str) -> None:
    assert f"  effect   writes {root}/a" in explain(judge(), called("Write", f"{root}/a")).lines()
    assert explain(judge(), plan("Clock", NO_EFFECTS, read_only=True)).effects == ()
    assert explain(judge(), plan("Deploy")).effects == ("does what is not known in advance",)


def test_hidden_characters_are_shown(judge, called) -> None:
    text = "\n".join(explain(judge(), called("Bash", "echo a\u202eb" + " " * 90 + "; make")).lines())
    assert "\u202e" not in text and "<U+202E>" in text
    assert "blanks>" in escape_invisible("a" + " " * 90 + "b")
    assert describe_invisible("a" + " " * 90 + "; rm b") is not None
    assert describe_invisible("cat <<E\n" + " " * 90 + "deep\nE") is None
    assert describe_invisible("git commit -m 'naïve Привет 你好'") is None
    assert describe_invisible("echo a\tb\nc") is None


def test_rules_are_listed_strictest_first_with_where_they_are_written() -> None:
    rules = [
        parse("Bash(ls)", "allow", Origin("user", "/u/settings.json", 4)),
        parse("Bash(rm:*)", "deny", Origin("project", "/p/settings.json", 9)),
        parse("Read", "ask", Origin("code")),
    ]
    assert [row["behavior"] for row in rules_as_json(rules)] == ["deny", "ask", "allow"]
    assert format_rules(rules) == [
        "deny   Bash(rm:*)  project  /p/settings.json:9",
        "ask    Read        code",
        "allow  Bash(ls)    user     /u/settings.json:4",
    ]
    assert format_rules([]) == []


def test_examples_can_be_tried_again_at_any_time(judge) -> None:
    policy = judge()
    good = parse("Bash(git push:*)", "deny", examples=Examples(("git push -f",), ("git pull",)))
    bad = parse("Read(src/**)", "deny", examples=Examples(("a/b/src/x", "docs/x"), ("~/x",)))
    host = parse("WebFetch(domain:*.a.org)", "deny", examples=Examples(("https://x.a.org/1",), ("https://a.org",)))
    policy.replace_rules(RuleSet((good, bad, host, parse("Bash", "ask"))))
    first, second, third = check_examples(policy)
    assert (first.examples, first.failures) == (2, ())
    assert second.failures == ("should match `docs/x` and does not",)
    assert third.failures == ()


def test_a_replay_tells_only_what_would_come_out_differently(judge, called, root: str) -> None:
    past: list[tuple[PlannedCall, Behavior]] = [
        (called("Bash", "make"), "allow"),
        (called("Bash", "ls"), "allow"),
        (called("Write", f"{root}/a"), "ask"),
        (called("Read", f"{root}/.env"), "allow"),
    ]
    policy = judge(allow=["Edit(/a)"], deny=["Read(.env)"])
    changes = list(replay(policy, [(plan, before, ()) for plan, before in past]))
    assert [(change.before, change.now.behavior, change.widened) for change in changes] == [
        ("allow", "ask", False),
        ("ask", "allow", True),
        ("allow", "deny", False),
    ]


def test_explaining_runs_nothing(judge, called, root: str) -> None:
    explain(judge(mode="bypassPermissions"), called("Bash", f"touch {root}/made; echo x > {root}/made2"))
    assert list(Path(root).iterdir()) == []
