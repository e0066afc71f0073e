from __future__ import annotations

import asyncio

import pytest

from wieldy.web.browser import RequestedHosts


@pytest.mark.asyncio
async def test_a_host_is_wanted_once_a_page_has_asked_for_it() -> None:
    hosts = RequestedHosts()
    hosts.add("https://Shop.example:8443/x")
    assert await hosts.wait_for("shop.example", timeout=0)
    assert not await hosts.wait_for("update.example", timeout=0.01)


@pytest.mark.asyncio
async def test_who_comes_early_waits_a_moment() -> None:
    hosts = RequestedHosts()
    async with asyncio.TaskGroup() as tasks:
        early = [tasks.create_task(hosts.wait_for("shop.example", timeout=5)) for _ in range(3)]
        await asyncio.sleep(0)
        hosts.add("http://[")
        hosts.add("wss://shop.example/live")
    assert [task.result() for task in early] == [True, True, True]
