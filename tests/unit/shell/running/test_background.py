"""Shells in the background: looked at, waited for, ended, limited."""

from __future__ import annotations

import asyncio
import time

import pytest

from wieldy.core.errors import ToolFailure
from wieldy.core.events import Event, Notice
from wieldy.engine.workspace_services import open_workspace
from wieldy.shell.running.output import SPILL_BYTES
from wieldy.shell.running.reaper import ProcessTree, members


class Place:
    def __init__(self, tmp_path, **settings) -> None:
        self.events: list[Event] = []
        self.workspace = open_workspace(
            tmp_path, session_dir=tmp_path / "s", settings=settings, emit=self.events.append
        )

    async def __aenter__(self) -> Place:
        self.shells = self.workspace.services.background_shells
        self.session = self.workspace.services.shells
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.workspace.aclose()
        assert self.alive() == []

    def start(self, command: str) -> str:
        self.shells.require_room()
        return self.shells.adopt(self.session.start(command, cwd=self.workspace.cwd), command).id

    def alive(self) -> list[str]:
        return [process.name for process in members(ProcessTree(self.workspace.services.shells.token))]


@pytest.mark.asyncio
async def test_each_look_shows_only_what_is_new(tmp_path):
    async with Place(tmp_path) as place:
        id = place.start("echo one; until [ -e go ]; do sleep 0.02; done; echo two; exit 4")
        assert (await place.shells.read_output(id, wait=10)).text == "one\n"
        assert (await place.shells.read_output(id)).text == ""
        (tmp_path / "go").touch()
        assert (await place.shells.read_output(id, wait=10)).text == "two\n"
        last = await place.shells.read_output(id, wait=10)
        assert (last.text, last.status, last.exit_code) == ("", "exited", 4)


@pytest.mark.asyncio
async def test_a_character_that_comes_in_two_pieces_is_shown_whole(tmp_path):
    async with Place(tmp_path) as place:
        id = place.start(r"printf 'a\xf0\x9f'; until [ -e go ]; do sleep 0.02; done; printf '\x92\xa9b'")
        assert (await place.shells.read_output(id, wait=10)).text == "a"
        assert (await place.shells.read_output(id, wait=0.3)).text == ""
        (tmp_path / "go").touch()
        assert (await place.shells.read_output(id, wait=10)).text == "💩b"


@pytest.mark.asyncio
async def test_a_line_that_comes_in_two_pieces_is_matched_whole(tmp_path):
    async with Place(tmp_path) as place:
        id = place.start("printf 'rea'; until [ -e go ]; do sleep 0.02; done; echo dy; sleep 300")
        asyncio.get_running_loop().call_later(0.5, (tmp_path / "go").touch)
        assert (await place.shells.read_output(id, filter="^ready$", wait=20)).text == "ready"


@pytest.mark.asyncio
async def test_waiting_ends_with_the_shell(tmp_path):
    async with Place(tmp_path) as place:
        id = place.start("sleep 0.3; exit 4")
        output = await place.shells.read_output(id, wait=30)
        assert (output.text, output.status, output.exit_code) == ("", "exited", 4)


@pytest.mark.asyncio
async def test_waiting_for_a_pattern_passes_over_other_output(tmp_path):
    async with Place(tmp_path) as place:
        id = place.start("for i in 1 2 3; do echo line $i; sleep 0.1; done; echo ready to serve; sleep 300")
        output = await place.shells.read_output(id, filter="ready", wait=30)
        assert (output.text, output.status) == ("ready to serve", "running")


@pytest.mark.asyncio
async def test_waiting_ends_on_time(tmp_path):
    async with Place(tmp_path) as place:
        id = place.start("sleep 300")
        start = time.monotonic()
        output = await place.shells.read_output(id, wait=0.2)
        assert 0.15 < time.monotonic() - start < 5
        assert (output.text, output.status, output.exit_code) == ("", "running", None)


@pytest.mark.asyncio
async def test_killing_ends_the_whole_tree_and_the_output_remains(tmp_path):
    async with Place(tmp_path) as place:
        id = place.start("echo up; setsid sleep 300 & (trap '' TERM; sleep 300) & sleep 300")
        await place.shells.read_output(id, wait=5)
        background = await place.shells.kill(id)
        assert background.status == "killed"
        assert place.alive() == []
        assert (await place.shells.kill(id)).status == "killed"


@pytest.mark.asyncio
async def test_an_id_nobody_knows_is_answered_with_those_that_are_known(tmp_path):
    async with Place(tmp_path) as place:
        id = place.start("sleep 300")
        with pytest.raises(ToolFailure, match=f"{id} \\(running\\)"):
            await place.shells.read_output("bash_99")


@pytest.mark.asyncio
async def test_more_than_the_limit_are_refused_until_one_ends(tmp_path):
    async with Place(tmp_path, bash={"maxBackground": 2}) as place:
        first, _ = place.start("sleep 300"), place.start("sleep 300")
        with pytest.raises(ToolFailure, match="KillShell"):
            place.start("sleep 300")
        await place.shells.kill(first)
        place.start("sleep 300")


@pytest.mark.asyncio
async def test_the_end_is_announced(tmp_path):
    async with Place(tmp_path) as place:
        id = place.start("exit 3")
        await place.shells.read_output(id, wait=10)
        [notice] = place.events
        assert isinstance(notice, Notice)
        assert id in notice.text
        assert notice.data == {"shell_id": id, "status": "exited", "exit_code": 3}


@pytest.mark.asyncio
async def test_endless_output_is_capped_on_disk_and_its_end_can_be_read(tmp_path):
    async with Place(tmp_path) as place:
        id = place.start("yes; ")
        while (output := await place.shells.read_output(id, wait=5)).total_bytes < SPILL_BYTES + 30_000_000:
            pass
        assert output.omitted > 0
        assert output.text.endswith("y\n")
        assert len(output.text) <= 30_000
        assert sum(file.stat().st_size for file in (tmp_path / "s" / "tool-results").iterdir()) <= SPILL_BYTES


@pytest.mark.asyncio
async def test_a_child_that_outlives_its_shell_is_still_part_of_it(tmp_path):
    async with Place(tmp_path) as place:
        id = place.start("(sleep 0.3; echo from the child) & exit 2")
        output = await place.shells.read_output(id, wait=10)
        assert output.text == "from the child\n"
        last = await place.shells.read_output(id, wait=10)
        assert (last.status, last.exit_code) == ("exited", 2)


@pytest.mark.asyncio
async def test_closing_ends_everything_at_once(tmp_path):
    place = Place(tmp_path)
    async with place:
        for _ in range(10):
            place.start("setsid sleep 300 & sleep 300")
        await asyncio.sleep(0.2)
        assert len(place.alive()) >= 10
    assert all(shell.status == "killed" for shell in place.shells.all())


@pytest.mark.asyncio
async def test_after_the_end_of_the_session_nothing_can_be_started(tmp_path):
    async with Place(tmp_path) as place:
        place.start("true")
    with pytest.raises(ToolFailure, match="over"):
        place.start("true")
