"""Many sessions in a process that may open few files wait for one another instead of failing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="NOT TESTED: limits of descriptors: there are none")

SCRIPT = """
import asyncio, os, resource, sys, threading
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
from wieldy import Script, Session

async def work(number):
    model = Script().calls("Bash", command="sleep 0.1; echo done").calls("Write", file_path=f"f{number}", content="x").says("ok")
    async with Session(sys.argv[1], model=model, settings={}, mode="bypassPermissions") as session:
        failures = []
        async for event in session.run("go"):
            if type(event).__name__ == "ToolFailed":
                failures.append(event.result.text)
            elif type(event).__name__ == "RunEnded" and event.is_error:
                failures.append(event.detail)
        return failures

async def main():
    before = len(os.listdir("/dev/fd"))
    results = await asyncio.gather(*map(work, range(60)))
    assert not any(results), [each for each in results if each][:3]
    assert len(os.listdir("/dev/fd")) <= before + 2, os.listdir("/dev/fd")

asyncio.run(main())
"""


IDLE_SCRIPT = """
import asyncio, resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
from wieldy import Script, Session

def write(name):
    return [{"call": "Write", "input": {"file_path": name, "content": "x"}}]

async def work(number, barrier):
    model = Script([write(f"a{number}"), [{"text": "x"}], write(f"b{number}"), [{"text": "x"}]])
    async with Session(sys.argv[1], model=model, settings={}, mode="acceptEdits") as session:
        for _ in range(2):
            await session.ask("go")
            await barrier.wait()

async def main():
    barrier = asyncio.Barrier(100)
    await asyncio.gather(*(work(number, barrier) for number in range(100)))

asyncio.run(main())
"""


@pytest.mark.parametrize(("script", "files"), [(SCRIPT, 60), (IDLE_SCRIPT, 200)])
def test_many_sessions_under_a_hard_limit_of_256_descriptors_all_finish(tmp_path: Path, script: str, files: int):
    """Sixty that run commands at the same time, and a hundred that are open and mostly idle."""
    (tmp_path / "project").mkdir()
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "project")],
        env={**os.environ, "WIELDY_HOME": str(tmp_path / "home")},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert len(list((tmp_path / "project").iterdir())) == files
