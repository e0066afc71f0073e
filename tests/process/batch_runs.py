"""Runs of `wieldy batch` as child processes, with scripted tasks that write down every tool that runs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import psutil
from tests.unit.models.wire import anthropic_stream

from wieldy.faces.batch.remote import find_run
from wieldy.faces.batch.store import AttemptResult


class BatchRun:
    """A folder with a project, tasks and results, and the ledger that the tools of the tasks write to."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.out = folder / "out"
        self.url = ""
        self.ledger = folder / "ledger"
        self.tasks = folder / "tasks.jsonl"
        self.project = folder / "project"
        self.project.mkdir()
        (self.project / "a.txt").write_text("one\n")
        kept = {name: os.environ[name] for name in ("PATH", "LANG", "PYTHONPATH") if name in os.environ}
        self.env = {
            **kept,
            "HOME": str(folder / "person"),
            "WIELDY_HOME": str(folder / "state"),
            "LEDGER": str(self.ledger),
        }

    def script(self, name: str, *turns: list[dict[str, Any]]) -> str:
        """Write a script; returns the model that follows it."""
        (self.folder / f"{name}.json").write_text(json.dumps({"turns": turns}))
        return f"script:{self.folder / name}.json"

    def noting_script(self, steps: int = 2, pause: float = 0.0) -> str:
        """A model that notes each of its steps with the folder of the attempt, then says that it is done."""
        notes: list[list[dict[str, Any]]] = [
            [
                {"pause": pause},
                {"call": "Bash", "input": {"command": f'echo "$(basename $(dirname $PWD)) {n}" >> $LEDGER'}},
            ]
            for n in range(steps)
        ]
        return self.script(f"note-{steps}-{pause}", *notes, [{"text": "done"}])

    def write_tasks(self, count: int, **fields: Any) -> None:
        rows = [{"id": f"t{n}", "prompt": "go", "root": "project", **fields} for n in range(count)]
        self.tasks.write_text("".join(json.dumps(row) + "\n" for row in rows))

    def start(self, *options: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "wieldy", "batch", str(self.tasks), "--out", self.url or str(self.out)]
        return subprocess.Popen(
            [*command, "--mode", "bypassPermissions", *options],
            env=self.env,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *options: str, timeout: float = 90) -> tuple[int, str, str]:
        process = self.start(*options)
        try:
            out, err = process.communicate(timeout=timeout)
        finally:
            process.kill()
        return process.returncode, out, err

    def results(self) -> list[AttemptResult]:
        return list(find_run(self.url or str(self.out)).results())

    def endings(self) -> dict[str, str]:
        return {result.id: result.ending for result in self.results()}

    def notes(self) -> list[str]:
        return self.ledger.read_text().splitlines() if self.ledger.exists() else []

    def processes(self) -> list[psutil.Process]:
        """Every living process that works for this run, by a variable that all of them inherit."""
        found = []
        for process in psutil.process_iter():
            try:
                if process.environ().get("LEDGER") == str(self.ledger) and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
            except psutil.Error:
                continue
        return found


def wait_until(holds: Callable[[], object], seconds: float = 30, *, what: str = "it did not happen") -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def repeated(values: Sequence[str]) -> set[str]:
    return {value for value in values if values.count(value) > 1}


class LimitingServer:
    """A model on loopback, in a thread: answers 429 for some seconds after the first request, then says that it is done."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.limited = 0
        self._until: float | None = None
        self._seconds = seconds
        owner = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["content-length"]))
                left = owner._left()
                if left > 0:
                    owner.limited += 1
                    self._reply(
                        429, b'{"error": {"message": "slow down"}}', ("retry-after-ms", str(round(left * 1000)))
                    )
                else:
                    self._reply(200, anthropic_stream([("text", "done")]), ("content-type", "text/event-stream"))

            def _reply(self, code: int, body: bytes, header: tuple[str, str]) -> None:
                self.send_response(code)
                self.send_header(*header)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *arguments: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def _left(self) -> float:
        if self._until is None:
            self._until = time.monotonic() + self._seconds
        return self._until - time.monotonic()

    def __enter__(self) -> LimitingServer:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self._server.shutdown()
        self._server.server_close()
