"""Runs the setup and the check of a task: commands of the person who wrote the tasks, not of the model."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from wieldy.core.threads import in_thread
from wieldy.core.workspace import Workspace
from wieldy.faces.batch.results import TaskCheck
from wieldy.files.working_copies.git import without_location
from wieldy.shell.running.session import ShellSession
from wieldy.shell.running.shell import collect_result, stop_and_collect


class CommandRunner:
    """Runs commands in bash. Everything they start ends with them, and with this process, whatever kills it."""

    def __init__(self, folder: Path) -> None:
        # Unlike the commands of a model, these get the whole environment, but for what leads git out of the copy.
        settings = {"bash": {"keepEnv": list(os.environ)}}
        env = without_location(os.environ)
        self._shells = ShellSession(Workspace(folder, session_dir=folder, settings=settings, env=env))

    async def run(self, command: str, *, cwd: str, env: Mapping[str, str], seconds: float, log: Path) -> TaskCheck:
        """Run a command to its end, or to the end of its time; all of its output goes to `log`."""
        shell = self._shells.start(command, cwd=cwd, extra_env=env, keeps_directory=True)
        try:
            async with asyncio.timeout(seconds):
                await asyncio.shield(shell.exit)
        except TimeoutError:
            result = await stop_and_collect(shell, "timed out")
        except asyncio.CancelledError:
            await asyncio.shield(stop_and_collect(shell, "interrupted"))
            raise
        else:
            result = await collect_result(shell)
            if result.leftovers:
                await shell.terminate()
                await shell.close()
        await in_thread(_write_log, log, result.text, result.path)
        return TaskCheck(result.code, round(result.seconds, 3), timed_out=result.reason == "timed out")

    async def aclose(self) -> None:
        await self._shells.aclose()


def _write_log(log: Path, text: str, path: str | None) -> None:
    if path is not None and Path(path).exists():
        shutil.move(path, log)
    else:
        log.write_text(text, encoding="utf-8", errors="replace")
