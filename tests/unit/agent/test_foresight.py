"""What first calls load is loaded while the model thinks, and holds up nothing."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from wieldy.agent.warmup import FIRST, LATER, PATIENCE, Foresight, make_ready
from wieldy.core.workspace import Workspace
from wieldy.shell.running.shells import ShellSession


def ran(code: str, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, str(folder), *words],
        capture_output=True,
        text=True,
        timeout=60,
        env={"PATH": "/usr/bin:/bin", "HOME": str(folder), "WIELDY_HOME": str(folder / "state")},
    )


FIRST_CALL = """
import asyncio, json, sys
from wieldy import Toolbox
from wieldy.agent.warmup import first_steps, later_steps

async def main(root, name, input, thought):
    async with Toolbox(root=root, mode="bypassPermissions", settings={}) as box:
        await box.call("Think", {"thought": "a call of any tool"})
        if name == "Edit":
            await box.call("Read", {"file_path": "a.txt"})
        for step in (*first_steps([name]), *(later_steps([name]) if thought else ())):
            step()
        before = set(sys.modules)
        result = await box.call(name, json.loads(input))
        assert not result.is_error, result.text
        print(*sorted(set(sys.modules) - before))

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.parametrize(
    ("name", "input", "thought"),
    [
        ("Read", {"file_path": "a.txt"}, ""),
        ("Edit", {"file_path": "a.txt", "old_string": "line", "new_string": "word"}, "a while"),
        *(
            ("Bash", {"command": command}, "a while")
            for command in ("true", "echo > b", "ls; sleep 0.1 | cat", "touch c && jq --help")
        ),
    ],
)
def test_a_first_call_finds_everything_loaded(tmp_path, name, input, thought):
    (tmp_path / "a.txt").write_text("a line\n")
    done = ran(FIRST_CALL, tmp_path, name, json.dumps(input), thought)
    assert (done.stdout.split(), done.stderr) == ([], "")
    assert name in FIRST or name in LATER


@pytest.mark.asyncio
async def test_an_answer_that_comes_at_once_loads_nothing():
    done = []
    async with Foresight([lambda: done.append(1)]):
        await asyncio.sleep(0)
    await asyncio.sleep(2 * PATIENCE)
    assert done == []


@pytest.mark.asyncio
async def test_a_model_that_thinks_leaves_time_for_every_step_in_another_thread():
    done: list[threading.Thread] = []
    last = threading.Event()
    async with Foresight([lambda: done.append(threading.current_thread()), last.set]):
        while not last.is_set():
            await asyncio.sleep(0.01)
    assert done[0] is not threading.main_thread()


@pytest.mark.asyncio
async def test_when_the_answer_is_there_the_step_at_hand_is_the_last():
    begun, go_on = threading.Event(), threading.Event()
    done = []

    def first() -> None:
        begun.set()
        go_on.wait(10)
        done.append("first")

    async with Foresight([first, lambda: done.append("second")]):
        while not begun.is_set():
            await asyncio.sleep(0.01)
        # From now on: the end of the block has been told before the step is let go.
        asyncio.get_running_loop().call_later(0.05, go_on.set)
    assert done == ["first"]


@pytest.mark.asyncio
async def test_the_last_step_is_taken_on_the_loop_and_only_while_the_model_still_thinks():
    done: list[threading.Thread] = []
    last = asyncio.Event()

    def note() -> None:
        done.append(threading.current_thread())
        last.set()

    async with Foresight([], note):
        await last.wait()
    assert done == [threading.current_thread()]
    begun = threading.Event()
    async with Foresight([begun.set, lambda: time.sleep(0.1)], note):
        while not begun.is_set():
            await asyncio.sleep(0.01)
    assert len(done) == 1


@pytest.mark.asyncio
async def test_what_guards_commands_is_there_before_the_first_one_where_there_may_be_one(tmp_path):
    workspace = Workspace(tmp_path, session_dir=tmp_path / "session")
    make_ready(["Read"], workspace)
    guardian = workspace.resident(ShellSession).guardian
    assert guardian.pid is None
    make_ready(["Read", "Bash"], workspace)
    assert guardian.pid is not None
    await workspace.aclose()
    assert guardian.pid is None
    assert not (tmp_path / "session").exists()


@pytest.mark.asyncio
async def test_a_failing_request_is_what_is_heard_of():
    with pytest.raises(ConnectionError):
        async with Foresight([]):
            raise ConnectionError


@pytest.mark.asyncio
async def test_what_cannot_be_loaded_is_left_to_the_call_that_needs_it():
    done = threading.Event()

    def missing() -> None:
        raise ImportError("no such module")

    async with Foresight([missing, done.set]):
        while not done.is_set():
            await asyncio.sleep(0.01)


FIRST_REQUEST = """
import asyncio, sys
from wieldy import Session, Script
from wieldy.agent import exchange

class Model(Script):
    def answer(self, request):
        print(*(name in sys.modules for name in ("wieldy.files.reading.read_file", "wieldy.shell.policy.analysis")))
        return super().answer(request)

async def main(root, builtins, seconds):
    exchange.AT_MOST = float(seconds)
    async with Session(root, model=Model().says("hello"), settings={}, builtins=bool(builtins)) as session:
        assert await session.ask("go") == "hello"

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.parametrize(
    ("builtins", "seconds", "loaded"),
    [("yes", "60", "True True"), ("", "60", "False False"), ("yes", "0", "False False")],
)
def test_before_a_model_is_first_asked_that_is_loaded_which_it_is_offered(tmp_path, builtins, seconds, loaded):
    done = ran(FIRST_REQUEST, tmp_path, builtins, seconds)
    assert (done.stdout.strip(), done.stderr) == (loaded, "")


GUARDED = """
import asyncio, sys
from wieldy import Session, Script
from wieldy.shell.running.shells import ShellSession

class Model(Script):
    def answer(self, request):
        guardian = session.box.workspace.resident(ShellSession).guardian
        print(guardian.pid is not None)
        return super().answer(request)

class Remote(Model):
    def approach(self):
        return asyncio.get_running_loop().create_task(asyncio.sleep(0))

async def main(root, model, builtins):
    global session
    model = {"there": Model, "away": Remote}[model]().says("hello")
    async with Session(root, model=model, settings={}, builtins=bool(builtins)) as session:
        assert await session.ask("go") == "hello"

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.parametrize(
    ("model", "builtins", "guarded"), [("away", "yes", "True"), ("away", "", "False"), ("there", "yes", "False")]
)
def test_the_guardian_is_on_its_way_before_a_model_is_asked_that_may_run_commands(tmp_path, model, builtins, guarded):
    done = ran(GUARDED, tmp_path, model, builtins)
    assert (done.stdout.strip(), done.stderr) == (guarded, "")
