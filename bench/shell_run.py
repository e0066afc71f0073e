"""Commands: the cost of starting one, and the speed and memory of a flood of output, beside bash alone."""

from __future__ import annotations

import asyncio
import resource
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator

from bench.claim import Claim

from wieldy import Toolbox
from wieldy.core.workspace import Workspace
from wieldy.engine.workspace_services import open_workspace
from wieldy.shell.running.shell import collect_result
from wieldy.shell.sandbox.launcher import Reading
from wieldy.shell.sandbox.policy import secret_paths

ROUNDS = 60
FLOOD = "head -c 200000000 /dev/zero | tr '\\0' x"


def claims() -> Iterator[Claim]:
    yield from asyncio.run(_all())


async def _all() -> list[Claim]:
    with tempfile.TemporaryDirectory() as folder:
        workspace = open_workspace(folder, session_dir=f"{folder}/session")
        try:
            return [
                await _start(workspace),
                await _confined(workspace),
                await _pipeline(folder),
                *(await _flood(workspace)),
            ]
        finally:
            await workspace.aclose()


async def _start(workspace: Workspace) -> Claim:
    await _run(workspace, "true")
    ours = bare = float("inf")
    for _ in range(ROUNDS):
        bare = min(bare, await _timed(_bare()))
        ours = min(ours, await _timed(_run(workspace, "true")))
    detail = f"{ours * 1000:.2f} ms beside {bare * 1000:.2f} ms of asyncio.create_subprocess_exec, best of {ROUNDS}"
    return Claim("Bash `true`, with its directory, leftovers and guardian", ours / bare, 1.6, detail=detail)


async def _confined(workspace: Workspace) -> Claim:
    """What the confined launcher adds, with secrets hidden; rounds alternate, because other work disturbs both alike."""
    shells = workspace.services.shells
    if not await asyncio.to_thread(shells.can_confine):
        return Claim("ms that confinement adds to a command that reads", 0.0, 1.5, detail="no launcher works here")
    reading = Reading(secret_paths(workspace))
    await _run(workspace, "true", reading)
    plain, confined = [], []
    for _ in range(6 * ROUNDS):
        plain.append(await _timed(_run(workspace, "true")))
        confined.append(await _timed(_run(workspace, "true", reading)))
    added = (min(confined) - min(plain)) * 1000
    medians = f"{statistics.median(confined) * 1000:.2f} and {statistics.median(plain) * 1000:.2f} ms in the median"
    return Claim("ms that confinement adds to a command that reads", added, 1.5, unit=" ms", detail=medians)


async def _pipeline(folder: str) -> Claim:
    """The same through the whole of it: checked, analysed, decided, run and concluded."""
    async with Toolbox(folder, settings={}) as box:
        await box.call("Bash", command="true")
        ours = bare = float("inf")
        for _ in range(ROUNDS):
            bare = min(bare, await _timed(_bare()))
            ours = min(ours, await _timed(box.call("Bash", command="true")))
    detail = f"{ours * 1000:.2f} ms beside {bare * 1000:.2f} ms"
    return Claim("Bash `true` through the whole pipeline", ours / bare, 1.6, detail=detail)


async def _flood(workspace: Workspace) -> list[Claim]:
    await _run(workspace, "head -c 3000000 /dev/zero")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    ours = piped = float("inf")
    for _ in range(5):
        start = time.perf_counter()
        await asyncio.to_thread(subprocess.run, ["bash", "-c", f"{FLOOD} | cat >/dev/null"], check=True)
        piped = min(piped, time.perf_counter() - start)
        ours = min(ours, await _timed(_run(workspace, FLOOD)))
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    detail = f"{200 / ours:.0f} MB/s captured and kept, {200 / piped:.0f} MB/s by `| cat >/dev/null`"
    return [
        Claim("throughput of 200 MB of output", piped / ours, 0.5, detail=detail, at_least=True),
        Claim("growth of memory by it", grown, 32, unit=" MB"),
    ]


async def _run(workspace: Workspace, command: str, reading: Reading | None = None) -> None:
    shell = workspace.services.shells.start(command, cwd=workspace.cwd, reading=reading)
    while await shell.next_progress(shell.started + 120):
        pass
    await collect_result(shell)


async def _bare() -> None:
    process = await asyncio.create_subprocess_exec(
        "bash", "-c", "true", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    await process.communicate()


async def _timed(work) -> float:
    start = time.perf_counter()
    await work
    return time.perf_counter() - start
