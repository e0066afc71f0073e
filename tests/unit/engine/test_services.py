"""The services of the calls of a toolbox and, made from its parent's, of a subagent."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from msgspec.structs import replace

from wieldy import Toolbox
from wieldy.core.supervise import Abort
from wieldy.core.workspace import ChildWorkspace, Workspace
from wieldy.engine.services import CallServices, build_toolset
from wieldy.engine.workspace_services import HostServices, WorkspaceServices, open_workspace
from wieldy.shell.diagnostics.review import Diagnostics


class Adviser:
    def wants(self, plan):
        return True

    async def advise(self, plan):
        raise AssertionError("nothing is called")


def abort_of_checkers(services: CallServices) -> Abort:
    [checkers] = [reviewer for reviewer in services.reviewers if isinstance(reviewer, Diagnostics)]
    return checkers._abort


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.setenv("WIELDY_HOME", str(tmp_path / "state"))
    (tmp_path / "project").mkdir()
    return tmp_path / "project"


def build_child(box: Toolbox, abort: Abort, host: HostServices | None = None):
    workspace = ChildWorkspace(
        box.workspace,
        session_dir=box.workspace.session_dir,
        emit=print,
        services=lambda workspace: WorkspaceServices(
            workspace,
            host or HostServices(),
            parent=box.workspace.services,
            make_toolset=lambda *given: build_toolset(box.catalog, box.services, *given),
        ),
    )
    services = replace(box.services, catalog=box.catalog, workspace=workspace)
    return services.activating().configured(box.settings, abort)


@pytest.mark.asyncio
async def test_a_child_shares_queue_limits_and_advisers_and_has_its_own_abort_flag_and_toolset(root):
    adviser = Adviser()
    async with Toolbox(root, settings={"tools": {"Read": {"timeout": 3}}}, advisers=[adviser]) as box:
        child = build_child(box, abort := Abort())
        assert child.queue is box.services.queue
        assert child.supervisor is box.services.supervisor
        assert child.limits is box.services.limits is not None
        assert adviser in child.advisers
        assert child.abort is abort
        assert child.workspace.services.toolset is not box.workspace.services.toolset
        assert child.workspace.services.activations is not box.workspace.services.activations


@pytest.mark.asyncio
async def test_the_checkers_of_a_child_stop_with_the_child(root):
    async with Toolbox(root, settings={"edit": {"diagnostics": True}}) as box:
        child = build_child(box, abort := Abort())
        assert abort_of_checkers(child) is abort
        assert abort_of_checkers(box.services) is box.services.abort


@pytest.mark.asyncio
async def test_after_an_abort_calls_to_come_get_collaborators_that_are_not_aborted(root):
    async with Toolbox(root, settings={"edit": {"diagnostics": True}}) as box:
        before = box.services
        box.abort("enough")
        assert before.abort.aborted and abort_of_checkers(before).aborted
        assert not box.services.abort.aborted and not abort_of_checkers(box.services).aborted
        assert box.services.queue is before.queue


@pytest.mark.asyncio
async def test_hooks_are_loaded_only_where_there_are_any(root):
    async with Toolbox(root, settings={}) as box:
        assert box.services.hooks() is None
        assert box.services.approver is box.services.person
        services = replace(box.services, on_question=[].append).configured(box.settings, Abort())
        assert services.approver is not box.services.person


OWN = {"read_state", "recent_reads", "toolset", "activations", "todo_list", "subagent_access"}
NAMES = {name for name, value in vars(WorkspaceServices).items() if type(value).__name__ == "_Service"}


@pytest.mark.asyncio
async def test_a_child_has_the_state_of_a_conversation_to_itself_and_shares_the_rest(root):
    async def complete(system, messages, max_tokens):
        raise AssertionError("nothing is sent")

    async with Toolbox(root, settings={}, host=HostServices(side_model=complete)) as box:
        child, parent = build_child(box, Abort()).workspace.services, box.workspace.services
        assert {name for name in NAMES if getattr(child, name) is not getattr(parent, name)} == OWN
        await child.aclose()
        assert parent.journal is box.workspace.services.journal


@pytest.mark.asyncio
async def test_a_child_closes_its_own_services_only(root):
    async with Toolbox(root, settings={}) as box:
        child = build_child(box, Abort())
        todo_list, shells = child.workspace.services.todo_list, child.workspace.services.shells
        await child.workspace.aclose()
        assert box.workspace.services.shells is shells
        assert child.workspace.services.todo_list is not todo_list


@pytest.mark.asyncio
async def test_services_are_closed_newest_first_and_only_those_that_were_made(root):
    closed: list[str] = []

    class Closing:
        def __init__(self, name: str) -> None:
            self.name = name

        async def aclose(self) -> None:
            closed.append(self.name)

    workspace = open_workspace(root, session_dir=root)
    workspace.services.create("first", lambda services: Closing("first"))
    workspace.services.create("second", lambda services: Closing("second"))
    workspace.services.create("first", lambda services: Closing("never made"))
    await workspace.aclose()
    assert closed == ["second", "first"]


def test_threads_that_ask_at_once_get_the_same_service(root):
    for _ in range(20):
        services = open_workspace(root, session_dir=root).services
        barrier = threading.Barrier(8)

        def ask(services=services, barrier=barrier):
            barrier.wait()
            return services.read_state

        with ThreadPoolExecutor(8) as pool:
            assert len(set(map(id, pool.map(lambda _: ask(), range(8))))) == 1


def test_a_workspace_without_services_says_so(root):
    with pytest.raises(AssertionError, match="without services"):
        _ = Workspace(root, session_dir=root).services


@pytest.mark.asyncio
async def test_a_service_that_cannot_be_closed_keeps_no_other_open(tmp_path):
    closed = []

    class Closable:
        def __init__(self, name: str, *, fails: bool = False) -> None:
            self.name = name
            self.fails = fails

        async def aclose(self) -> None:
            if self.fails:
                raise OSError(self.name)
            closed.append(self.name)

    services = WorkspaceServices(Workspace(tmp_path, session_dir=tmp_path), HostServices())
    services.create("first", lambda _: Closable("first"))
    services.create("second", lambda _: Closable("second", fails=True))
    services.create("third", lambda _: Closable("third"))
    with pytest.raises(OSError, match="second"):
        await services.aclose()
    assert closed == ["third", "first"]
