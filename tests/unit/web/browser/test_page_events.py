from __future__ import annotations

import asyncio

import pytest

from wieldy.web.browser import MAX_NOTES, PageEvents


def test_what_happened_is_told_once_and_the_oldest_make_room() -> None:
    events = PageEvents()
    for n in range(MAX_NOTES + 3):
        events.note(f"thing\n {n}")
        events.note(f"thing {n}")
    notes = events.take_notes()
    assert notes[0] == "(3 earlier ones are left out)"
    assert notes[1] == "thing 3"
    assert notes[-1] == f"thing {MAX_NOTES + 2}"
    assert events.take_notes() == []


@pytest.mark.asyncio
async def test_quiet_waits_for_what_is_under_way_and_not_for_ever() -> None:
    events = PageEvents()
    events.started("request")
    async with asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(events.wait_until_idle(30))
        await asyncio.sleep(0.3)
        assert not waiting.done()
        events.finished("request")
    events.started("endless")
    await events.wait_until_idle(0.2)
