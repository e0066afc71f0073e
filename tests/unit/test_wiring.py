"""One function builds the services of a toolbox and, from its parent's, those of a subagent."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from wieldy import Toolbox
from wieldy.core.abort import Abort
from wieldy.core.workspace import ChildWorkspace, Workspace
from wieldy.diagnostics.review import Diagnostics
from wieldy.engine.services import Services
from wieldy.toolset.toolset import Activations, Toolset
from wieldy.wiring import build_services


class Adviser:
    def wants(self, plan):
        return True

    async def advise(self, plan):
        raise AssertionError("nothing is called")


def abort_of_checkers(services: Services) -> Abort:
    [checkers] = [reviewer for reviewer in services.reviewers if isinstance(reviewer, Diagnostics)]
    return checkers._abort


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.setenv("WIELDY_HOME", str(tmp_path / "state"))
    (tmp_path / "project").mkdir()
    return tmp_path / "project"


def build_child(box: Toolbox, abort: Abort):
    workspace = ChildWorkspace(
        box.workspace, session_dir=box.workspace.session_dir, isolated=(Activations,), emit=print
    )
    return build_services(box.settings, workspace, box.services, parts=box.parts, abort=abort)


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
        assert child.workspace.service(Toolset) is not box.workspace.service(Toolset)
        assert child.workspace.service(Activations) is not box.workspace.service(Activations)


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
        assert box.parts.hooks() is None
        assert box.services.approver is box.parts.person
        services = build_services(
            box.settings,
            Workspace(root, session_dir=root / "other"),
            parts=replace(box.parts, on_question=[].append),
        )
        assert services.approver is not box.parts.person


def test_a_service_in_use_is_not_replaced(root):
    workspace = Workspace(root, session_dir=root)
    workspace.service(Activations)
    with pytest.raises(AssertionError, match="Activations is already in use"):
        workspace.provide(Activations())


def test_a_child_uses_what_it_is_given_and_else_what_its_parent_has(root):
    parent = Workspace(root, session_dir=root)
    child = ChildWorkspace(parent, session_dir=root, isolated=(), emit=print)
    assert child.service(Activations) is parent.service(Activations)
    child.provide(own := Activations())
    assert child.service(Activations) is own is not parent.service(Activations)
