"""wieldy beside other agents, end to end: the same scripted model, the same files, in turns, the best run of each.

python -m bench.peers     (or `make bench-peers`: about fifteen minutes; needs npm once, and afterwards no network at all)
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from bench.claim import Claim
from bench.peers import script
from bench.peers.agents import FLOOR, PEERS, Agent, Place, wieldy
from bench.peers.figures import FIGURES, table
from bench.peers.loopback import only_loopback
from bench.peers.measure import Failed, Run, run
from bench.peers.model import Model
from bench.peers.npm import NotInstalled

THOUGHT = 0.3
"""Seconds until the very first word of a model, where what is loaded for a first call matters."""


PASSES = 3
"""How often everything is gone through: a machine that is busy for a minute is not busy in all of them."""


def scenarios(folder: str) -> Iterator[tuple[script.Scenario, int, int]]:
    """What is run in one pass, how often, and how often the bare loop and wieldy are run for once of the others: what takes them
    a few milliseconds drowns in a busy moment. What is claimed beside a peer is run as often of the peer: the best of more runs
    would be the better one."""
    yield script.hello(), 12, 1
    yield script.reads(folder, THOUGHT), 4, 1
    yield script.commands(THOUGHT), 2, 3
    yield script.ten_reads(folder, THOUGHT), 3, 3
    yield script.ten_reads(folder, 0), 3, 2
    yield script.sleeps(THOUGHT), 1, 1
    yield script.sleeps(0), 2, 1
    yield script.overlap(folder, THOUGHT), 1, 1
    yield script.overlap(folder, 0), 2, 1
    yield script.pieces(script.FEW), 2, 2
    yield script.pieces(script.MANY), 2, 2
    yield script.growth(folder), 1, 1


def project(folder: Path) -> Path:
    """A folder with the files that are read."""
    folder.mkdir()
    for index in range(50):
        (folder / f"small{index}.txt").write_text(f"{script.SMALL} {index}\n" + "a line of text\n" * 20)
    for index in range(200):
        lines = "".join(f"{number:07} {'x' * 71}\n" for number in range(250))
        (folder / f"large{index}.txt").write_text(f"{script.LARGE} {index}\n{lines}")
    return folder


async def measured(agents: Sequence[Agent], folder: Path) -> dict[str, dict[str, list[Run]]]:
    """All runs of all agents, in turns so that a busy moment hits all of them alike. Raises `Failed`."""
    model = Model()
    url = await model.start()
    work = project(folder / "project")
    places = {agent.name: Place(folder / str(index), work, url) for index, agent in enumerate(agents)}
    for agent in agents:
        places[agent.name].home.mkdir()
        agent.prepare(places[agent.name])
        await run(agent, script.hello(), model, places[agent.name])  # what a first start leaves behind is not counted
    runs: dict[str, dict[str, list[Run]]] = {agent.name: {} for agent in agents}
    for number in range(PASSES):
        began = time.monotonic()
        for scenario, rounds, times in scenarios(str(work)):
            quick = [agent for agent in agents if agent not in PEERS]
            for agent in [*agents, *quick * (times - 1)] * rounds:
                done_before = runs[agent.name].setdefault(scenario.name, [])
                weigh = scenario.name in ("hello", "growth") and not done_before
                done_before.append(await run(agent, scenario, model, places[agent.name], weigh=weigh))
        print(f"pass {number + 1} of {PASSES}: {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    model.close()
    return runs


def claims(figures: Mapping[str, Mapping[str, float]]) -> Iterator[Claim]:
    """What must hold. Those beside a peer are left out where the peer is missing."""
    bare = figures[FLOOR.name]
    peers = {agent.name: figures[agent.name] for agent in PEERS if agent.name in figures}
    for name in ("wieldy", "wieldy (chat)"):
        ours = figures[name]

        def limit(
            key: str, bound: float, unit: str = " ms", ours: Mapping[str, float] = ours, name: str = name
        ) -> Claim:
            text = next(figure.text for figure in FIGURES if figure.key == key)
            detail = ", ".join(f"{other} {figures[other][key]:.3g}" for other in (FLOOR.name, *peers))
            return Claim(f"{name}: {text}", ours[key], bound, unit, detail)

        yield limit("first", 120)
        yield limit("hello_memory", 45, " MB")
        yield limit("read", 2)
        yield limit("command", 5)
        for at_once in ("", "_cold"):
            yield limit(f"ten{at_once}", 8)
            yield limit(f"sleeps{at_once}", 530)
            yield limit(f"starts{at_once}", 20)
        yield limit("leaves", 3)
        yield limit("chunk", 0.1)
        yield limit("growth_memory", 75, " MB")
        detail = f"{ours['late']:.3g} ms beside {bare['late']:.3g} ms"
        yield Claim(
            f"{name}: 200 × 20 KB, a turn at the end beside the bare loop",
            ours["late"] / bare["late"],
            1.5,
            detail=detail,
        )
        if "Codex CLI" in peers:
            theirs = peers["Codex CLI"]["hello"]
            detail = f"{ours['hello']:.3g} ms beside {theirs:.3g} ms"
            yield Claim(f"{name}: hello, start to end, beside Codex CLI", ours["hello"] / theirs, 0.75, detail=detail)
        if peers:
            best = min(each["read"] for each in peers.values())
            detail = f"{ours['read']:.3g} ms beside {best:.3g} ms"
            yield Claim(f"{name}: a turn with a read beside the best peer", ours["read"] / best, 0.35, detail=detail)


def installed() -> tuple[list[Agent], list[str]]:
    """The agents there are, and loud words about those that are missing."""
    agents, missing = [FLOOR, wieldy("messages"), wieldy("chat")], []
    for agent in PEERS:
        try:
            if agent.package:
                agent.package.install()
            agents.append(agent)
        except NotInstalled as reason:
            missing.append(f"MISSING: {agent.name}: {reason}. Claims beside it are not checked.")
    return agents, missing


def main() -> int:
    """Measure, print the table and the claims; 1 when a claim is missed or could not be checked."""
    agents, missing = installed()
    print("\n".join(missing), file=sys.stderr, flush=True)
    only_loopback()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        try:
            runs = asyncio.run(measured(agents, Path(folder)))
        except Failed as problem:
            print(f"FAILED: {problem}", file=sys.stderr)
            return 1
    figures = {name: {figure.key: figure.of(each) for figure in FIGURES} for name, each in runs.items()}
    print(table(figures), end="\n\n")
    missed = 0
    for claim in claims(figures):
        print(claim)
        missed += not claim.holds
    print("\n".join(["", *missing, f"{missed} claim(s) missed" if missed else "every claim that was checked holds"]))
    return 1 if missed or missing else 0


if __name__ == "__main__":
    sys.exit(main())
