from __future__ import annotations

import asyncio

import pytest

from wieldy.browser.launch import MOST, Happenings


def test_what_happened_is_told_once_and_the_oldest_make_room() -> None:
    happenings = Happenings()
    for n in range(MOST + 3):
        happenings.note(f"thing\n {n}")
        happenings.note(f"thing {n}")
    told = happenings.told()
    assert told[0] == "(3 earlier ones are left out)"
    assert told[1] == "thing 3"
    assert told[-1] == f"thing {MOST + 2}"
    assert happenings.told() == []


@pytest.mark.asyncio
async def test_quiet_waits_for_what_is_under_way_and_not_for_ever() -> None:
    happenings = Happenings()
    happenings.begun("request")
    async with asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(happenings.quiet(30))
        await asyncio.sleep(0.3)
        assert not waiting.done()
        happenings.ended("request")
    happenings.begun("endless")
    await happenings.quiet(0.2)
