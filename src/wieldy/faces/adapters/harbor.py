"""Harbor (Terminal-Bench): wieldy as an installed agent. `harbor run --agent wieldy.faces.adapters.harbor:WieldyAgent`.

In the environment it runs `wieldy batch` with one task and without a copy: the task's files are the environment itself. So the
result says how the run ended in Harbor's own classes, and the trajectory has the system prompt and the tool definitions.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
from pathlib import Path
from typing import Any

from harbor.agents.capabilities import AgentCapabilities
from harbor.agents.installed import base
from harbor.environments.base import BaseEnvironment
from harbor.models.agent.context import AgentContext
from harbor.models.trial.paths import EnvironmentPaths

from wieldy.models.catalog import model_environment

OUT = "wieldy"
RESULTS = f"{OUT}/results.jsonl"
TASK_ID = "task"


class WieldyAgent(base.BaseInstalledAgent):
    """Runs wieldy in an environment of Harbor.

    Options (`--ak name=value`): `package`, what to install (a requirement, or a wheel on this machine); `mode`, the permission
    mode; `max_turns`; `max_cost`, in US dollars.
    """

    capabilities = AgentCapabilities(atif=True)

    def __init__(
        self,
        logs_dir: Path,
        *args: Any,
        package: str = "wieldy",
        mode: str = "bypassPermissions",
        max_turns: int | None = None,
        max_cost: float | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(logs_dir, *args, **kwargs)
        self._package = package
        self._mode = mode
        limits = {"max_turns": None if max_turns is None else int(max_turns), "max_cost": max_cost and float(max_cost)}
        self._limits = {name: value for name, value in limits.items() if value is not None}

    @staticmethod
    def name() -> str:
        return "wieldy"

    def get_version_command(self) -> str | None:
        return f"{_PATH} wieldy --version"

    def parse_version(self, stdout: str) -> str:
        return stdout.strip().removeprefix("wieldy ")

    async def install(self, environment: BaseEnvironment) -> None:
        """Install wieldy with uv, unless the environment has it."""
        present = await environment.exec(command=f"{_PATH} command -v wieldy")
        if present.return_code == 0:
            return
        await self.ensure_system_dependencies(environment, ("curl", "bash", "git"))
        package = self._package
        if os.path.isfile(package):
            remote = f"/installed-agent/{os.path.basename(package)}"
            await environment.upload_file(Path(package), remote)
            package = remote
        elif self._version:
            package = f"{package}=={self._version}"
        uv = "command -v uv >/dev/null 2>&1 || curl -LsSf https://astral.sh/uv/install.sh | sh"
        await self.exec_as_agent(
            environment, f"{_PATH} ({uv}) && {_PATH} uv tool install --python 3.12 {shlex.quote(package)}"
        )

    @base.with_prompt_template  # type: ignore[untyped-decorator]
    async def run(self, instruction: str, environment: BaseEnvironment, context: AgentContext) -> None:
        """Run the task. Raises Harbor's error for what failed, unless that is the task itself."""
        if not self.model_name:
            raise ValueError("wieldy needs a model: --model provider/name")
        logs = EnvironmentPaths.agent_dir
        task = json.dumps({"id": TASK_ID, "prompt": instruction, "limits": self._limits})
        words = ["wieldy", "batch", f"{logs}/{OUT}-task.jsonl", "--out", f"{logs}/{OUT}", "--isolate", "none"]
        words += ["--model", self.model_name, "--mode", self._mode, "--workers", "1"]
        command = (
            f"{_PATH} printf '%s\\n' {shlex.quote(task)} > {logs}/{OUT}-task.jsonl && "
            f'({_PATH} {shlex.join(words)} --root "$PWD" --work /tmp/wieldy-batch </dev/null 2>&1 || true) | '
            f"tee {logs}/{OUT}.txt"
        )
        done = await self.exec_as_agent(environment, command, env=model_environment(os.environ))
        lines = await environment.exec(command=f"cat {logs}/{RESULTS}")
        result = last_result(lines.stdout or "") if lines.return_code == 0 else None
        if result is None:
            raise base.NonZeroAgentExitCodeError(f"wieldy wrote no result: {(done.stdout or '')[-500:]}")
        if result["ending"] == "refused":
            raise base.AgentSafetyRefusalError(result.get("detail", "the model refused"))
        if result["ending"] in ("infra", "crashed"):
            error = getattr(base, result.get("harbor_class", ""), base.NonZeroAgentExitCodeError)
            raise error(f"{result.get('error_class', result['ending'])}: {result.get('detail', '')}")

    def populate_context_post_run(self, context: AgentContext) -> None:
        """Fill in tokens and cost, and put the trajectory where Harbor looks for it."""
        try:
            result = last_result((self.logs_dir / RESULTS).read_text(encoding="utf-8"))
        except OSError:
            return
        if result is None:
            return
        usage = result.get("usage", {})
        cached = usage.get("cache_read_input_tokens", 0)
        context.n_cache_tokens = cached
        context.n_input_tokens = usage.get("input_tokens", 0) + cached + usage.get("cache_creation_input_tokens", 0)
        context.n_output_tokens = usage.get("output_tokens", 0)
        context.cost_usd = None if result.get("unpriced") else result.get("cost", 0.0)
        context.metadata = {name: result[name] for name in ("ending", "limit", "turns", "tools") if name in result}
        folder = self.logs_dir / OUT / result.get("folder", "")
        if (folder / "trajectory.json").is_file():
            shutil.copyfile(folder / "trajectory.json", self.logs_dir / "trajectory.json")
        if (folder / "images").is_dir():
            shutil.copytree(folder / "images", self.logs_dir / "images", dirs_exist_ok=True)


_PATH = 'export PATH="$HOME/.local/bin:$PATH";'


def last_result(lines: str) -> dict[str, Any] | None:
    """The last whole line of a results file."""
    for line in reversed(lines.splitlines()):
        try:
            result = json.loads(line)
        except ValueError:
            continue
        if isinstance(result, dict) and "ending" in result:
            return result
    return None
