"""Calls wait for file descriptors instead of failing for want of them."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys

import pytest

from wieldy.core.descriptors import PER_CALL, SPARE, DescriptorGate, open_descriptors

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs Unix resource limits")


@pytest.mark.asyncio
async def test_calls_wait_until_others_have_closed_their_descriptors():
    limit = open_descriptors() + SPARE + 3 * PER_CALL
    gate = DescriptorGate(limit)
    peaks = []

    async def call() -> None:
        async with gate.call():
            opened = [os.open(os.devnull, os.O_RDONLY) for _ in range(PER_CALL)]
            peaks.append(open_descriptors())
            await asyncio.sleep(0.02)
            for descriptor in opened:
                os.close(descriptor)

    await asyncio.gather(*(call() for _ in range(12)))
    assert len(peaks) == 12
    assert max(peaks) <= limit - SPARE


@pytest.mark.asyncio
async def test_a_call_that_was_cancelled_while_it_waited_does_not_take_the_place_of_another():
    gate = DescriptorGate(open_descriptors() + SPARE + PER_CALL)
    async with gate.call():
        waiting = [asyncio.create_task(_enter(gate)) for _ in range(3)]
        await asyncio.sleep(0.05)
        waiting[0].cancel()
        await asyncio.wait(waiting[:1])
    await asyncio.gather(*waiting[1:])
    assert not gate._waiters


async def _enter(gate: DescriptorGate) -> None:
    async with gate.call():
        pass


@pytest.mark.asyncio
async def test_a_single_call_never_waits():
    async with asyncio.timeout(5), DescriptorGate(1).call():
        pass


def test_a_toolbox_raises_the_soft_limit(tmp_path):
    code = (
        "import resource as r; hard = r.getrlimit(r.RLIMIT_NOFILE)[1]; r.setrlimit(r.RLIMIT_NOFILE, (256, hard))\n"
        "from wieldy import Toolbox; Toolbox('.')\n"
        "soft, hard = r.getrlimit(r.RLIMIT_NOFILE); print(soft > 256 or hard == 256)"
    )
    result = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert result.stdout == "True\n", result.stderr
