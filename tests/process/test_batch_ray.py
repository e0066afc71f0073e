"""`wieldy batch --engine ray` on a real Ray, started here on loopback."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.needs import skip_untested
from tests.process.batch_runs import BatchRun, LimitingServer, wait_until

CLUSTER = Path(__file__).with_name("ray_cluster.py")

# The tests share one cluster; the one that kills a node comes last.
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("ray"), pytest.mark.timeout(240)]


class RayCluster:
    """The program that holds the cluster."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        environment = {**os.environ, "RAY_TMPDIR": str(folder), "HOME": str(folder), "BATCH_CLUSTER": str(folder)}
        self.process = subprocess.Popen(
            [sys.executable, str(CLUSTER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
            text=True,
        )
        assert self.process.stdout is not None
        self.address = self.process.stdout.readline().strip()
        assert self.address, "the cluster did not start"

    def kill_node(self) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write("kill\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == "killed\n"

    def processes(self) -> list[psutil.Process]:
        """Everything that descends from the cluster, also what Ray has lost sight of."""
        found = []
        for process in psutil.process_iter():
            try:
                if process.environ().get("BATCH_CLUSTER") == str(self.folder) and process.status() != "zombie":
                    found.append(process)
            except psutil.Error:
                continue
        return found

    def close(self) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        try:
            self.process.wait(timeout=60)
        finally:
            self.process.stdout.close()
            for process in self.processes():
                process.send_signal(signal.SIGKILL)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RayCluster]:
    if importlib.util.find_spec("ray") is None:
        skip_untested("Ray is not installed (the extra `ray`)")
    # Ray puts sockets there, whose paths must be short.
    folder = Path("/tmp") / f"wieldy-ray-{os.getpid()}"
    folder.mkdir()
    running = RayCluster(folder)
    try:
        yield running
    finally:
        running.close()
        subprocess.run(["rm", "-rf", str(folder)], check=False)


@pytest.fixture
def batch(tmp_path: Path, cluster: RayCluster) -> BatchRun:
    run = BatchRun(tmp_path)
    run.env["HOME"] = str(cluster.folder)  # where the token of the cluster is
    run.env["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"  # use loopback
    return run


def noting_script(batch: BatchRun, steps: int, pause: float = 0.0) -> str:
    """Like that of a local run; the workers of a cluster do not inherit our variables."""
    command = f'echo "$(basename $(dirname $PWD)) $$" >> {batch.ledger}'
    turn: list[dict[str, Any]] = [{"pause": pause}, {"call": "Bash", "input": {"command": command}}]
    return batch.script("ray", *[turn] * steps, [{"text": "done"}])


def test_attempts_run_on_the_cluster_and_resume_has_nothing_to_do(batch, cluster):
    batch.write_tasks(8, model=noting_script(batch, 2), check="test -f a.txt")
    code, out, err = batch.run("--engine", f"ray:{cluster.address}", timeout=120)
    assert (code, out) == (0, f"{batch.out}\n"), err
    results = batch.results()
    assert Counter(result.ending for result in results) == {"solved": 8}
    assert len({result.worker for result in results}) > 1
    assert len(batch.notes()) == 16
    for result in results:
        assert (batch.out / result.folder / "trajectory.json").exists()
    assert not list(batch.out.glob(".shared-*"))
    code, _, err = batch.run("--engine", "local")
    assert "0 of 8 attempts to run" in err


def test_a_worker_imports_nothing_from_the_folder_one_stands_in(batch, cluster):
    mark = batch.folder / "planted ran"
    for name in ("html_to_markdown", "psutil", "msgspec", "h11", "wieldy", "sqlite3", "tarfile"):
        (batch.project / f"{name}.py").write_text(f"open({str(mark)!r}, 'a').write(__name__)\n")
    batch.write_tasks(1, model=noting_script(batch, 1))
    command = [sys.executable, "-I", "-m", "wieldy", "batch", str(batch.tasks), "--out", str(batch.out)]
    engine = ("--engine", f"ray:{cluster.address}", "--mode", "bypassPermissions")
    done = subprocess.run(
        [*command, *engine], cwd=batch.project, env=batch.env, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert batch.endings() == {"t0": "done"}
    assert not mark.exists()


def test_a_rate_limit_is_shared_by_the_whole_cluster(batch, cluster):
    with LimitingServer(seconds=3.0) as server:
        batch.write_tasks(8, model="anthropic/claude-sonnet-5-5", limits={"seconds": 20})
        batch.env["ANTHROPIC_API_KEY"] = "k"
        engine = ("--engine", f"ray:{cluster.address}", "--base-url", server.url)
        code, _, err = batch.run(*engine, timeout=120)
    assert code == 0, err
    assert Counter(result.ending for result in batch.results()) == {"done": 8}
    assert 1 <= server.limited <= 8 + 8


def test_a_node_killed_in_mid_run_costs_no_task_and_leaves_no_process(batch, cluster):
    batch.write_tasks(16, model=noting_script(batch, 3, pause=0.5), check="true")
    process = batch.start("--engine", f"ray:{cluster.address}", "--workers", "8")
    wait_until(lambda: len(batch.notes()) >= 8 or process.poll() is not None, 90)
    cluster.kill_node()
    _, err = process.communicate(timeout=150)
    assert process.returncode == 0, err
    results = batch.results()
    assert Counter(result.id for result in results) == Counter(f"t{n}" for n in range(16))
    assert {result.ending for result in results} == {"solved"}
    notes = Counter(note.split()[0] for note in batch.notes())
    assert all(notes[f"{result.identity}-{result.attempt}"] == 3 for result in results)

    def leftovers() -> list[str]:
        return [each.name() for each in cluster.processes() if each.name() in ("bash", "sleep")]

    wait_until(lambda: not leftovers(), what="commands are left")


def test_without_ray_the_error_says_what_to_install(tmp_path):
    batch = BatchRun(tmp_path)
    (tmp_path / "hidden" / "ray").mkdir(parents=True)
    (tmp_path / "hidden" / "ray" / "__init__.py").write_text("raise ImportError")
    batch.env["PYTHONPATH"] = str(tmp_path / "hidden")
    batch.write_tasks(1, model=batch.noting_script(1))
    code, _, err = batch.run("--engine", "ray")
    assert code == 1
    assert "--engine ray needs Ray: pip install 'wieldy[ray]'" in err
    assert "Traceback" not in err
