"""`gh` that only asks: one consent for the host covers it."""

from __future__ import annotations

import pytest

READING = [
    "gh pr view 12",
    "gh pr view 12 --json title,body -q .title",
    "gh pr diff 12 --name-only",
    "gh pr list --state open -L 5",
    "gh pr checks 12 | head",
    "gh issue view 3 --comments -R o/r",
    "gh run view 1 --log-failed",
    "gh search prs foo --limit 3",
    "gh release view v1",
    "gh repo view o/r",
    "gh api repos/o/r/pulls/1 --jq .title",
    "gh api graphql -f query='query { viewer { login } }'",
]
WRITING = [
    "gh pr merge 12",
    "gh pr view 12 --web",
    "gh issue create -t x",
    "gh api repos/o/r -X POST",
    "gh api repos/o/r -f a=b",
    "gh api repos/o/r --input f",
    "gh api graphql -f query='mutation { x }'",
    "gh api graphql -F query=@file",
    "gh release download v1",
    'gh pr view "$n"',
]


@pytest.mark.parametrize("command", READING)
def test_one_consent_for_the_host_covers_what_only_asks(judge, called, command: str) -> None:
    decision = judge().decide(called("Bash", command))
    assert (decision.behavior, decision.suggestions) == ("ask", ("WebFetch(domain:github.com)",))
    assert judge(allow=["WebFetch(domain:github.com)"]).decide(called("Bash", command)).behavior == "allow"
    assert judge(deny=["WebFetch(domain:github.com)"]).decide(called("Bash", command)).behavior == "deny"


@pytest.mark.parametrize("command", WRITING)
def test_what_may_change_something_is_asked_about(judge, called, command: str) -> None:
    assert judge(allow=["WebFetch(domain:github.com)"]).decide(called("Bash", command)).behavior == "ask"


@pytest.mark.parametrize(
    "command",
    [
        "gh pr view -R git.example.com/o/r 1",
        "gh pr view https://git.example.com/o/r/pull/1",
        "gh api x --hostname git.example.com",
    ],
)
def test_another_host_needs_its_own_consent(judge, called, command: str) -> None:
    assert judge(allow=["WebFetch(domain:github.com)"]).decide(called("Bash", command)).behavior == "ask"
    assert judge(allow=["WebFetch(domain:git.example.com)"]).decide(called("Bash", command)).behavior == "allow"
