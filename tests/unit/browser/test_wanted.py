from __future__ import annotations

import asyncio

import pytest

from wieldy.browser.network import Wanted


@pytest.mark.asyncio
async def test_a_host_is_wanted_once_a_page_has_asked_for_it() -> None:
    wanted = Wanted()
    wanted.note("https://Shop.example:8443/x")
    assert await wanted.has("shop.example", patience=0)
    assert not await wanted.has("update.example", patience=0.01)


@pytest.mark.asyncio
async def test_who_comes_early_waits_a_moment() -> None:
    wanted = Wanted()
    async with asyncio.TaskGroup() as tasks:
        early = [tasks.create_task(wanted.has("shop.example", patience=5)) for _ in range(3)]
        await asyncio.sleep(0)
        wanted.note("http://[")
        wanted.note("wss://shop.example/live")
    assert [task.result() for task in early] == [True, True, True]
