"""A subagent can never do what its parent may not: whatever the rules, the modes, its file, and how far down it is."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.laws.test_permission_rules import WORLD, made_calls, made_rules, modes, opinions

from wieldy.agent.subagents import (
    MODES_BY_STRICTNESS,
    FilteredCatalog,
    StrictestPolicy,
)
from wieldy.core.call import PlannedCall
from wieldy.core.catalog import Catalog
from wieldy.core.decision import STRICTNESS, Decision, Opinion
from wieldy.core.tool import Tool
from wieldy.policy.permissions.decide import Policy
from wieldy.policy.permissions.rules import Rule
from wieldy.policy.permissions.ruleset import RuleSet
from wieldy.tools import builtin_tool
from wieldy.tools.subagents import AgentDefinition, SubagentTask

QUICK = settings(max_examples=150, deadline=None)

TOOLS = ["Read", "Grep", "Bash", "Write", "Edit", "Agent", "Architect", "AskUser", "ExitPlan", "mcp__db__query"]
PATTERNS = st.lists(st.sampled_from([*TOOLS, "*", "mcp__*", "mcp__db__*", "Nowhere", "W*"]), max_size=4).map(tuple)
lists = st.one_of(st.none(), PATTERNS)
kinds = st.builds(
    AgentDefinition,
    name=st.just("kind"),
    description=st.just("d"),
    prompt=st.just("p"),
    origin=st.sampled_from(["built-in", "user", "project"]),
    tools=lists,
    disallowed_tools=PATTERNS,
    mode=st.one_of(st.none(), modes),
)
tasks = st.builds(SubagentTask, definition=kinds, prompt=st.just("p"), tools=lists)


def strictness(decision: Decision) -> int:
    return STRICTNESS[decision.behavior]


@QUICK
@given(
    rules=st.lists(made_rules(), max_size=6),
    mode=modes,
    line=st.lists(kinds, min_size=1, max_size=3),
    call=made_calls(),
    said=opinions,
)
def test_every_decision_is_at_least_as_strict_as_the_parents(
    rules: list[Rule], mode: str, line: list[AgentDefinition], call: PlannedCall, said: Sequence[Opinion]
) -> None:
    policy = Policy(RuleSet(tuple(rules)), paths=WORLD, mode=mode)
    judge = StrictestPolicy(policy)
    above = policy.decide(call, said)
    assert strictness(judge.decide(call, said)) == strictness(above)
    for kind in line:
        judge = judge.derive(kind.mode)
        here = judge.decide(call, said)
        assert strictness(here) >= strictness(above)
        if kind.mode is not None:
            assert strictness(here) >= strictness(policy.derive(kind.mode).decide(call, said))
            assert MODES_BY_STRICTNESS.index(judge.mode) <= MODES_BY_STRICTNESS.index(policy.mode)
        above = here


@QUICK
@given(
    rules=st.lists(made_rules(), max_size=4),
    more=st.lists(made_rules(), min_size=1, max_size=3),
    mode=modes,
    later=modes,
    kind=kinds,
    call=made_calls(),
)
def test_rules_and_modes_that_come_later_hold_at_once(
    rules: list[Rule], more: list[Rule], mode: str, later: str, kind: AgentDefinition, call: PlannedCall
) -> None:
    policy = Policy(RuleSet(tuple(rules)), paths=WORLD, mode=mode)
    judge = StrictestPolicy(policy).derive(kind.mode)
    judge.decide(call, ())
    policy.mode = later
    policy.grant(*more)
    assert strictness(judge.decide(call, ())) >= strictness(policy.decide(call, ()))


@QUICK
@given(mode=modes, kind=kinds, call=made_calls())
def test_a_judge_that_stands_in_for_the_policy_is_never_passed_over(
    mode: str, kind: AgentDefinition, call: PlannedCall
) -> None:
    class Never:
        def decide(self, plan: PlannedCall, opinions: Sequence[Opinion]) -> Decision:
            return Decision("deny", ())

    policy = Policy(RuleSet(()), paths=WORLD, mode=mode)
    judge = StrictestPolicy(policy, judge=Never()).derive(kind.mode)
    assert judge.decide(call, ()).behavior == "deny"


def catalog() -> Catalog:
    found = Catalog()
    for name in TOOLS:
        like = builtin_tool(name)
        group = {} if like is None or like.group is None else {"group": like.group}
        one = Tool.from_schema(name, "A tool.", {"type": "object", "properties": {}}, lambda input: "x", **group)
        found.add(one)
    return found


ALL = catalog()


@QUICK
@given(line=st.lists(st.tuples(tasks, st.booleans()), min_size=1, max_size=3))
def test_an_agent_has_only_tools_that_its_parent_has_and_its_kind_names(line: list[tuple[SubagentTask, bool]]) -> None:
    above: Catalog = ALL
    for task, may_start in line:
        here = FilteredCatalog(above, task, may_start=may_start)
        names = set(here)
        assert names <= set(above)
        assert not names & {"AskUser", "ExitPlan"}
        assert may_start or not names & {"Agent", "Architect"}
        assert names == {name for name in TOOLS if here.find(name) is not None} == {n for n in TOOLS if n in here}
        for wanted in (task.definition.tools, task.tools):
            if wanted is not None and "*" not in "".join(wanted):
                assert names <= set(wanted)
        above = here
