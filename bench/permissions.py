"""A decision under 1 000 rules takes less than 1 ms, though rules are scanned one by one; settings load in 5 ms."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from bench.claim import Claim, best_of, seconds

from wieldy.core.call import PlannedCall, ToolCall
from wieldy.core.decision import Behavior
from wieldy.core.effects import Effects, Fetches, Opaque, Reads, Runs, Writes
from wieldy.core.tool import Tool
from wieldy.policy.permissions.decide import Policy
from wieldy.policy.permissions.paths import PathResolver
from wieldy.policy.permissions.rules import Origin, Rule, parse
from wieldy.policy.permissions.ruleset import RuleSet
from wieldy.policy.settings import load_settings

TURNS = 20
FRESH = 100
FIVE = "cd src && git log --oneline -5 | head -3 && npm run test -- -k name && echo done > out/log.txt"
TWENTY = " && ".join(
    f"(cd src{n} && git log --oneline -{n}5 | head -{n}3 && npm run test -- -k name{n} && echo {n} > out/{n})"
    for n in range(4)
)


def many_rules(count: int, root: str) -> RuleSet:
    """Rules of every kind: a third allow, a third ask, a third deny."""
    shapes = (
        "Bash(tool{n} run:*)",
        "Bash(tool{n} * --flag)",
        "Bash(* --never{n})",
        "Read(/src/part{n}/**)",
        "Edit(part{n}/*.gen)",
        "Read(*.secret{n})",
        "Edit(.hidden{n})",
        "WebFetch(domain:host{n}.example.com)",
        "WebFetch(domain:*.net{n}.example.com)",
        "mcp__server{n}__tool",
    )
    behaviors: tuple[Behavior, ...] = ("deny", "ask", "allow")
    made: list[Rule] = []
    for number in range(count):
        text = shapes[number % len(shapes)].format(n=number)
        made.append(parse(text, behaviors[number % 3], Origin("user", "settings.json", number, root)))
    return RuleSet(tuple(made))


def planned(name: str, effects: Effects, input: dict[str, str] | None = None) -> PlannedCall:
    tool = Tool()
    tool.name = name
    tool.read_only = name == "Read"
    return PlannedCall(ToolCall("1", name, input or {}), tool, dict(input or {}), None, effects)


def deciding(policy: Policy, call: PlannedCall) -> Callable[[], object]:
    def work() -> None:
        for _ in range(TURNS):
            policy.decide(call)

    return work


def measured(few: Policy, many: Policy, call: PlannedCall) -> list[float]:
    """Microseconds a decision takes each of two policies that have decided about the call before."""
    few.decide(call)
    many.decide(call)
    return [seconds / TURNS * 1e6 for seconds in best_of(60, deciding(few, call), deciding(many, call))]


def each(policy: Policy, calls: list[PlannedCall]) -> None:
    for call in calls:
        policy.decide(call)


def fresh(root: str) -> float:
    """Microseconds for commands that no cache knows; only their analysis is known."""
    policy = Policy(many_rules(1000, root), paths=PathResolver((root,)))
    policy.decide(running(FIVE))  # builds what all decisions share
    best = float("inf")
    for start in range(0, 20 * FRESH, FRESH):
        commands = [
            f"cd src && git log --oneline -{n} | head -{n} && npm run t{n} -- -k name{n} && echo {n} > out/{n}"
            for n in range(start, start + FRESH)
        ]
        plans = [
            planned("Bash", (Runs(command, analysis=policy.analyze(command)),), {"command": command})
            for command in commands
        ]
        best = min(best, seconds(partial(each, policy, plans)))
    return best / FRESH * 1e6


def claims() -> Iterator[Claim]:
    with tempfile.TemporaryDirectory() as folder:
        root = str(Path(folder).resolve())
        Path(root, "src", "part7").mkdir(parents=True)
        few = Policy(many_rules(10, root), paths=PathResolver((root,)))
        many = Policy(many_rules(1000, root), paths=PathResolver((root,)))
        for what, call in kinds(root).items():
            small, large = measured(few, many, call)
            yield Claim(f"deciding {what} under 1 000 rules", large, 1000, " µs", f"under 10 rules {small:.0f} µs")
        small, five = measured(few, many, running(FIVE))
        yield Claim("deciding a command of five parts, whole", five, 1000, " µs", f"under 10 rules {small:.0f} µs")
        yield Claim("deciding such a command for the first time", fresh(root), 1000, " µs", "its analysis is known")
        yield Claim("a hundred times the rules, that command", five / small, 2, "×", f"{small:.0f} µs → {five:.0f} µs")
        _, twenty = measured(few, many, running(TWENTY))
        yield Claim("four times the parts", twenty / five, 4.5, "×", f"twenty parts, whole {twenty:.0f} µs")
        yield from settings_claims(Path(root))


def kinds(root: str) -> dict[str, PlannedCall]:
    """One call of each kind that rules are written for."""
    return {
        "a read": planned("Read", (Reads(f"{root}/src/part7/a.py"),)),
        "a write": planned("Write", (Writes(f"{root}/src/part7/b.py"),)),
        "a fetch": planned("WebFetch", (Fetches("https://docs.host3.example.com/x"),)),
        "a server's tool": planned("mcp__server9__tool", (Opaque(),)),
        "a command": running("npm run test"),
        "a command that sweeps a folder": running("grep -rn TODO src"),
    }


def running(command: str) -> PlannedCall:
    return planned("Bash", (Runs(command),), {"command": command})


def settings_claims(root: Path) -> Iterator[Claim]:
    """A user's, a project's and a person's own file, as they commonly look."""
    rules = [f"Bash(program{number} run:*)" for number in range(25)]
    content = {
        "permissions": {"allow": rules, "deny": ["Read(.env)", "Bash(rm -rf:*)"], "defaultMode": "default"},
        "env": {"NAME": "value"},
        "hooks": {"PreToolUse": [{"matcher": "Bash", "hooks": [{"type": "command", "command": "./check"}]}]},
    }
    env = {"HOME": str(root), "WIELDY_HOME": str(root / "home"), "WIELDY_TRUST": "1"}
    for file in (root / ".wieldy/settings.json", root / ".wieldy/settings.local.json", root / "home/settings.json"):
        file.parent.mkdir(exist_ok=True)
        file.write_text(json.dumps(content, indent=2))
    text = json.dumps(content, indent=2)
    whole, plain = best_of(60, lambda: load_settings(root, env=env), lambda: [json.loads(text) for _ in range(3)])
    detail = f"three files of {len(text)} characters; json.loads alone {plain * 1e3:.2f} ms"
    yield Claim("loading settings", whole * 1e3, 5, " ms", detail)
