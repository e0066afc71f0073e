"""`wieldy mcp serve` as a child process, spoken to line by line."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from wieldy.shell.running.reaper import HAS_PROC

SERVE = [sys.executable, "-m", "wieldy", "mcp", "serve"]
PATIENCE = 30.0

Start = Callable[..., "Served"]


class Served:
    """A server and the client's ends of its streams."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        assert process.stdin and process.stdout
        self.to, self.back = process.stdin, process.stdout
        self._next = 0

    def send(self, line: bytes) -> None:
        self.to.write(line + b"\n")
        self.to.flush()

    def request(self, method: str, params: dict[str, Any] | None = None) -> int:
        self._next += 1
        self.send(json.dumps({"jsonrpc": "2.0", "id": self._next, "method": method, "params": params or {}}).encode())
        return self._next

    def call(self, name: str, **arguments: Any) -> int:
        return self.request("tools/call", {"name": name, "arguments": arguments})

    def receive(self) -> dict[str, Any]:
        line = self.back.readline()
        assert line, "the server closed its stdout"
        message: dict[str, Any] = json.loads(line)
        assert message["jsonrpc"] == "2.0"
        return message

    def answer(self, request: int | str | None) -> dict[str, Any]:
        while (message := self.receive()).get("id") != request or "method" in message:
            pass
        return message

    def text(self, request: int) -> str:
        result = self.answer(request)["result"]
        return "\n".join(block["text"] for block in result["content"] if block["type"] == "text")

    def shake_hands(self) -> Served:
        hello = {
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "a test", "version": "1"},
        }
        assert self.answer(self.request("initialize", hello))["result"]["serverInfo"]["name"] == "wieldy"
        self.send(b'{"jsonrpc": "2.0", "method": "notifications/initialized"}')
        return self

    def ended(self) -> int:
        return self.process.wait(PATIENCE)


def started(project: Path, environment: dict[str, str], *options: str) -> Served:
    process = subprocess.Popen(
        [*SERVE, *options],
        cwd=project,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    # Nobody reads stderr in most tests; it must not fill up.
    assert process.stderr
    threading.Thread(target=process.stderr.read, daemon=True).start()
    return Served(process)


def ended(served: Served) -> None:
    served.process.kill()
    served.process.wait()
    for stream in (served.to, served.back, served.process.stderr):
        if stream:
            stream.close()


@pytest.fixture
def serve(project: Path, environment: dict[str, str]) -> Iterator[Start]:
    servers: list[Served] = []

    def start(*options: str, greet: bool = True) -> Served:
        servers.append(started(project, environment, *options))
        return servers[-1].shake_hands() if greet else servers[-1]

    yield start
    for served in servers:
        ended(served)


@pytest.fixture(scope="module")
def lasting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """One server for the tests it must survive."""
    folder = tmp_path_factory.mktemp("lasting")
    (project := folder / "project").mkdir()
    with open(os.fsencode(project) + b"/odd\xff.txt", "wb") as file:
        file.write(b"needle\n")
    home = {"HOME": str(folder), "WIELDY_HOME": str(folder / "state")}
    served = started(project, {**home, "PATH": os.environ["PATH"]})
    yield served.shake_hands()
    ended(served)


def running(mark: str) -> list[int]:
    """The processes whose command line holds a mark."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit() and int(entry) != os.getpid():
            try:
                words = Path("/proc", entry, "cmdline").read_bytes()
            except OSError:
                continue
            if mark.encode() in words:
                found.append(int(entry))
    return found


def wait_until(holds: Callable[[], bool], seconds: float = 10.0) -> bool:
    end = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


MALFORMED: dict[bytes, int] = {
    b"this is not JSON": -32700,
    b'{"jsonrpc": "2.0", "id": 1, "method": ': -32700,
    b"\xff\xfe\x00": -32700,
    b"[" * 100_000: -32700,
    b"[]": -32600,
    b'"text"': -32600,
    b'{"id": 77}': -32600,
    b'{"jsonrpc": "1.0", "id": 77, "method": "ping"}': -32600,
}


def test_malformed_lines_are_answered_as_such_and_the_server_lives(lasting: Served):
    for line, code in MALFORMED.items():
        lasting.send(line)
        answer = lasting.receive()
        assert (line[:40], answer["error"]["code"]) == (line[:40], code)
        assert answer["id"] == (77 if b"77" in line else None)
        lasting.send(b"")
        assert lasting.text(lasting.call("Think", thought="on")) == "Noted."


def test_a_malformed_line_before_the_first_request_is_survived(serve: Start):
    served = serve(greet=False)
    served.send(b"garbage")
    assert served.receive()["error"]["code"] == -32700
    served.shake_hands()


def test_messages_of_more_than_32_mib_are_taken(lasting: Served):
    assert lasting.text(lasting.call("Think", thought="x" * (33 << 20))) == "Noted."


def test_a_client_that_reads_late_gets_everything(lasting: Served):
    requests = [lasting.call("Think", thought="x") for _ in range(1_500)]
    answers = {lasting.receive()["id"] for _ in requests}
    assert answers == set(requests)


@pytest.mark.parametrize("how", ["eof", "term"])
def test_a_client_that_never_reads_does_not_keep_the_server_from_ending(serve: Start, how: str):
    served = serve()
    for _ in range(1_500):
        served.call("Think", thought="x")
    if how == "term":
        served.process.send_signal(signal.SIGTERM)
    else:
        served.to.close()
    assert served.ended() == (128 + signal.SIGTERM if how == "term" else 0)


def test_files_whose_names_are_no_text_can_be_listed(lasting: Served):
    calls: dict[str, dict[str, str]] = {
        "Glob": {"pattern": "odd*"},
        "LS": {"path": "."},
        "Grep": {"pattern": "needle"},
        "Bash": {"command": "ls"},
        "Read": {"file_path": "odd\udcff.txt"},
    }
    for name, arguments in calls.items():
        assert "odd" in lasting.text(lasting.call(name, **arguments)), name
    assert lasting.text(lasting.call("Think", thought="on")) == "Noted."


def test_half_a_character_is_replaced(lasting: Served):
    lasting.send(
        rb'{"jsonrpc":"2.0","id":"half","method":"tools/call","params":{"name":"Grep","arguments":{"pattern":"\ud99c"}}}'
    )
    assert "error" not in lasting.answer("half")


def test_stdout_carries_the_protocol_alone_and_stdin_is_not_read_by_others(serve: Start):
    served = serve("--mode", "bypassPermissions")
    shown = served.text(served.call("Bash", command="echo to stdout; echo to stderr >&2; cat; echo end"))
    assert "to stdout" in shown
    assert "end" in shown
    assert served.text(served.call("Think", thought="on")) == "Noted."


def test_requests_that_are_piped_in_are_answered_before_the_end(serve: Start):
    served = serve()
    request = served.call("Bash", command="sleep 0.3; echo done")
    served.to.close()
    assert "done" in served.text(request)
    assert served.ended() == 0


def test_the_servers_of_a_client_are_not_served_on_lest_a_server_starts_itself(
    serve: Start, environment: dict[str, str], tmp_path: Path
):
    marker = tmp_path / "was started"
    servers = {
        "again": {"command": sys.executable, "args": [*SERVE[1:]]},
        "mark": {"command": "touch", "args": [str(marker)]},
    }
    home = Path(environment["WIELDY_HOME"])
    home.mkdir(exist_ok=True)
    (home / "settings.json").write_text(json.dumps({"mcpServers": servers}))
    served = serve()
    served.answer(served.call("Bash", command="sleep 1.5"))
    listed = served.answer(served.request("tools/list"))["result"]["tools"]
    assert not [one["name"] for one in listed if one["name"].startswith("mcp__")]
    assert not marker.exists()


def listed_until(served: Served, wanted: set[str]) -> None:
    """List the tools, and again whenever they are said to have changed, until these are among them."""
    names: set[str] = set()
    while not wanted <= names:
        request = served.request("tools/list")
        changed = answered = False
        while not (answered and (changed or wanted <= names)):
            message = served.receive()
            changed |= message.get("method") == "notifications/tools/list_changed"
            if message.get("id") == request:
                answered, names = True, {one["name"] for one in message["result"]["tools"]}


def test_servers_are_served_on_when_told_so_and_the_client_hears_of_their_tools(
    serve: Start, environment: dict[str, str], tmp_path: Path
):
    script = Path(__file__).parents[1] / "unit" / "mcp" / "scripted_server.py"
    habits = json.dumps({"log": str(tmp_path / "log"), "delay": 1})
    servers = {
        "tiny": {"command": sys.executable, "args": ["-I", "-S", str(script), habits]},
        "again": {"command": sys.executable, "args": [*SERVE[1:], "--servers"]},
    }
    home = Path(environment["WIELDY_HOME"])
    home.mkdir(exist_ok=True)
    settings = {"mcpServers": servers, "permissions": {"allow": ["mcp__tiny__*"]}}
    (home / "settings.json").write_text(json.dumps(settings))
    served = serve("--servers")
    listed_until(served, {"mcp__tiny__echo", "mcp__again__Read"})
    assert served.text(served.call("mcp__tiny__echo", text="hello")) == "hello"
    served.call("mcp__tiny__grow")
    listed_until(served, {"mcp__tiny__grown"})
    served.to.close()
    assert served.ended() == 0


def test_requests_may_come_from_a_file(project: Path, environment: dict[str, str], tmp_path: Path):
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "a", "version": "1"}}
    lines = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "LS", "arguments": {"path": "."}}},
    ]
    script = tmp_path / "requests.jsonl"
    script.write_text("".join(json.dumps(line) + "\n" for line in lines))
    with script.open("rb") as stdin:
        done = subprocess.run(SERVE, cwd=project, env=environment, stdin=stdin, capture_output=True, timeout=PATIENCE)
    answers = {message["id"]: message for message in map(json.loads, done.stdout.splitlines())}
    assert done.returncode == 0
    assert "b.txt" in answers[2]["result"]["content"][0]["text"]


def test_a_cancelled_command_ends_and_is_not_answered(serve: Start):
    served = serve("--mode", "bypassPermissions")
    mark = f"30.{uuid.uuid4().int % 10**9}"
    request = served.call("Bash", command=f"sleep {mark}")
    assert wait_until(lambda: bool(running(mark)))
    cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": request}}
    served.send(json.dumps(cancel).encode())
    assert wait_until(lambda: not running(mark))
    later = served.call("Think", thought="on")
    assert served.receive()["id"] == later
    served.to.close()
    assert served.ended() == 0


@pytest.mark.skipif(not HAS_PROC, reason="NOT TESTED: orphan processes: there is no /proc")
@pytest.mark.parametrize(
    ("how", "code"),
    [
        ("eof", 0),
        (signal.SIGTERM, 128 + signal.SIGTERM),
        (signal.SIGINT, 128 + signal.SIGINT),
        (signal.SIGHUP, 128 + signal.SIGHUP),
        (signal.SIGKILL, -signal.SIGKILL),
    ],
    ids=str,
)
def test_however_the_server_ends_nothing_it_started_outlives_it(serve: Start, how: str | signal.Signals, code: int):
    served = serve("--mode", "bypassPermissions")
    marks = [f"30.{uuid.uuid4().int % 10**9}" for _ in range(2)]
    served.answer(served.call("Bash", command=f"sleep {marks[0]}", run_in_background=True))
    served.call("Bash", command=f"trap '' TERM HUP; (setsid sleep {marks[1]} &) ; sleep {marks[1]}")
    assert wait_until(lambda: all(map(running, marks)))
    if isinstance(how, signal.Signals):
        served.process.send_signal(how)
    else:
        served.to.close()
    assert served.ended() == code
    assert wait_until(lambda: not any(map(running, marks))), "a command outlived the server"


def test_a_signal_that_whoever_started_the_server_ignores_stays_ignored(project: Path, environment: dict[str, str]):
    """This is how `nohup` works."""
    process = subprocess.Popen(
        ["sh", "-c", 'trap "" HUP; exec "$@"', "sh", *SERVE],
        cwd=project,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    served = Served(process).shake_hands()
    try:
        process.send_signal(signal.SIGHUP)
        assert served.text(served.call("Think", thought="on")) == "Noted."
    finally:
        ended(served)


def test_the_sdk_is_loaded_when_serving_begins_and_not_before(wieldy: Any):
    code = "import sys, wieldy.cli.mcp as s; s.create_parser()"
    loaded = subprocess.run(
        [sys.executable, "-c", f"{code}; print(*sys.modules)"], capture_output=True, text=True, check=True
    )
    assert {"mcp", "mcp_types", "anyio", "pydantic", "uvicorn"}.isdisjoint(loaded.stdout.split())
    assert "--http" in wieldy("mcp", "serve", "--help").stdout


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--http", "0.0.0.0:0"), "token"),
        (("--http", "127.0.0.1:0"), "--no-token"),
        (("--http", "0.0.0.0:0", "--no-token"), "other machines"),
        (("--http", "127.0.0.1:0", "--no-token", "--token", "x" * 16), "--no-token"),
        (("--no-token",), "--no-token"),
        (("--http", "0.0.0.0:0", "--token", "short"), "16"),
        (("--http", "nonsense"), "HOST:PORT"),
        (("--http", "127.0.0.1:99999"), "HOST:PORT"),
        (("--root", "no-such-folder"), "there is no folder"),
        (("--mode", "no-such-mode"), "no-such-mode"),
    ],
)
def test_what_cannot_be_served_is_said_in_a_line(
    project: Path, environment: dict[str, str], options: tuple[str, ...], said: str
):
    done = subprocess.run(
        [*SERVE, *options], cwd=project, env=environment, capture_output=True, text=True, timeout=PATIENCE
    )
    assert done.returncode == 2
    assert said in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
