"""The programs of the library guide: each is run as it is printed, and all pass the type checkers."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from socket import socket
from types import ModuleType
from typing import Any, get_args
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from tests.needs import skip_untested
from tests.unit.models.wire import STREAMS, loopback, stream

from wieldy import AnyEvent, Script, Session, Store, Toolbox
from wieldy.shell.backends.overlay import overlay_problem

DOCS = Path(__file__).parents[2] / "docs"
PROGRAMS: dict[str, str] = {
    name: code
    for code in re.findall(r"```python\n(.*?)```", (DOCS / "library.md").read_text(encoding="utf-8"), re.DOTALL)
    for name in re.findall(r"\A# (\w+)\.py\n", code)
}


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WIELDY_HOME", str(tmp_path / "home"))


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "a.txt").write_text("hello\n")
    return folder


def program(name: str, folder: Path) -> ModuleType:
    path = folder / f"{name}.py"
    path.write_text(PROGRAMS[name])
    spec = importlib.util.spec_from_file_location(f"guide_{name}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


READ: list[Any] = [("call", "c1", "Read", '{"file_path": "a.txt"}')]


@pytest.mark.asyncio
@pytest.mark.parametrize(("name", "wire"), [("anthropic_loop", "anthropic"), ("openai_loop", "openai")])
async def test_the_loops_around_the_sdks(project, tmp_path, name, wire):
    module = program(name, tmp_path)
    replies = (stream(STREAMS[wire](READ, 5)), stream(STREAMS[wire]([("text", "It says hello.")])))
    async with loopback(*replies) as server, Toolbox(project, settings={}) as box:
        if wire == "anthropic":
            from anthropic import AsyncAnthropic

            async with AsyncAnthropic(api_key="key", base_url=server.url, max_retries=0) as client:
                assert await module.ask(client, box, "What does a.txt say?") == "It says hello."
        else:
            from openai import AsyncOpenAI

            async with AsyncOpenAI(api_key="key", base_url=server.url, max_retries=0) as openai:
                assert await module.ask(openai, box, "What does a.txt say?") == "It says hello."
        assert "hello" in str(server.received[1].body["messages"][-1])


def test_calling_tools(project, tmp_path):
    read, written, listed, why = asyncio.run(program("calls", tmp_path).tour(str(project)))
    assert "hello" in read
    assert "b.txt" in written
    assert "a.txt" in listed
    assert why.startswith("deny: rule `Bash(git push:*)`")
    assert not (project / "b.txt").exists()


@pytest.mark.asyncio
async def test_tools_of_ones_own(project, tmp_path):
    async with Toolbox(project, settings={}, tools=[program("line_count", tmp_path).count]) as box:
        program("weather", tmp_path).add_weather(box)
        assert (await box.call("count", path="a.txt")).data == {"lines": 1}
        assert (await box.call("weather", city="Rome")).text == "sunny in Rome"


@pytest.mark.asyncio
async def test_a_tool_with_a_key_of_its_call(project, tmp_path):
    allowed = {"permissions": {"allow": ["pay"]}}
    async with Toolbox(project, settings=allowed, tools=[program("payment", tmp_path).pay]) as box:
        one, other = await box.call("pay", order="7"), await box.call("pay", order="7")
    assert re.match(r"paid 7 once, by the key \w+", one.text)
    assert one.text != other.text


@pytest.mark.asyncio
async def test_a_first_session(project, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(project)
    await program("first", tmp_path).main(Script([[{"text": "It greets."}]]))
    assert capsys.readouterr().out == "It greets.\n"


@pytest.mark.asyncio
async def test_going_back_to_a_prompt(project, tmp_path, capsys):
    write = {"call": "Write", "input": {"file_path": "b.txt", "content": "b"}}
    model = Script([[{"text": "hi"}], [write], [{"text": "made"}]])
    module = program("go_back", tmp_path)
    async with Session(project, model=model, settings={}, mode="acceptEdits") as session:
        await session.ask("hello")
        await session.ask("make b")
        await module.go_back(session, 2)
        assert not (project / "b.txt").exists()
        assert len(session.messages) == 2
        await module.go_forward(session)
        assert (project / "b.txt").exists()
        assert len(session.messages) == 6
    assert "2 make b" in capsys.readouterr().out


def test_dependencies(project, tmp_path):
    assert asyncio.run(program("shop", tmp_path).look_up(str(project), "tea")) == "3"


@pytest.mark.asyncio
async def test_a_typed_answer(project, tmp_path):
    module = program("plan", tmp_path)
    model = Script([[{"text": '{"goal": "tea", "steps": ["boil"]}'}]])
    async with Session(project, model=model, settings={}) as session:
        assert await module.make_plan(session, "make tea") == module.Plan("tea", ["boil"])


@contextmanager
def running(command: list[str], folder: Path, announces: str, **env: str) -> Iterator[str]:
    """Run a server of the guide until the end of the block; yields the URL that it announces."""
    with (folder / "log").open("w+") as log:
        process = subprocess.Popen(command, cwd=folder, env={**os.environ, **env}, stdout=log, stderr=log)
        try:
            for _ in range(600):
                found = re.search(announces, (folder / "log").read_text())
                if found:
                    break
                assert process.poll() is None, (folder / "log").read_text()
                time.sleep(0.1)
            assert found is not None, (folder / "log").read_text()
            yield found[1]
        finally:
            process.terminate()
            process.wait(30)


def request(url: str, body: Any = None) -> tuple[int, Any]:
    data = None if body is None else json.dumps(body).encode()
    try:
        with urlopen(Request(url, data), timeout=60) as reply:
            return reply.status, json.load(reply)
    except HTTPError as error:
        with error:
            return error.code, json.load(error)


def test_approvals_over_a_web_service_that_is_restarted_in_between(project, tmp_path):
    (tmp_path / "approvals.py").write_text(PROGRAMS["approvals"])
    scripts: list[list[list[dict[str, Any]]]] = [
        [[{"text": "I will."}, {"call": "Bash", "input": {"command": "touch made"}, "id": "a"}]],
        [[{"call": "Bash", "input": {"command": "touch more"}, "id": "b"}], [{"text": "done"}]],
    ]
    for number, turns in enumerate(scripts):
        (tmp_path / f"script-{number}.json").write_text(json.dumps({"turns": turns}))
    command = [sys.executable, "-m", "uvicorn", "approvals:app", "--port", "0"]

    def serving(number: int) -> AbstractContextManager[str]:
        env = {"PROJECT": str(project), "MODEL": f"script:{tmp_path}/script-{number}.json"}
        return running(command, tmp_path, r"running on (http://[\d.:]+)", **env)

    with serving(0) as url:
        status, state = request(f"{url}/sessions", {"prompt": "make it"})
        assert (status, state["text"]) == (200, "I will.")
        assert [(question["id"], question["input"]) for question in state["questions"]] == [
            ("a", {"command": "touch made"})
        ]
    assert not (project / "made").exists()
    with serving(1) as url:
        session = f"{url}/sessions/{state['session']}"
        assert request(session)[1]["questions"] == state["questions"]
        assert request(f"{session}/answers", {"nonsense": True})[0] == 409
        status, state = request(f"{session}/answers", {"a": True})
        assert (status, [question["id"] for question in state["questions"]]) == (200, ["b"])
        assert (project / "made").exists()
    (tmp_path / "script-1.json").write_text(json.dumps({"turns": [[{"text": "done"}]]}))
    with serving(1) as url:
        session = f"{url}/sessions/{state['session']}"
        assert request(f"{session}/answers", {"b": "not now"})[1]["text"] == "done"
        assert request(f"{session}/answers", {"b": True}) == (409, {"error": "no question is waiting for an answer"})
        assert request(f"{url}/sessions/nowhere")[0] == 409
    assert not (project / "more").exists()


@pytest.mark.asyncio
async def test_storage(project, tmp_path):
    store: Store = program("sqlite_store", tmp_path).SqliteStore(str(tmp_path / "sessions.db"))
    async with Session(project, model=Script([[{"text": "one"}]]), settings={}, store=store) as session:
        await session.ask("go")
    assert await store.list() == [session.id]
    async with Session(
        project, model=Script([[{"text": "two"}]]), settings={}, store=store, resume=session.id
    ) as again:
        assert await again.ask("go on") == "two"
        assert len(again.messages) == 4


@pytest.mark.asyncio
async def test_watching(project, tmp_path, capsys):
    usage = {"usage": {"input_tokens": 3, "output_tokens": 7}}
    model = Script([[{"call": "Read", "input": {"file_path": "a.txt"}}], [{"text": "hello"}, usage]])
    async with Session(project, model=model, settings={}) as session:
        assert await program("watch", tmp_path).show(session, "go") == 7
    printed = capsys.readouterr().out
    assert "[Read {'file_path': " in printed
    assert printed.endswith("hello")


def test_testing(project, tmp_path):
    asyncio.run(program("greeting_test", tmp_path).test_the_agent_greets(str(project)))


@pytest.mark.asyncio
async def test_serving(project, tmp_path):
    from mcp import Client

    with socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (tmp_path / "serve.py").write_text(PROGRAMS["serve"].replace("8931", str(port)))
    command = [sys.executable, str(tmp_path / "serve.py")]
    process = await asyncio.create_subprocess_exec(*command, cwd=project)
    try:
        for _ in range(600):
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.close()
                break
            except OSError:
                await asyncio.sleep(0.1)
        async with Client(f"http://127.0.0.1:{port}/mcp") as client:
            result = await client.call_tool("double", {"number": 4})
            assert [block.model_dump()["text"] for block in result.content] == ["8"]
            assert {"double", "Read"} <= {tool.name for tool in (await client.list_tools()).tools}
    finally:
        process.terminate()
        await process.wait()


def test_every_program_is_run_by_a_test():
    here = Path(__file__)
    sources = [
        path.read_text(encoding="utf-8")
        for path in (here, here.parents[1] / "unit" / "shell" / "backends" / "guide.py")
    ]
    run = {name for name in PROGRAMS for source in sources if f'"{name}"' in source or f'"{name}.py"' in source}
    assert PROGRAMS.keys() == run
    blocks = re.findall(r"```python\n(.*?)```", (DOCS / "library.md").read_text(encoding="utf-8"), re.DOTALL)
    assert [block for block in blocks if block.count("\n") > 1 and block not in PROGRAMS.values()] == []


def test_the_table_of_events_is_that_of_the_classes():
    page = (DOCS / "library.md").read_text(encoding="utf-8")
    for event in get_args(AnyEvent):
        fields = ", ".join(f"`{name}`" for name in event.__struct_fields__ if name != "at")
        assert f"| `{event.kind}` | `{event.__name__}` | {fields} |" in page


def write_all(folder: Path) -> list[str]:
    for name, code in PROGRAMS.items():
        (folder / f"{name}.py").write_text(code)
    return [f"{name}.py" for name in PROGRAMS]


def check(command: list[str], folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_programs_pass_mypy_strict(tmp_path):
    files = write_all(tmp_path)
    check([sys.executable, "-m", "mypy", "--strict", "--no-incremental", "--config-file=", *files], tmp_path)


def test_the_programs_pass_pyright(tmp_path):
    program = shutil.which("pyright", path=f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}")
    if program is None:
        skip_untested("pyright is not installed")
    started = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=300, check=False)
    if started.returncode != 0:
        skip_untested("pyright cannot run: it needs Node.js and its npm package")
    files = write_all(tmp_path)
    check([program, "--pythonpath", sys.executable, *files], tmp_path)


@pytest.mark.asyncio
async def test_the_data_of_results_has_the_documented_fields(project):
    rows = re.findall(
        r"^\| ([\w, ]+) \| (.*) \|$",
        (DOCS / "tools.md").read_text(encoding="utf-8").partition("## Data of results")[2],
        re.M,
    )
    documented = {name.strip(): fields for names, fields in rows for name in names.split(",")}
    calls: list[tuple[str, dict[str, Any]]] = [
        ("Read", {"file_path": "a.txt"}),
        ("Write", {"file_path": "b.txt", "content": "x"}),
        ("Edit", {"file_path": "a.txt", "old_string": "hello", "new_string": "moon"}),
        ("Grep", {"pattern": "moon", "output_mode": "content"}),
        ("Glob", {"pattern": "*.txt"}),
        ("LS", {"path": "."}),
        ("FileSearch", {"pattern": "moon", "path": "."}),
        ("Bash", {"command": "echo hi"}),
        ("TodoWrite", {"todos": [{"content": "x", "status": "pending", "activeForm": "y"}]}),
    ]
    async with Toolbox(project, settings={}, mode="bypassPermissions") as box:
        for name, input in calls:
            result = await box.call(name, input)
            assert not result.is_error, result.text
            for field in result.data:
                assert f"`{field}`" in documented[name], (name, field)


def test_a_layer_over_a_folder(project, tmp_path):
    if (problem := overlay_problem()) is not None:
        skip_untested(f"the overlay backend: {problem}")
    module = program("try_out", tmp_path)
    changes = asyncio.run(module.try_out(str(project), "rm a.txt; echo new > 'b c.txt'"))
    assert changes == ["deleted a.txt", "created b c.txt"]
    assert os.listdir(project) == ["a.txt"]


def test_the_checks_of_the_guide_run_under_pytest(tmp_path):
    (tmp_path / "test_my_backend.py").write_text(PROGRAMS["test_my_backend"])
    check([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "reads_", str(tmp_path)], tmp_path)
