"""kill -9 at many points of a session with commands, edits, MCP calls and HTTP calls: nothing is done twice, nothing is lost.

`WIELDY_TEST_KILLS` is the number of kills. A killed session is resumed, some are killed once more, and the last process does
what the transcript says was not done.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest

from wieldy.agent.records import CallStarted, ToolResultRecord
from wieldy.agent.transcript import records
from wieldy.core.session_files import TRANSCRIPT_NAME

KILLS = int(os.environ.get("WIELDY_TEST_KILLS", "24"))
PARTS = max(4, KILLS // 6)  # that may run side by side
ROUNDS = 3
PAUSE = 0.02  # before and after each effect, so that kills meet both sides of it

SERVER = """
import json, sys, time
TOOL = {"name": "add", "description": "Count.", "inputSchema": {"type": "object", "properties": {"word": {"type": "string"}}}}
for line in sys.stdin:
    message = json.loads(line)
    method, params, result = message.get("method"), message.get("params") or {}, {}
    if method == "initialize":
        about = {"name": "count", "version": "1"}
        result = {"protocolVersion": params["protocolVersion"], "serverInfo": about, "capabilities": {"tools": {}}}
    elif method == "tools/list":
        result = {"tools": [TOOL]}
    elif method == "tools/call":
        time.sleep(float(sys.argv[2]))
        with open(sys.argv[1], "a") as file:
            file.write(params["arguments"]["word"] + " " + params["_meta"]["wieldy/idempotencyKey"] + "\\n")
        time.sleep(float(sys.argv[2]))
        result = {"content": [{"type": "text", "text": "added"}]}
    if "id" in message:
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"""

PROGRAM = """
import asyncio, json, sys, urllib.request
from pathlib import Path
from wieldy import Script, Session, ToolContext, tool
from wieldy.core.events import Notice

place, url, pause, rounds, resume = Path(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4]), sys.argv[5] or None

def send(word, key):
    urllib.request.urlopen(urllib.request.Request(url, data=f"{word} {key}".encode(), method="POST"), timeout=20).read()
    return "sent"

@tool(needs_permission=False)
def post(word: str, ctx: ToolContext) -> str:
    "Send a word."
    return send(word, ctx.idempotency_key)

@tool(needs_permission=False, replay="safe")
def put(word: str, ctx: ToolContext) -> str:
    "Send a word to a service that takes each key once."
    return send(word, ctx.idempotency_key)

def call(word, number=1):
    kind, id = word[0], f"{word}-{number}"
    name, input = {
        "c": ("Bash", {"command": f"sleep {pause}; echo {word} >> commands; sleep {pause}"}),
        "m": ("mcp__count__add", {"word": word}),
        "p": ("post", {"word": word}),
        "q": ("put", {"word": word}),
        "e": ("Edit", {"file_path": "edits", "old_string": "END", "new_string": word + "\\nEND"}),
    }[kind]
    return {"call": name, "input": input, "id": id}

def look(id):
    return {"call": "Read", "input": {"file_path": "edits"}, "id": id}

def status(text):
    for start, name in {"Unknown:": "unknown", "Not run:": "not run"}.items():
        if text.startswith(start):
            return name
    return "done"

def statuses(messages):
    blocks = [block for message in messages for block in message["content"]]
    found = {}
    for block in blocks:
        if block["type"] == "tool_result" and not block["tool_use_id"].startswith("look"):
            content = block["content"]
            text = content if isinstance(content, str) else content[0]["text"]
            what = status(text)
            if what == "done" and block.get("is_error"):
                what = "failed: " + text
            word, _, number = block["tool_use_id"].partition("-")
            found[word] = (what, int(number))
    return found

async def main():
    words = [[f"{kind}{n}" for kind in kinds] for n in range(rounds) for kinds in ("cmp", "eq")]
    turns = [step for n, some in enumerate(words) for step in ([look(f"look-{n}")], [call(word) for word in some])]
    server = {"command": sys.executable, "args": ["-I", "-S", str(place / "server.py"), str(place / "calls"), pause]}
    options = {"tools": [post, put], "settings": {"mcpServers": {"count": server}}, "mode": "bypassPermissions"}
    model = Script([*turns, [{"text": "end"}]] if resume is None else [[{"text": "resumed"}]])
    notices = []
    async with Session(place / "project", model=model, resume=resume, **options) as session:
        session.box.subscribe(lambda event: notices.append(event.text) if isinstance(event, Notice) else None)
        await session.box.connected(30)
        await session.ask("go")
        for attempt in range(2, 9):
            found = statuses(session.messages)
            todo = [word for some in words for word in some if found.get(word, ("not run", 0))[0] == "not run"]
            if not todo:
                break
            number = max([0, *(number for _, number in found.values())]) + 1
            steps = [[look(f"look-{session.conversation.turns}-{word}")] if part else [call(word, number)]
                     for word in todo for part in (1, 0)]
            session.set_model(Script([*steps, [{"text": "end"}]]))
            await session.ask("now what was not done")
        found = statuses(session.messages)
    print(json.dumps({"statuses": {word: what for word, (what, _) in found.items()}, "notices": notices}))

asyncio.run(main())
"""


class CountingService(ThreadingHTTPServer):
    """Remembers each word and key that it was sent; takes words with `q` once for each key."""

    daemon_threads = True

    def __init__(self) -> None:
        self.sent: list[tuple[str, str]] = []
        self.lock = threading.Lock()
        super().__init__(("127.0.0.1", 0), Answering)


class Answering(BaseHTTPRequestHandler):
    server: CountingService

    def do_POST(self) -> None:
        word, key = self.rfile.read(int(self.headers["content-length"])).decode().split()
        time.sleep(PAUSE)
        with self.server.lock:
            if not (word.startswith("q") and (word, key) in self.server.sent):
                self.server.sent.append((word, key))
        time.sleep(PAUSE)
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None: ...


@pytest.fixture(scope="module")
def service() -> Iterator[CountingService]:
    with CountingService() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


class Stage:
    """One session, run by as many processes as it takes."""

    def __init__(self, place: Path, environment: Mapping[str, str], service: CountingService) -> None:
        self.place = place
        self.service = service
        self.environment = {**environment, "WIELDY_HOME": str(place / "home"), "PYTHONUNBUFFERED": "1"}
        (place / "project").mkdir(parents=True)
        (place / "project" / "edits").write_text("END\n")
        (place / "server.py").write_text(SERVER)
        (place / "program.py").write_text(PROGRAM)

    def start(self) -> subprocess.Popen[str]:
        folder = self.session_folder()
        url = f"http://127.0.0.1:{self.service.server_address[1]}/"
        arguments = [str(self.place), url, str(PAUSE), str(ROUNDS), folder.name if folder else ""]
        return subprocess.Popen(
            [sys.executable, str(self.place / "program.py"), *arguments],
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def session_folder(self) -> Path | None:
        folders = list((self.place / "home" / "sessions").glob(f"*/{TRANSCRIPT_NAME}"))
        return folders[0].parent if folders else None

    def size(self) -> int:
        folder = self.session_folder()
        return (folder / TRANSCRIPT_NAME).stat().st_size if folder else 0

    def kill_at(self, size: int, delay: float) -> bool:
        """Run until the transcript has grown by so much and some time has passed, and kill; false if it ended before."""
        before = self.size()
        process = self.start()
        while process.poll() is None and self.size() - before < size:
            time.sleep(0.001)
        time.sleep(delay)
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
        process.communicate(timeout=60)
        return process.returncode == -signal.SIGKILL

    def finish(self) -> dict[str, Any]:
        process = self.start()
        stdout, stderr = process.communicate(timeout=120)
        assert process.returncode == 0, stderr
        result: dict[str, Any] = json.loads(stdout.splitlines()[-1])
        return result

    def effects(self) -> Counter[str]:
        """How often each word was done."""
        project = self.place / "project"
        lines = [
            *_lines(project / "commands"),
            *(line for line in _lines(project / "edits") if line != "END"),
            *(line.split()[0] for line in _lines(self.place / "calls")),
        ]
        return Counter([*lines, *(word for word, _ in self.service.sent)])


def _lines(path: Path) -> list[str]:
    return path.read_text().split("\n")[:-1] if path.exists() else []


@pytest.fixture(scope="module")
def whole(tmp_path_factory, service) -> tuple[set[str], list[int]]:
    """The words of a session that nobody kills, and the sizes of its transcript when a call was begun, and at the end."""
    place = tmp_path_factory.mktemp("whole")
    stage = Stage(place, {"PATH": os.environ["PATH"], "HOME": str(place / "person")}, service)
    statuses = stage.finish()["statuses"]
    words = set(statuses)
    assert len(words) == 5 * ROUNDS and set(statuses.values()) == {"done"}, statuses
    assert stage.effects() == Counter(words)
    folder = stage.session_folder()
    assert folder is not None
    lines = (folder / TRANSCRIPT_NAME).read_bytes().splitlines(keepends=True)
    ends = list(accumulate(map(len, lines)))
    begun = [end for end, line in zip(ends, lines, strict=True) if b'"started"' in line or b'"tool_use"' in line]
    assert len(begun) > len(words)
    return words, [*begun, ends[-1]]


@pytest.mark.parametrize("part", [0, *(pytest.param(part, marks=pytest.mark.slow) for part in range(1, PARTS))])
def test_kills_at_many_points_double_nothing_lose_nothing_and_name_what_is_unknown(
    part, tmp_path, environment, service, whole
):
    words, sizes = whole
    chance = random.Random(part)
    kills = number = unknown = 0
    while kills < -(-KILLS // PARTS):
        number += 1
        service.sent.clear()
        stage = Stage(tmp_path / str(number), environment, service)
        # Most effects begin just after a call has been recorded.
        size = chance.choice(sizes[:-1]) if chance.random() < 0.7 else chance.randrange(sizes[-1])
        kills += stage.kill_at(size, chance.uniform(0, 3 * PAUSE))
        is_killed_twice = chance.random() < 0.3
        if is_killed_twice:
            kills += stage.kill_at(chance.randrange(sizes[-1] // 3), chance.uniform(0, 3 * PAUSE))
        end = stage.finish()
        effects, statuses = stage.effects(), end["statuses"]
        assert statuses.keys() == words, "nothing is lost"
        for word, what in statuses.items():
            assert what in ("done", "unknown"), (number, word, what)
            assert effects[word] in ((1,) if what == "done" else (0, 1)), (number, word, what, effects[word])
            assert what == "done" or word[0] not in "eq", "what became of these is always known"
            if what == "unknown":
                unknown += 1
                told = any(word in line and "may or may not have happened" in line for line in end["notices"])
                assert told or is_killed_twice, (number, word, end["notices"])
        started = _started_without_result(stage)
        assert started <= {word for word, what in statuses.items() if what == "unknown"}, "each unknown is named"
    print(f"{kills} kills of {number} sessions, {unknown} unknown")


def _started_without_result(stage: Stage) -> set[str]:
    """The words of calls that had started and whose only result is what was found out on resume."""
    folder = stage.session_folder()
    assert folder is not None
    started = {record.id.partition("-")[0] for record in records(folder) if isinstance(record, CallStarted)}
    results = [record.block for record in records(folder) if isinstance(record, ToolResultRecord)]
    ended = {block["tool_use_id"].partition("-")[0] for block in results if "Unknown:" not in str(block["content"])}
    return started - ended
