"""Inspect evaluates a task with wieldy as its agent: its local sandbox, its bridge, and its mock model."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from tests.needs import import_or_skip

import_or_skip("inspect_ai")
import_or_skip("anthropic")
from inspect_ai import Task, eval_async
from inspect_ai.dataset import Sample
from inspect_ai.model import ModelOutput, ModelUsage, get_model
from inspect_ai.scorer import Score, Target, accuracy, scorer
from inspect_ai.solver import TaskState
from inspect_ai.util import sandbox

from wieldy.faces.adapters.inspect_ai import wieldy

# Inspect leaves sockets and pipes of its own to the garbage collector.
pytestmark = [pytest.mark.slow, pytest.mark.peer, pytest.mark.asyncio, pytest.mark.filterwarnings("ignore")]


@scorer(metrics=[accuracy()])
def file_is_written() -> Any:
    async def score(state: TaskState, target: Target) -> Score:
        return Score(value="C" if await sandbox().read_file("answer.txt") == target.text else "I")

    return score


async def evaluate(folder: Any, outputs: list[ModelOutput], **options: Any) -> Any:
    task = Task(
        dataset=[Sample(input="write the answer", target="42")],
        solver=wieldy(command=(sys.executable, "-m", "wieldy"), **options),
        scorer=file_is_written(),
        sandbox="local",
    )
    for output in outputs:  # otherwise Inspect counts tokens with a table that it downloads
        output.usage = ModelUsage(input_tokens=10, output_tokens=5, total_tokens=15)
    model = get_model("mockllm/model", custom_outputs=outputs)
    (log,) = await eval_async(task, model=model, log_dir=str(folder / "logs"))
    return log


def calls(tool: str, arguments: dict[str, Any]) -> ModelOutput:
    return ModelOutput.for_tool_call("mockllm/model", tool, arguments)


async def test_the_agent_works_in_the_sandbox_and_its_model_is_that_of_inspect(tmp_path, monkeypatch):
    monkeypatch.setenv("WIELDY_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("INSPECT_DISPLAY", "none")
    outputs = [
        calls("Write", {"file_path": "answer.txt", "content": "42"}),
        ModelOutput.from_content("mockllm/model", "written"),
    ]
    log = await evaluate(tmp_path, outputs)
    assert log.status == "success", log.error
    assert log.results.scores[0].metrics["accuracy"].value == 1.0
    sample = log.samples[0]
    assert sample.output.completion == "written"
    assert "Write" in [
        call.function for message in sample.messages for call in getattr(message, "tool_calls", None) or ()
    ]


async def test_wieldy_that_cannot_start_is_an_error_of_the_sample(tmp_path, monkeypatch):
    monkeypatch.setenv("WIELDY_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("INSPECT_DISPLAY", "none")
    log = await evaluate(tmp_path, [], mode="no-such-mode")
    assert log.status == "error"
    assert "exit code 2" in log.error.message
