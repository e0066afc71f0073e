"""Harbor's agent interface around the real command line, in an environment that is this machine, with a scripted model."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.needs import import_or_skip

import_or_skip("harbor.agents.installed.base")
from harbor.agents.installed import base
from harbor.models.agent.context import AgentContext
from harbor.models.trajectories import Trajectory

from wieldy.faces.adapters.harbor import WieldyAgent

pytestmark = [pytest.mark.slow, pytest.mark.peer, pytest.mark.asyncio]

READ = {"call": "Read", "input": {"file_path": "a.py"}}
EDIT = {"call": "Edit", "input": {"file_path": "a.py", "old_string": "x = 1", "new_string": "x = 2"}}
USAGE = {"usage": {"input_tokens": 10, "output_tokens": 5, "cache_read_tokens": 3}}


class ThisMachine:
    """As much of an environment as the agent uses: commands run here, and its logs are in a folder here."""

    default_user = None

    def __init__(self, root: Path, logs: Path) -> None:
        self._root = root
        self._logs = logs

    async def exec(self, command: str, env: dict[str, str] | None = None, **options: Any) -> SimpleNamespace:
        kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
        programs = os.path.dirname(sys.executable)
        surrounding = {**kept, "PATH": f"{programs}:{kept['PATH']}", "HOME": str(self._root.parent / "home")}
        process = await asyncio.create_subprocess_exec(
            "bash", "-c", command.replace("/logs/agent", str(self._logs)).replace("/tmp/wieldy-batch", f"{self._logs}/work"),
            cwd=self._root, env={**surrounding, **(env or {})},
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        out, err = await process.communicate()
        return SimpleNamespace(stdout=out.decode(), stderr=err.decode(), return_code=process.returncode)


def make(tmp_path: Path, *turns: list[dict[str, Any]], **options: Any) -> tuple[WieldyAgent, Any, Path]:
    root, logs = tmp_path / "app", tmp_path / "logs"
    root.mkdir()
    logs.mkdir()
    (root / "a.py").write_text("x = 1\n")
    (tmp_path / "script.json").write_text(json.dumps({"turns": turns}))
    agent = WieldyAgent(logs, model_name=f"script:{tmp_path}/script.json", **options)
    return agent, ThisMachine(root, logs), root


async def test_the_agent_works_in_the_environment_and_leaves_a_trajectory_that_harbor_accepts(tmp_path):
    agent, environment, root = make(tmp_path, [READ, USAGE], [EDIT], [{"text": "it's fixed"}])
    await agent.setup(environment)
    context = AgentContext()
    await agent.run('fix x; it\'s "wrong"', environment, context)
    agent.populate_context_post_run(context)
    assert (root / "a.py").read_text() == "x = 2\n"
    assert (context.n_input_tokens, context.n_cache_tokens, context.n_output_tokens) == (13, 3, 5)
    assert context.metadata is not None
    assert context.metadata["ending"] == "done"
    trajectory = Trajectory.model_validate_json((tmp_path / "logs" / "trajectory.json").read_text())
    assert [step.source for step in trajectory.steps] == ["system", "user", "agent", "agent", "agent"]
    assert trajectory.steps[1].message == 'fix x; it\'s "wrong"'
    assert trajectory.agent.tool_definitions
    assert agent.version()


@pytest.mark.parametrize(("kind", "error"), [("auth", "AgentAuthenticationError"), ("model", "ModelNotFoundError")])
async def test_what_fails_has_harbors_own_class(tmp_path, kind, error):
    agent, environment, _ = make(tmp_path, [{"fail": kind, "message": "no luck"}])
    with pytest.raises(getattr(base, error), match="no luck"):
        await agent.run("go", environment, AgentContext())


async def test_a_limit_is_no_error(tmp_path):
    agent, environment, _ = make(tmp_path, [READ], [{"text": "x"}], max_turns="1")
    context = AgentContext()
    await agent.run("go", environment, context)
    agent.populate_context_post_run(context)
    assert context.metadata == {"ending": "limit", "limit": "max_turns", "turns": 1, "tools": {"Read": 1}}
