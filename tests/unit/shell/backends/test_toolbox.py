"""A toolbox on a backend: every tool works there, nothing here changes, and what cannot be done there is said."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.needs import skip_untested
from tests.unit.shell.backends.guide import guide_backend

from wieldy import Backend, LocalBackend, OverlayBackend, Script, Session, StaleFileError, Toolbox, ToolResult
from wieldy.core.backend import BACKEND_MEMBERS
from wieldy.files.journal.undo import CannotUndo
from wieldy.files.search.ripgrep import find_ripgrep
from wieldy.shell.backends.overlay import overlay_problem

if not Path("/proc/self/stat").exists():
    pytest.skip("backends are tested on Linux", allow_module_level=True)


class OffLoop:
    """A backend that fails when it is called on the event loop."""

    def __init__(self, backend: Backend) -> None:
        self.direct = backend
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Any:
        value = getattr(self.direct, name)
        if name not in BACKEND_MEMBERS or not callable(value):
            return value

        def call(*args: Any, **kwargs: Any) -> Any:
            with pytest.raises(RuntimeError):
                asyncio.get_running_loop()
            self.calls.append(name)
            return value(*args, **kwargs)

        return call


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "project ü"
    (folder / "sub").mkdir(parents=True)
    (folder / "a.py").write_text("x = 1\ny = 2\n")
    (folder / "sub" / "b.txt").write_text("needle\n")
    (folder / "sub" / ".gitignore").write_text("ignored\n")
    (folder / "sub" / "ignored").write_text("needle\n")
    (folder / "link").symlink_to("/etc/passwd")
    return folder


@pytest.fixture(params=["overlay", "guide"])
def backend(
    request: pytest.FixtureRequest, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[OffLoop]:
    if request.param == "guide":
        programs = os.path.dirname(find_ripgrep().path)
        monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
        yield OffLoop(guide_backend(tmp_path))
        return
    if (problem := overlay_problem()) is not None:
        skip_untested(f"the overlay backend: {problem}")
    with OverlayBackend(root) as overlay:
        yield OffLoop(overlay)


@pytest.fixture
def make_box(root: Path, backend: OffLoop, tmp_path: Path) -> Callable[..., Toolbox]:

    def make(**options: Any) -> Toolbox:
        options = {"mode": "bypassPermissions", "settings": {}, "state_dir": tmp_path / "state", **options}
        return Toolbox(root, backend=backend, **options)

    return make


async def done(box: Toolbox, tool: str, **fields: Any) -> ToolResult:
    result = await box.call(tool, fields)
    assert not result.is_error, result.text
    return result


def is_overlay(backend: OffLoop) -> bool:
    return bool(backend.has_host_programs)


@pytest.mark.asyncio
async def test_files_are_read_edited_and_created_there(make_box, backend, root):
    async with make_box() as box:
        assert "x = 1" in (await done(box, "Read", file_path="a.py")).text
        await done(box, "Edit", file_path="a.py", old_string="x = 1", new_string="x = 10")
        await done(box, "MultiEdit", file_path="a.py", edits=[{"old_string": "y = 2", "new_string": "y = 20"}])
        await done(box, "Write", file_path="new/deep/ö.txt", content="héllo\n")
        assert (await done(box, "Read", file_path="a.py")).text == "1\tx = 10\n2\ty = 20"
    assert backend.direct.read(f"{root}/new/deep/ö.txt").decode() == "héllo\n"
    assert (root / "a.py").read_text() == ("x = 1\ny = 2\n" if is_overlay(backend) else "x = 10\ny = 20\n")


@pytest.mark.asyncio
async def test_undo_and_redo_work_there_and_remove_the_folders_that_were_made(make_box, backend, root):
    async with make_box() as box:
        await done(box, "Write", file_path="new/deep/file", content="one\n")
        await done(box, "Read", file_path="a.py")
        await done(box, "Edit", file_path="a.py", old_string="x = 1", new_string="x = 10")
        await box.undo()
        assert backend.direct.read(f"{root}/a.py") == b"x = 1\ny = 2\n"
        await box.redo()
        assert backend.direct.read(f"{root}/a.py") == b"x = 10\ny = 2\n"
        await box.undo(everything=True)
        assert backend.direct.read(f"{root}/a.py") == b"x = 1\ny = 2\n"
        with pytest.raises(FileNotFoundError):
            backend.direct.stat(f"{root}/new")


@pytest.mark.asyncio
async def test_undo_takes_back_files_there_and_the_users_memory_here_in_one_go(make_box, backend, root, tmp_path):
    env = {**os.environ, "WIELDY_HOME": str(tmp_path / "own")}
    async with make_box(env=env, settings={"features": {"memory": True}}) as box:
        await done(box, "Write", file_path="new", content="one\n")
        await done(box, "MemoryWrite", path="habits.md", content="tabs\n", scope="user")
        [memory] = (tmp_path / "own").rglob("habits.md")
        await box.undo(everything=True)
        assert not memory.exists()
        with pytest.raises(FileNotFoundError):
            backend.direct.stat(f"{root}/new")
        await box.redo()
        assert memory.read_text() == "tabs\n"
        assert backend.direct.read(f"{root}/new") == b"one\n"


@pytest.mark.asyncio
async def test_undo_here_knows_nothing_of_a_change_there(make_box, root, tmp_path):
    async with make_box() as box:
        await done(box, "Write", file_path="new", content="one\n")
        async with Toolbox(root, settings={}, state_dir=tmp_path / "state", session_id=box.id) as local:
            with pytest.raises(CannotUndo):
                await local.undo()


@pytest.mark.asyncio
async def test_a_change_by_a_command_is_merged_or_refused(make_box, backend, root):
    async with make_box() as box:
        await done(box, "Write", file_path="c.py", content="".join(f"line {n}\n" for n in range(20)))
        await done(box, "Bash", command="sed -i 's/line 19/line nineteen/' c.py")
        result = await done(box, "Edit", file_path="c.py", old_string="line 1\n", new_string="line one\n")
        assert "merged" in result.text
        text = backend.direct.read(f"{root}/c.py").decode()
        assert "line one\n" in text and "line nineteen\n" in text
        await done(box, "Bash", command="sed -i 's/line 5/line V/' c.py")
        refused = await box.call("Edit", file_path="c.py", old_string="line 5\n", new_string="line five\n")
        assert refused.is_error and "changed on disk" in refused.text
        assert b"line V\n" in backend.direct.read(f"{root}/c.py")


@pytest.mark.asyncio
async def test_commands_run_there_keep_their_folder_and_say_that_undo_does_not_cover_them(make_box, backend, root):
    async with make_box() as box:
        result = await done(box, "Bash", command="echo new > made; cd sub; echo error >&2; (exit 3); echo $?")
        assert result.text.startswith("error\n3")
        assert f"undo does not cover what commands change on {backend.id}" in result.text
        assert (await done(box, "Bash", command="pwd; ls ..")).text == f"{root}/sub\na.py\nlink\nmade\nsub"
        assert (await box.call("Bash", command="exit 4")).data["exitCode"] == 4
        with pytest.raises(CannotUndo, match="not watched"):
            await box.undo()
    assert (root / "made").exists() is not is_overlay(backend)


@pytest.mark.asyncio
async def test_a_command_out_of_time_is_ended_with_what_it_started(make_box, backend, root):
    async with make_box() as box:
        late = await box.call("Bash", command="setsid sleep 600 & sleep 600", timeout=300)
        assert late.is_error and "timed out after 0.3 s" in late.text
        started = await done(box, "Bash", command="echo begun; exec sleep 600", run_in_background=True)
        shell = started.data["backgroundTaskId"]
        assert "begun" in (await done(box, "BashOutput", shell_id=shell, wait=20)).text
        await done(box, "KillShell", shell_id=shell)
        assert "killed" in (await done(box, "BashOutput", shell_id=shell)).text


@pytest.mark.asyncio
async def test_searches_look_there(make_box, root):
    async with make_box() as box:
        await done(box, "Write", file_path="sub/c.txt", content="another needle\n")
        found = await done(box, "Grep", pattern="needle")
        assert sorted(found.data["filenames"]) == [f"{root}/sub/b.txt", f"{root}/sub/c.txt"]
        assert found.data["filenames"][0] == f"{root}/sub/c.txt"  # the newest first
        assert "sub/b.txt:1:needle" in (await done(box, "Grep", pattern="^needle", output_mode="content")).text
        assert (await done(box, "Glob", pattern="**/*.txt")).data["filenames"][0] == f"{root}/sub/c.txt"
        listing = (await done(box, "LS")).text
        assert "link -> /etc/passwd" in listing and "c.txt" in listing and "ignored" not in listing.split("[")[0]
        missing = await box.call("Read", file_path="sub/bb.txt")
        assert missing.is_error and "Did you mean" in missing.text


@pytest.mark.asyncio
async def test_a_link_there_does_not_lead_past_a_rule(make_box, backend, root):
    async with make_box(mode=None, settings={"permissions": {"deny": ["Read(//etc/**)"]}}) as box:
        denied = await box.call("Read", file_path="link")
        assert denied.is_error and "denied" in denied.text
        decision = await box.explain("Read", file_path="link")
        assert decision.behavior == "deny"
        assert (await box.explain("Write", file_path="link", content="x")).behavior == "deny"
        assert (await box.explain("Bash", command="cat link")).behavior == "deny"
        assert "passwd" not in str((await done(box, "Glob", pattern="*")).data)


@pytest.mark.asyncio
async def test_hidden_files_are_left_out_of_searches_there(make_box, root):
    async with make_box(settings={"permissions": {"deny": ["Read(./sub/**)"]}}) as box:
        assert (await done(box, "Grep", pattern="needle")).data["filenames"] == []
        assert "b.txt" not in (await done(box, "LS")).text
        assert (await done(box, "Glob", pattern="**/*.txt")).data["filenames"] == []


@pytest.mark.asyncio
async def test_long_output_is_saved_here_and_can_be_read(make_box):
    async with make_box(settings={"bash": {"maxOutputChars": 1000}}) as box:
        result = await done(box, "Bash", command="for i in $(seq 3000); do echo line $i; done")
        saved = result.data["persistedOutputPath"]
        assert Path(saved).exists()
        page = await done(box, "Read", file_path=saved, offset=2000, limit=1)
        assert "line 2000" in page.text
        assert (await done(box, "Grep", pattern="line 2999", path=saved)).data["numFiles"] == 1


@pytest.mark.asyncio
async def test_file_search_runs_there_or_says_that_it_cannot(make_box, backend, root):
    async with make_box() as box:
        result = await box.call("FileSearch", pattern="needle", replace_with="pin", preview_only=False)
        offered = {tool["name"] for tool in await box.tools_for("anthropic")}
        if is_overlay(backend):
            assert not result.is_error and backend.direct.read(f"{root}/sub/b.txt") == b"pin\n"
            assert (root / "sub" / "b.txt").read_text() == "needle\n"
        else:
            assert result.is_error and f"cannot run on {backend.id}" in result.text
            assert "FileSearch" not in offered


@pytest.mark.asyncio
async def test_git_runs_there_without_the_programs_that_its_settings_name(make_box, backend, root):
    async with make_box(mode=None, settings={}, ask=lambda question: True) as box:
        await done(box, "Bash", command="git init -q . && git add a.py && git config core.fsmonitor 'touch ran; false'")
        status = await done(box, "Bash", command="git status --short")
        assert "A  a.py" in status.text
        assert "ran" not in [entry.name for entry in backend.direct.list_folder(str(root))]


@pytest.mark.asyncio
async def test_notebooks_and_memory_live_there(make_box, backend, root):
    notebook = '{"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}'
    async with make_box(settings={"features": {"memory": True}}, ask=lambda question: True) as box:
        await done(box, "Write", file_path="n.ipynb", content=notebook)
        await done(box, "NotebookRead", notebook_path="n.ipynb")
        await done(
            box, "NotebookEdit", notebook_path="n.ipynb", new_source="1 + 1", cell_type="code", edit_mode="insert"
        )
        assert b"1 + 1" in backend.direct.read(f"{root}/n.ipynb")
        await done(box, "MemoryWrite", path="note.md", content="remember\n")
        assert backend.direct.read(f"{root}/.wieldy/memory/note.md") == b"remember\n"
        assert "note.md" in (await done(box, "MemoryRead")).text


@pytest.mark.asyncio
async def test_a_sandbox_that_settings_require_refuses_commands(make_box):
    settings = {"sandbox": {"enabled": True, "failIfUnavailable": True, "autoAllow": True}}
    async with make_box(settings=settings) as box:
        result = await box.call("Bash", command="true")
        assert result.is_error and "settings require one, so nothing was run" in result.text
    async with make_box(mode=None, settings={"sandbox": {"enabled": True, "autoAllow": True}}) as box:
        assert (await box.explain("Bash", command="touch x")).behavior == "ask"


@pytest.mark.asyncio
async def test_a_session_reads_the_instructions_of_the_project_there(backend, root, tmp_path):
    backend.direct.write(f"{root}/AGENTS.md", b"Speak of gardens only.\n", expected=None)
    model = Script([[{"text": "Roses."}]])
    async with Session(root, model=model, settings={}, backend=backend, state_dir=tmp_path / "state") as session:
        assert await session.ask("Hello?") == "Roses."
        assert "gardens only" in "\n".join(session.system_prompt)


@pytest.mark.asyncio
async def test_a_root_that_is_not_there_or_a_link_is_refused(backend, root, tmp_path):
    if is_overlay(backend):
        with pytest.raises(ValueError, match="must be a folder"):
            Toolbox(root / "none", settings={}, backend=backend)
        return
    with pytest.raises(ValueError, match="absolute path on the backend"):
        Toolbox("relative", settings={}, backend=backend)
    with pytest.raises(ValueError, match="cannot be reached on"):
        async with Toolbox("/no/such/place", settings={}, backend=backend):
            pass
    (tmp_path / "other").symlink_to(root)
    with pytest.raises(ValueError, match="give the first"):
        async with Toolbox(tmp_path / "other", settings={}, backend=backend):
            pass


def test_an_object_that_is_no_backend_is_refused(tmp_path):
    class Half:
        id = "half"

        def stat(self, path: str) -> None:
            return None

    with pytest.raises(TypeError, match=r"lacks delete, has_host_programs, list_folder"):
        Toolbox(tmp_path, settings={}, backend=Half())  # type: ignore[arg-type]


@pytest.mark.asyncio
async def test_a_local_backend_is_this_machine_with_all_it_can(root):
    with LocalBackend() as backend:
        async with Toolbox(root, mode="bypassPermissions", settings={}, backend=backend) as box:
            await done(box, "Bash", command="echo new > made")
            await box.undo()
    assert not (root / "made").exists()


@pytest.mark.asyncio
async def test_a_write_whose_answer_is_lost_is_found_out(root, tmp_path):
    class Losing(LocalBackend):
        def write(self, path, content, *, expected, mode=None):
            super().write(path, content, expected=expected, mode=mode)
            raise ConnectionResetError("the line is dead")

    with Losing() as backend:
        async with Toolbox(root, mode="bypassPermissions", settings={}, backend=backend) as box:
            await done(box, "Write", file_path="new", content="one\n")
            assert (root / "new").read_text() == "one\n"


@pytest.mark.asyncio
async def test_a_write_that_cannot_be_found_out_is_settled_at_the_next_start(root, tmp_path):
    class Dead(LocalBackend):
        alive = True

        def read(self, path, offset=0, size=None):
            if not self.alive:
                raise ConnectionResetError("the line is dead")
            return super().read(path, offset, size)

        def write(self, path, content, *, expected, mode=None):
            super().write(path, content, expected=expected, mode=mode)
            self.alive = False
            raise ConnectionResetError("the line is dead")

    options: dict[str, Any] = {"mode": "bypassPermissions", "settings": {}, "state_dir": tmp_path / "state"}
    with Dead() as backend:
        async with Toolbox(root, backend=backend, session_id="s", **options) as box:
            result = await box.call("Write", file_path="new", content="one\n")
            assert result.is_error and "is not known" in result.text
    with Dead() as backend:
        async with Toolbox(root, backend=backend, session_id="s", **options) as box:
            await box.undo()
    assert not (root / "new").exists()


@pytest.mark.asyncio
async def test_of_several_files_all_or_none_are_written(root, tmp_path):
    class Full(LocalBackend):
        def write(self, path, content, *, expected, mode=None):
            if path.endswith("c.txt") and content == b"pin\n":
                raise OSError(28, "No space left on device", path)
            return super().write(path, content, expected=expected, mode=mode)

    (root / "sub" / "c.txt").write_text("needle\n")
    with Full() as backend:
        async with Toolbox(root, mode="bypassPermissions", settings={}, backend=backend) as box:
            result = await box.call("FileSearch", pattern="needle", replace_with="pin", preview_only=False)
    assert result.is_error and "No file was changed" in result.text
    assert (root / "sub" / "b.txt").read_text() == (root / "sub" / "c.txt").read_text() == "needle\n"
    assert sorted(os.listdir(root / "sub")) == [".gitignore", "b.txt", "c.txt", "ignored"]


def test_a_stale_write_says_which_file(tmp_path):
    with LocalBackend() as backend, pytest.raises(StaleFileError, match="Nothing was written"):
        backend.write(str(tmp_path / "gone"), b"x", expected="1")


class Elsewhere(LocalBackend):
    """A folder of this machine under a path that only the backend knows."""

    has_host_programs = False
    ROOT = "/elsewhere/app"

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = str(folder)

    @property
    def id(self) -> str:
        return "elsewhere"

    def _here(self, path: str) -> str:
        return path.replace(self.ROOT, self._folder, 1) if path.startswith(self.ROOT) else f"/no/such{path}"

    def realpath(self, path: str) -> str:
        return super().realpath(self._here(path)).replace(self._folder, self.ROOT, 1).removeprefix("/no/such")

    def stat(self, path, *, follow=True):
        return super().stat(self._here(path), follow=follow)

    def list_folder(self, path):
        return super().list_folder(self._here(path))

    def read(self, path, offset=0, size=None):
        return super().read(self._here(path), offset, size)

    def write(self, path, content, *, expected, mode=None):
        return super().write(self._here(path), content, expected=expected, mode=mode)

    def delete(self, path, *, expected=None):
        super().delete(self._here(path), expected=expected)

    def spawn(self, argv, *, cwd, env, separate_stderr=False):
        programs = os.path.dirname(find_ripgrep().path)
        variables = {"PATH": f"{programs}{os.pathsep}{os.environ['PATH']}", **env}
        return super().spawn(argv, cwd=self._here(cwd), env=variables, separate_stderr=separate_stderr)


@pytest.mark.asyncio
async def test_a_root_need_not_exist_on_this_machine(root, tmp_path):
    server = Path(__file__).parents[3] / "peers" / "sdk_server.py"
    settings = {"mcpServers": {"peer": {"command": sys.executable, "args": [str(server), "stdio"]}}}
    options: dict[str, Any] = {"mode": "bypassPermissions", "state_dir": tmp_path / "state", "settings": settings}
    with Elsewhere(root) as backend:
        async with Toolbox(Elsewhere.ROOT, backend=OffLoop(backend), **options) as box:
            assert "x = 1" in (await done(box, "Read", file_path="a.py")).text
            await done(box, "Edit", file_path="/elsewhere/app/a.py", old_string="x = 1", new_string="x = 10")
            assert (await done(box, "Grep", pattern="needle")).data["filenames"] == ["/elsewhere/app/sub/b.txt"]
            assert (await done(box, "Bash", command="cat a.py")).text == "x = 10\ny = 2"
            refused = await box.call("Read", file_path="~/notes")
            assert refused.is_error and "home folder is not known there" in refused.text
            assert (await done(box, "mcp__peer__echo", text="hello")).text == "hello"
            await box.undo()
    assert (root / "a.py").read_text() == "x = 1\ny = 2\n"


@pytest.mark.asyncio
async def test_variables_of_this_machine_are_not_sent_elsewhere(root, tmp_path, monkeypatch):
    monkeypatch.setenv("HOST_ONLY", "yes")
    options: dict[str, Any] = {"mode": "bypassPermissions", "state_dir": tmp_path / "state", "settings": {}}
    with Elsewhere(root) as backend:
        async with Toolbox(Elsewhere.ROOT, backend=backend, **options) as box:
            assert (await done(box, "Bash", command='echo "[$HOST_ONLY]"')).text.startswith("[]")
        async with Toolbox(Elsewhere.ROOT, backend=backend, env={"GIVEN": "yes"}, **options) as box:
            assert (await done(box, "Bash", command='echo "[$GIVEN$HOST_ONLY]"')).text.startswith("[yes]")


@pytest.mark.asyncio
async def test_a_command_is_waited_for_where_the_system_allows_no_more_threads(make_box):
    async with make_box() as box:
        await done(box, "Bash", command="true")
        threading.stack_size(1 << 46)
        try:
            result = await box.call("Bash", {"command": "echo output; exit 3"})
        finally:
            threading.stack_size(0)
    assert "output" in result.text
    assert "exit code 3" in result.text.lower()
