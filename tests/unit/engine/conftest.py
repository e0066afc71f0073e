"""A toolbox without built-in tools, whose judge allows everything unless told otherwise."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from wieldy.core.call import PlannedCall
from wieldy.core.decision import Behavior, Decision, Opinion, Reason
from wieldy.engine.toolbox import Toolbox


class Verdicts:
    """A judge that says what it was told for each tool, and lets the strictest opinion win."""

    def __init__(self, verdicts: dict[str, Behavior]) -> None:
        self.verdicts = verdicts

    def decide(self, plan: PlannedCall, opinions: Sequence[Opinion]) -> Decision:
        said = self.verdicts.get(plan.tool.name, "allow")
        reasons = [Reason("default", said, "as told")]
        reasons += [Reason("hook", opinion.behavior, opinion.why) for opinion in opinions]
        strictest = max(reasons, key=lambda reason: ["allow", "ask", "deny"].index(reason.behavior))
        return Decision(strictest.behavior, tuple(reasons))


BoxMaker = Callable[..., AbstractAsyncContextManager[Toolbox]]


@pytest.fixture
def make_box(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> BoxMaker:
    monkeypatch.setenv("WIELDY_HOME", str(tmp_path / "home"))

    @asynccontextmanager
    async def make(*tools: Any, verdicts: dict[str, Behavior] | None = None, **options: Any) -> AsyncIterator[Toolbox]:
        judge = options.pop("judge", None) or Verdicts(verdicts or {})
        async with Toolbox(tmp_path, tools=tools, judge=judge, builtins=False, **options) as box:
            yield box

    return make
