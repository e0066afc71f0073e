"""The examples of the documentation are run as they are printed, and what can be typed is written down."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import textwrap
import tomllib
from pathlib import Path

import pytest
from tests.unit.models.wire import STREAMS, loopback, stream

from wieldy.faces.terminal.commands import COMMANDS

DOCS = Path(__file__).parents[2] / "docs"

# What a module comes with, where that has another name.
DISTRIBUTIONS = {
    "agents": {"openai-agents"},
    "claude_agent_sdk": {"claude-agent-sdk"},
    "pydantic_ai": {"pydantic-ai-slim", "pydantic-ai"},
}

# What an example leaves out because the text around it says so.
PREAMBLE = """
import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated
from wieldy import Output, Progress, Script, Toolbox, ToolContext, tool

async def example(box):
"""
MAIN = """

async def main():
    async with Toolbox(root=".", settings={}) as box:
        await example(box)

asyncio.run(main())
"""


def examples(page: str) -> list[str]:
    text = (DOCS / page).read_text(encoding="utf-8")
    return re.findall(r"```python\n(.*?)```", text, re.DOTALL)


def run(code: str, after: str, folder: Path, env: dict[str, str]) -> str:
    body = textwrap.indent(f"{code}\n{after}", " " * 4)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", f"{PREAMBLE}{body}{MAIN}"],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_recorded_model(project, environment):
    (project / "a.txt").write_text("hello\n")
    assert run(examples("models.md")[-1], "", project, environment) == "It says hello.\n2\n"


@pytest.mark.asyncio
async def test_a_model_object(project, environment):
    async with loopback(stream(STREAMS["anthropic"]([("text", "It counts lines.")]))) as server:
        code = examples("models.md")[0].replace("customer.key", f"'k', base_url='{server.url}'")
        said = await asyncio.to_thread(run, code.replace("customer.folder", "'.'"), "", project, environment)
    assert said == "It counts lines.\n"
    assert server.received[0].headers["x-api-key"] == "k"


def test_somebody_who_answers(project, environment):
    after = 'print((await box.call("AskUser", questions=[{"question": "Which?", "options": ["left", "right"]}])).text)'
    assert "→ left" in run(examples("tools.md")[0], after, project, environment)


def test_a_tool_of_ones_own(project, environment):
    (project / "README.md").write_text("three short words\n")
    code = f"{examples('guides/write-a-tool.md')[0]}\nawait main()"
    assert run(code, "", project, environment) == "3 words\n"


def test_a_session_in_python(project, environment):
    code = examples("sessions.md")[0].replace(
        '"anthropic/claude-sonnet-5-5"', 'Script().says("Added.").then().says("Tested.")'
    )
    lines = run(code, "", project, environment).splitlines()
    assert lines[0] == "model.requested" and lines[-2:] == ["run.ended", "Tested."]


def test_a_summarizer_of_ones_own(project, environment):
    assert run(examples("web.md")[0], "print(type(box).__name__)", project, environment) == "Toolbox\n"


SETTINGS = [
    (page, block)
    for page in (
        "block-a-folder",
        "local-model",
        "run-tests-without-asking",
        "../hooks",
        "../mcp",
        "../sessions",
        "../web",
    )
    for block in re.findall(
        r"```json\n(.*?)```", (DOCS / "guides" / f"{page}.md").read_text(encoding="utf-8"), re.DOTALL
    )
]


@pytest.mark.parametrize(("page", "block"), SETTINGS)
def test_the_settings_of_a_page_are_accepted(wieldy, tmp_path, page, block):
    (tmp_path / "model.json").write_text('{"turns": [[{"text": "hello"}]]}')
    done = wieldy("-p", "hi", "--settings", block, "--model", f"script:{tmp_path / 'model.json'}")
    assert (done.returncode, done.stdout, done.stderr) == (0, "hello\n", ""), page


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_every_slash_command_is_written_down(command):
    assert f"| `{command}" in (DOCS / "sessions.md").read_text(encoding="utf-8")


def test_an_extra_installs_what_the_examples_of_its_framework_import():
    text = (DOCS / "frameworks.md").read_text(encoding="utf-8")
    extras = tomllib.loads((DOCS.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"][
        "optional-dependencies"
    ]
    sections = re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    checked = set()
    for title, section in sections:
        extra = title.lower().replace("claude agent sdk", "claude-sdk").replace(" ", "-")
        if extra not in extras:
            continue
        checked.add(extra)
        installed = {re.split(r"[<>=\[; ]", each)[0] for each in extras[extra]}
        for module in set(re.findall(r"^(?:from|import) (\w+)", section, re.MULTILINE)) - {"wieldy"}:
            assert installed & DISTRIBUTIONS.get(module, {module}), f"{extra} lacks {module}"
    assert checked == {"pydantic-ai", "openai-agents", "langchain", "claude-sdk"}
