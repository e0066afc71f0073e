"""Attempts in this process: a project, a scripted model, and everything below a temporary folder."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from wieldy.faces.batch.attempt import (
    Attempt,
    AttemptHost,
    AttemptOptions,
    AttemptProgress,
    CommandRunner,
    Job,
    PlannedAttempt,
)
from wieldy.faces.batch.rates import RateLimiter
from wieldy.faces.batch.store import AttemptResult, make_attempt_folder
from wieldy.faces.batch.tasks import Task, TaskLimits, TaskSource

RunAttempt = Callable[..., Awaitable[AttemptResult]]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "a project with späces"
    folder.mkdir()
    (folder / "a.py").write_text("x = 1\n")
    return folder


@pytest.fixture
def run_attempt(tmp_path: Path, project: Path, monkeypatch: pytest.MonkeyPatch) -> RunAttempt:
    monkeypatch.setenv("WIELDY_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("HOME", str(tmp_path / "person"))

    async def run(
        turns: list[list[dict[str, Any]]],
        *,
        gate: RateLimiter | None = None,
        seen: list[AttemptProgress] | None = None,
        job_options: dict[str, Any] | None = None,
        limits: dict[str, Any] | None = None,
        **fields: Any,
    ) -> AttemptResult:
        script = tmp_path / "script.json"
        script.write_text(json.dumps({"turns": turns}))
        task_fields: dict[str, Any] = {
            "id": "t",
            "prompt": "fix it",
            "source": TaskSource("root", str(project)),
            "model": f"script:{script}",
            "mode": "bypassPermissions",
            "limits": TaskLimits(**(limits or {})),
            **fields,
        }
        number, folder = make_attempt_folder(tmp_path / "out" / "runs" / "t")
        job = Job(
            planned=PlannedAttempt(Task(**task_fields), 1, "identity"),
            attempt=number,
            folder=str(folder),
            relative_folder=f"runs/t/{number}",
            options=AttemptOptions(work=str(tmp_path / "work"), **(job_options or {})),
        )
        commands = CommandRunner(tmp_path / "work" / "commands")
        host = AttemptHost(gate or RateLimiter(), commands, _no_inside)
        try:
            return await Attempt(job, host, (seen if seen is not None else []).append).run()
        finally:
            await commands.aclose()

    return run


async def _no_inside(job: Job, report: Any) -> AttemptResult:
    raise AssertionError("no overlay in this test")
