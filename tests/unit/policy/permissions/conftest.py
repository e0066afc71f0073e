"""Builds judges and calls the way a toolbox would, from a few words."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from wieldy.core.call import PlannedCall, ToolCall
from wieldy.core.decision import Behavior
from wieldy.core.effects import UNKNOWN_EFFECTS, Effects, Fetches, Reads, Runs, Writes
from wieldy.core.tool import Tool
from wieldy.policy.permissions.decide import Policy
from wieldy.policy.permissions.paths import PathResolver
from wieldy.policy.permissions.rules import Origin, Rule, parse
from wieldy.policy.permissions.ruleset import RiskLevels, RuleSet
from wieldy.tools import builtin_tool


class Named(Tool):
    """A tool that is only judged, never run."""

    description = "for tests"

    def __init__(self, name: str, read_only: bool = False) -> None:
        self.name = name
        self.read_only = read_only
        self.like = builtin_tool(name) or Tool()
        self.level = self.like.level

    def needs_permission(self, input: Mapping[str, Any], effects: Effects) -> bool:
        return (self.like.needs_permission if self.like.name else super().needs_permission)(input, effects)


READERS = frozenset({"Read", "Grep", "Glob", "LS"})


def planned(
    name: str, effects: Effects = UNKNOWN_EFFECTS, input: Mapping[str, Any] | None = None, **flags: bool
) -> PlannedCall:
    tool = Named(name, flags.get("read_only", name in READERS))
    return PlannedCall(ToolCall("1", name, dict(input or {})), tool, dict(input or {}), None, effects)


def call(name: str, target: str = "") -> PlannedCall:
    """A call of a built-in tool with the effects it would declare."""
    if name in READERS:
        return planned(name, (Reads(target),), {"file_path": target})
    if name in {"Write", "Edit", "NotebookEdit", "MultiEdit"}:
        return planned(name, (Writes(target),), {"file_path": target})
    if name == "WebFetch":
        return planned(name, (Fetches(target),), {"url": target}, read_only=True)
    if name == "Bash":
        return planned(name, (Runs(target),), {"command": target})
    return planned(name)


def rules(root: str, **texts: Sequence[str]) -> RuleSet:
    made: list[Rule] = []
    behaviors: tuple[Behavior, ...] = ("deny", "ask", "allow")
    for behavior in behaviors:
        origin = Origin("project", f"{root}/.wieldy/settings.json", 3, root)
        made += [parse(text, behavior, origin) for text in texts.get(behavior, ())]
    return RuleSet(tuple(made))


@pytest.fixture
def root(tmp_path: Path) -> str:
    project = tmp_path / "project"
    project.mkdir()
    return str(project.resolve())


@pytest.fixture
def home(tmp_path: Path) -> str:
    folder = tmp_path / "home"
    folder.mkdir()
    return str(folder.resolve())


Judge = Callable[..., Policy]


@pytest.fixture
def judge(root: str, home: str) -> Judge:
    """`judge(allow=[…], deny=[…], ask=[…], mode=…)`."""

    def make(
        *,
        allow: Sequence[str] = (),
        ask: Sequence[str] = (),
        deny: Sequence[str] = (),
        mode: str = "default",
        tools: Any = None,
        extra: Sequence[str] = (),
        paths: PathResolver | None = None,
        **more: Any,
    ) -> Policy:
        seen = paths or PathResolver((root, *extra), home=home)
        made = rules(root, allow=allow, ask=ask, deny=deny)
        return Policy(made, paths=seen, mode=mode, levels=RiskLevels.from_settings(tools), **more)

    return make


@pytest.fixture
def called() -> Callable[..., PlannedCall]:
    """`called("Write", path)`: a call with the effects the tool would declare."""
    return call


@pytest.fixture
def plan() -> Callable[..., PlannedCall]:
    """`plan("name", effects, input)`."""
    return planned
