"""What holds for every set of rules: deny never widens, order never matters, a rule prints as it was written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from wieldy.core.call import PlannedCall, ToolCall
from wieldy.core.decision import STRICTNESS, Behavior, Decision, Opinion
from wieldy.core.effects import NO_EFFECTS, UNKNOWN_EFFECTS, Effects, Fetches, Reads, Runs, Writes
from wieldy.core.tool import Tool
from wieldy.policy.permissions.decide import Policy
from wieldy.policy.permissions.modes import MODES
from wieldy.policy.permissions.paths import PathResolver
from wieldy.policy.permissions.protected import ProtectedFolders
from wieldy.policy.permissions.rules import Origin, Rule, RuleError, parse, split_list
from wieldy.policy.permissions.ruleset import RuleSet

ROOT, HOME = "/w/project", "/home/me"
WORLD = PathResolver(
    (ROOT,), home=HOME, real=lambda path: path, is_folder=lambda path: path == ROOT, folds_case=lambda path: False
)
QUICK = settings(max_examples=200, deadline=None)

TEXTS = [
    "Bash",
    "Bash(ls:*)",
    "Bash(git push:*)",
    "Bash(git *)",
    "Bash(* main)",
    "Bash(rm x)",
    "Read",
    "Edit",
    "Write",
    "Read(src/**)",
    "Edit(src/**)",
    "Edit(/src/a.py)",
    "Read(.env)",
    "Read(~/**)",
    "Edit(//tmp/**)",
    "WebFetch",
    "WebFetch(domain:example.com)",
    "WebFetch(domain:*.example.com)",
    "mcp__db",
    "mcp__db__*",
    "mcp__db__query",
    "Agent(explore)",
    "Deploy",
]
STRICT_ONLY = ["*", "mcp__*", "Deploy(target:prod*)", "B*"]
COMMANDS = [
    "ls -la",
    "git push origin main",
    "git status",
    "rm x",
    "make",
    "echo x > src/a.py",
    "cat .env",
    "rm -rf ~",
    "( ls",
]
FILES = ["src/a.py", ".env", "b.txt", ".git/config", "../../home/me/x", "../../tmp/y"]

behaviors: st.SearchStrategy[Behavior] = st.sampled_from(("allow", "ask", "deny"))


@st.composite
def made_rules(draw: st.DrawFn) -> Rule:
    behavior = draw(behaviors)
    text = draw(st.sampled_from(TEXTS if behavior == "allow" else TEXTS + STRICT_ONLY))
    return parse(text, behavior, Origin("user", "s.json", draw(st.integers(1, 9)), ROOT))


@st.composite
def made_calls(draw: st.DrawFn) -> PlannedCall:
    name = draw(
        st.sampled_from(["Bash", "Read", "Grep", "Write", "Edit", "WebFetch", "mcp__db__query", "Agent", "Deploy"])
    )
    path = f"{ROOT}/{draw(st.sampled_from(FILES))}"
    effects: Effects = UNKNOWN_EFFECTS
    input: dict[str, object] = {}
    if name == "Bash":
        command = draw(st.lists(st.sampled_from(COMMANDS), min_size=1, max_size=3).map(" && ".join))
        effects, input = (Runs(command),), {"command": command}
    elif name in ("Read", "Grep"):
        effects = (Reads(path),)
    elif name in ("Write", "Edit"):
        effects = (Writes(path),)
    elif name == "WebFetch":
        effects = (Fetches(draw(st.sampled_from(["https://example.com/a", "http://a.example.com", "x:y"]))),)
    elif name == "Agent":
        input = {"subagent_type": draw(st.sampled_from(["explore", "review"]))}
    elif name == "Deploy":
        input = {"target": draw(st.sampled_from(["prod-1", "qa"]))}
    return called(name, effects, input)


def called(name: str, effects: Effects, input: dict[str, object] | None = None) -> PlannedCall:
    tool = Tool()
    tool.name = name
    tool.read_only = name in ("Read", "Grep", "WebFetch")
    return PlannedCall(ToolCall("1", name, input or {}), tool, dict(input or {}), None, effects)


opinions = st.lists(
    st.builds(Opinion, st.sampled_from(["a", "b", "Deploy"]), behaviors, st.sampled_from(["x", "y"])), max_size=3
)
modes = st.sampled_from(sorted(MODES))


def decided(rules: Sequence[Rule], mode: str, call: PlannedCall, voices: Sequence[Opinion] = ()) -> Decision:
    return Policy(RuleSet(tuple(rules)), paths=WORLD, mode=mode).decide(call, voices)


def strictness(decision: Decision) -> int:
    return STRICTNESS[decision.behavior]


@QUICK
@given(
    rules=st.lists(made_rules(), max_size=6), text=st.sampled_from(TEXTS + STRICT_ONLY), mode=modes, call=made_calls()
)
def test_adding_a_deny_or_ask_rule_never_widens(rules: list[Rule], text: str, mode: str, call: PlannedCall) -> None:
    before = strictness(decided(rules, mode, call))
    for behavior in ("deny", "ask"):
        assert strictness(decided([*rules, parse(text, behavior)], mode, call)) >= before


@QUICK
@given(
    rules=st.lists(made_rules(), max_size=6),
    kind=st.sampled_from(["config", "programs", "active"]),
    path=st.sampled_from([f"{ROOT}/src/a.py", f"{ROOT}/src", f"{ROOT}/b.txt", ROOT, "/tmp/y", f"{HOME}/x"]),
    mode=modes,
    call=made_calls(),
)
def test_adding_a_protected_path_never_widens(
    rules: list[Rule], kind: str, path: str, mode: str, call: PlannedCall
) -> None:
    folders = ProtectedFolders(**{kind: (path,)})
    protected = Policy(RuleSet(tuple(rules)), paths=WORLD, mode=mode, protected_folders=folders)
    assert strictness(protected.decide(call)) >= strictness(decided(rules, mode, call))


@QUICK
@given(rules=st.lists(made_rules(), max_size=6), text=st.sampled_from(TEXTS), mode=modes, call=made_calls())
def test_adding_an_allow_rule_never_narrows(rules: list[Rule], text: str, mode: str, call: PlannedCall) -> None:
    added = parse(text, "allow", Origin("user", folder=ROOT))
    assert strictness(decided([*rules, added], mode, call)) <= strictness(decided(rules, mode, call))


@QUICK
@given(rules=st.lists(made_rules(), max_size=7), mode=modes, call=made_calls(), data=st.data())
def test_the_order_of_rules_does_not_matter(
    rules: list[Rule], mode: str, call: PlannedCall, data: st.DataObject
) -> None:
    shuffled = data.draw(st.permutations(rules))
    assert decided(shuffled, mode, call).behavior == decided(rules, mode, call).behavior


@QUICK
@given(rules=st.lists(made_rules(), max_size=4), mode=modes, call=made_calls(), voices=opinions, data=st.data())
def test_the_order_of_opinions_does_not_matter(
    rules: list[Rule], mode: str, call: PlannedCall, voices: list[Opinion], data: st.DataObject
) -> None:
    assert decided(rules, mode, call, data.draw(st.permutations(voices))) == decided(rules, mode, call, voices)


@QUICK
@given(rules=st.lists(made_rules(), max_size=5), mode=modes, call=made_calls(), voices=opinions)
def test_a_decision_is_the_strictest_of_its_reasons_and_always_the_same(
    rules: list[Rule], mode: str, call: PlannedCall, voices: list[Opinion]
) -> None:
    decision = decided(rules, mode, call, voices)
    assert decision.reasons
    assert strictness(decision) == max(STRICTNESS[reason.behavior] for reason in decision.reasons)
    assert decision.reasons[0].behavior == decision.behavior
    assert decision == decided(rules, mode, call, voices)


@QUICK
@given(rules=st.lists(made_rules(), max_size=5), call=made_calls(), voices=opinions)
def test_a_denied_call_is_denied_in_every_mode(rules: list[Rule], call: PlannedCall, voices: list[Opinion]) -> None:
    if decided(rules, "bypassPermissions", call, voices).behavior == "deny":
        for mode in MODES:
            assert decided(rules, mode, call, voices).behavior == "deny", mode


@QUICK
@given(rules=st.lists(made_rules(), max_size=5), mode=modes, one=made_calls(), other=made_calls())
def test_doing_two_things_is_as_strict_as_the_stricter(
    rules: list[Rule], mode: str, one: PlannedCall, other: PlannedCall
) -> None:
    if one.tool.name != "Bash" or other.tool.name != "Bash":
        return
    both = f"{one.input['command']} && {other.input['command']}"
    policy = Policy(RuleSet(tuple(rules)), paths=WORLD, mode=mode)
    whole = strictness(policy.decide(called("Bash", (Runs(both),), {"command": both})))
    stricter = max(strictness(policy.decide(call)) for call in (one, other))
    # What files an unreadable command touches cannot be told, so a rule about them can do no more than ask.
    readable = not policy.analyze(both).problems
    assert whole >= (stricter if readable else min(stricter, STRICTNESS["ask"]))


@QUICK
@given(rules=st.lists(made_rules(), max_size=5), mode=st.sampled_from(["default", "acceptEdits"]), call=made_calls())
def test_the_rules_offered_would_have_allowed_the_call(rules: list[Rule], mode: str, call: PlannedCall) -> None:
    decision = decided(rules, mode, call)
    assert len(decision.suggestions) <= 5
    if decision.suggestions:
        offered = [parse(text, "allow", Origin("session", folder=ROOT)) for text in decision.suggestions]
        assert decided([*rules, *offered], mode, call).behavior == "allow"


@QUICK
@given(
    text=st.text(max_size=30)
    | st.builds("{}({})".format, st.sampled_from(["Bash", "Read", "Edit", "X"]), st.text(max_size=20)),
    behavior=behaviors,
)
@example(text="Bash(a\\*b)", behavior="allow")
def test_a_rule_prints_as_it_was_written_or_is_refused(text: str, behavior: Behavior) -> None:
    try:
        rule = parse(text, behavior)
    except RuleError as problem:
        assert str(problem)
        return
    assert str(rule) == text.strip()
    assert parse(str(rule), behavior) == rule


@QUICK
@given(
    st.lists(st.sampled_from([*TEXTS, "Bash(echo a, b)", "Bash(f (x) y)"]), max_size=6),
    st.sampled_from([",", " ", ", "]),
)
def test_a_list_of_rules_is_split_back_into_the_same_rules(texts: list[str], separator: str) -> None:
    # A blank ends a rule only before the name of a tool that is known.
    known = [text for text in texts if separator != " " or text != "Deploy"]
    assert split_list(separator.join(known)) == known


WORDS = [
    "rm",
    "x",
    "git",
    "push",
    "echo",
    "$(",
    ")",
    "`",
    "'",
    '"',
    "&&",
    "|",
    ";",
    ">",
    "<(",
    "{",
    "}",
    "\n",
    "do",
    "$X",
    "é",
    "\u200b",
]


@QUICK
@given(words=st.lists(st.sampled_from(WORDS), max_size=12), glue=st.sampled_from([" ", ""]), mode=modes)
def test_any_text_is_decided_and_nothing_that_cannot_be_read_is_allowed_by_a_rule_for_a_part(
    words: list[str], glue: str, mode: str
) -> None:
    command = glue.join(words)
    call = called("Bash", (Runs(command),), {"command": command})
    policy = Policy(RuleSet((parse("Bash(echo:*)", "allow"), parse("Bash(rm:*)", "deny"))), paths=WORLD, mode=mode)
    decision = policy.decide(call)
    if policy.analyze(command).problems:
        assert decision.behavior != "allow"


def test_nothing_touched_and_nothing_said_is_still_decided() -> None:
    assert decided([], "default", called("Grep", NO_EFFECTS)).behavior == "allow"


class Volume:
    """Whether names of either case are one, as `Paths` sees it: another volume may be mounted at any time."""

    def __init__(self) -> None:
        self.folds = False

    def __call__(self, path: str) -> bool:
        return self.folds


steps = st.one_of(
    st.tuples(st.just("call"), made_calls(), st.booleans(), opinions),
    st.tuples(st.just("mode"), modes),
    st.tuples(st.just("grant"), made_rules()),
    st.tuples(st.just("replace"), st.lists(made_rules(), max_size=3)),
    st.tuples(st.just("folds"), st.booleans()),
    st.tuples(st.just("roots"), st.sampled_from([(ROOT,), (ROOT, "/tmp"), ("/w",)])),
)


@settings(max_examples=300, deadline=None)
@given(rules=st.lists(made_rules(), max_size=4), taken=st.lists(steps, min_size=2, max_size=14), again=st.booleans())
def test_what_was_decided_before_changes_no_decision(rules: list[Rule], taken: list[Any], again: bool) -> None:
    volume = Volume()
    world = PathResolver(
        (ROOT,), home=HOME, real=lambda path: path, is_folder=lambda path: path == ROOT, folds_case=volume
    )
    policy = Policy(RuleSet(tuple(rules)), paths=world)
    calls: list[PlannedCall] = []
    for step in taken:
        match step:
            case ("mode", mode):
                policy.mode = mode
            case ("grant", rule):
                policy.grant(rule)
            case ("replace", instead):
                policy.replace_rules(RuleSet(tuple(instead)))
            case ("folds", folds):
                volume.folds = folds
            case ("roots", roots):
                policy.use_roots(roots)
            case (_, call, linked, voices):
                paths = [effect.path for effect in call.effects if isinstance(effect, Reads | Writes)]
                resolved = {path: f"{ROOT}/.env" if linked else path for path in paths}
                calls.append(replace(call, resolved_paths=resolved))
                _same_as_afresh(policy, calls[-1], voices)
        for call in calls if again else ():
            _same_as_afresh(policy, call, ())


@example(command="rm -rf /w", before=ROOT, after="/w")
@example(command="rm -rf /w", before="/w", after=ROOT)
@given(
    command=st.sampled_from(["rm -rf /w", f"rm -rf {ROOT}", "rm -rf .", "find . -delete", "ls"]),
    before=st.sampled_from([ROOT, "/w", "/v"]),
    after=st.sampled_from([ROOT, "/w", "/v"]),
)
def test_a_command_is_judged_by_the_folders_that_are_worked_in_now(command: str, before: str, after: str) -> None:
    def policy_for(root: str) -> Policy:
        world = PathResolver((root,), home=HOME, real=lambda path: path, folds_case=lambda path: False)
        return Policy(paths=world, mode="bypassPermissions")

    call = replace(called("Bash", (Runs(command),), {"command": command}), cwd=ROOT)
    policy = policy_for(before)
    policy.decide(call)
    policy.use_roots((after,))
    assert policy.decide(call) == policy_for(after).decide(call)


def _same_as_afresh(policy: Policy, call: PlannedCall, voices: Sequence[Opinion]) -> None:
    afresh = Policy(policy.rules, paths=policy.paths, mode=policy.mode)
    assert policy.decide(call, voices) == afresh.decide(call, voices)


DYNAMIC = ["$x", '"$x"', "$(cat f)", "`cat f`", "${x:-y}", "${x#a}"]
RUNS_CODE = ["{} a", "bash -c {}", "eval {}", "sudo {}", "python3 -c {}", "mywrap {}", "echo a | xargs {}", "ssh h {}"]
RUNS_CODE += ["source {}", "find . -exec {} \\;", "timeout 5 {} a", "env {}", "awk {} f", "true && {} b", "( {} )"]
READS_FILE = [
    "cat {}",
    "bat {}",
    "cat < {}",
    "grep x {}",
    "dd if={}",
    "curl -d @{} h",
    "cd {} && cat key",
    "tar cf - {}",
]
READS_FILE += [
    "cp {} y",
    "head -n 1 src/{}",
    "mywrap --file={}",
    "python3 {}",
    ". {}",
    "git show HEAD:{}",
    "xargs -a {} cat",
]


@QUICK
@given(
    template=st.sampled_from(RUNS_CODE),
    word=st.sampled_from(DYNAMIC),
    mode=modes,
    more=st.lists(made_rules(), max_size=3),
)
def test_a_program_or_script_named_at_run_time_is_never_allowed_under_a_denied_command(
    template: str, word: str, mode: str, more: list[Rule]
) -> None:
    command = template.format(word)
    call = called("Bash", (Runs(command),), {"command": command})
    assert decided([*more, parse("Bash(rm:*)", "deny")], mode, call).behavior != "allow"


@QUICK
@given(
    template=st.sampled_from(READS_FILE),
    word=st.sampled_from(DYNAMIC),
    mode=modes,
    more=st.lists(made_rules(), max_size=3),
)
def test_a_file_named_at_run_time_is_never_allowed_under_a_denied_file(
    template: str, word: str, mode: str, more: list[Rule]
) -> None:
    command = template.format(word)
    call = called("Bash", (Runs(command),), {"command": command})
    assert decided([*more, parse("Read(secret)", "deny")], mode, call).behavior != "allow"
