"""The examples of docs/frameworks.md are run as they are printed, each with a model that makes the calls they speak of."""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from tests.needs import import_or_skip

pytestmark = pytest.mark.slow

for framework in ("pydantic_ai", "agents", "langchain", "claude_agent_sdk"):
    import_or_skip(framework)

ROOT = Path(__file__).parents[3]
EXAMPLES = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "frameworks.md").read_text("utf-8"), re.DOTALL)
READ = [("Read", {"file_path": "a.txt"})]
WRITE = [("Write", {"file_path": "new.txt", "content": "new"})]
EXECUTE = [("execute", {"command": ["wc", "-l", "a.txt"]})]
MODELS = {
    "pydantic_ai": "from tests.peers.adapters.test_pydantic_ai import calling\nmodel, _ = calling({step})",
    "agents": "from tests.peers.adapters.test_openai_agents import Calling\nmodel = Calling({step})",
    "langchain": "from tests.peers.adapters.test_langchain import calling\nmodel = calling({step})",
    "claude_sdk": "from wieldy import Script\nmodel = Script([[dict(call=n, input=i) for n, i in {step}], [dict(text='done')]])",
}


@pytest.mark.peer
@pytest.mark.parametrize(
    ("number", "framework", "step", "says"),
    [
        (0, "pydantic_ai", READ, "done\n"),
        (1, "pydantic_ai", WRITE, "Write ask: .*\ndone\n"),
        (2, "pydantic_ai", EXECUTE, "done\n"),
        (3, "agents", WRITE, "Write ask: .*\ndone\n"),
        (4, "langchain", WRITE, "Write ask: .*\ndone\n"),
        (5, "claude_sdk", READ, "done\n"),
        (6, "claude_sdk", READ, r"\['wieldy'\]" + "\n"),
    ],
)
def test_an_example_runs(number, framework, step, says, project, tmp_path):
    body = textwrap.indent(f"{MODELS[framework].format(step=step)}\n{EXAMPLES[number]}", "    ")
    code = f"import asyncio\nasync def main():\n{body}\nasyncio.run(main())"
    env = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "WIELDY_HOME": str(tmp_path / "w"), "PYTHONPATH": str(ROOT)}
    env["OPENAI_AGENTS_DISABLE_TRACING"] = "1"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=project, env=env, capture_output=True, text=True, timeout=60
    )
    assert re.fullmatch(says, done.stdout), done.stdout + done.stderr
    assert (project / "new.txt").exists() == (step is WRITE)
