"""One run of one agent through one scenario, from start to end, with what it took."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import threading
import time
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from bench.peers.agents import Agent, Place
from bench.peers.model import Model
from bench.peers.script import MARK, Scenario

LIMIT = 120.0
EVERY = 0.01


class Failed(Exception):
    """A run that did not go as its script says; nothing of it is counted."""


@dataclass(frozen=True, slots=True)
class Run:
    """Seconds; megabytes at the peak (0 unless asked for) and of the last request.

    A gap is from the end of an answer to the arrival of the next request: the tool, the loop, and sending all history.
    """

    wall: float
    to_first_request: float
    cpu: float
    gaps: tuple[float, ...]
    memory: float
    last_request: float
    to_tool: float | None


async def run(agent: Agent, scenario: Scenario, model: Model, place: Place, *, weigh: bool = False) -> Run:
    """Run it. Raises `Failed`."""
    model.load(scenario, agent.named)
    mark = place.project / MARK
    mark.unlink(missing_ok=True)
    output = place.home / "output"
    with output.open("wb") as told:
        began = time.time()
        process = subprocess.Popen(
            agent.command(place),
            cwd=place.project,
            env=agent.environment(place),
            stdin=subprocess.DEVNULL,
            stdout=told,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    scales = Scales(process.pid) if weigh else None
    bound = asyncio.get_running_loop().call_later(LIMIT, os.killpg, process.pid, signal.SIGKILL)
    _, status, used = await asyncio.to_thread(os.wait4, process.pid, 0)
    ended = time.time()
    bound.cancel()
    process.returncode = os.waitstatus_to_exitcode(status)
    memory = scales.peak() if scales else 0.0
    _must_have_followed(agent, scenario, model, process.returncode, output)
    requests = model.requests
    return Run(
        ended - began,
        requests[0].arrived - began,
        used.ru_utime + used.ru_stime,
        tuple(later.arrived - earlier.ended for earlier, later in pairwise(requests)),
        memory,
        requests[-1].size / 1e6,
        float(mark.read_text().replace(",", ".")) - requests[0].called if mark.exists() else None,
    )


def _must_have_followed(agent: Agent, scenario: Scenario, model: Model, code: int, output: Path) -> None:
    problem = ""
    if code:
        problem = f"exit code {code}"
    elif model.complaints:
        problem = model.complaints[0]
    elif len(model.requests) != len(scenario.turns):
        problem = f"{len(model.requests)} requests instead of {len(scenario.turns)}"
    elif not all(scenario.expected in result for result in model.requests[-1].results):
        problem = f"a result without {scenario.expected!r}"
    if problem:
        last = output.read_text(errors="replace").strip()[-300:]
        raise Failed(f"{agent.name}, {scenario.name}: {problem}; its last words: {last!r}")


class Scales:
    """Weighs a process and its children every now and then, each by the most it ever held."""

    def __init__(self, root: int) -> None:
        self._root = root
        self._most = 0.0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()

    def peak(self) -> float:
        """Stop; megabytes."""
        self._over.set()
        self._thread.join()
        return self._most

    def _watch(self) -> None:
        while not self._over.wait(EVERY):
            self._most = max(self._most, sum(_peak_of(process) for process in _tree(self._root)))


def _tree(root: int) -> list[int]:
    found = [root]
    for process in found:
        with contextlib.suppress(OSError):  # gone in the meantime
            for children in Path(f"/proc/{process}/task").glob("*/children"):
                found.extend(map(int, children.read_text().split()))
    return found


def _peak_of(process: int) -> float:
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) / 1000 for line in lines if line.startswith("VmHWM:")), 0.0)
