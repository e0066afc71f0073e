"""asyncio without what most runs never look into: nothing of it is missing to whoever does look."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

from wieldy.cli.deferred import stand_ins

SRC = Path(__file__).parents[3] / "src"
START = (
    f"import sys; sys.path.insert(0, {str(SRC)!r})\nfrom wieldy.cli.deferred import import_asyncio; import_asyncio()\n"
)


def ran(code: str, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-S", *options, "-c", START + code], capture_output=True, text=True, timeout=60, check=True
    )


@pytest.mark.parametrize("one", stand_ins(), ids=lambda one: one.__name__)
def test_what_stands_in_for_a_module_has_the_values_of_the_module(one):
    real = importlib.import_module(one.__name__)
    for name, value in vars(one).items():
        if name.isupper():
            assert value == getattr(real, name)
        elif not name.startswith("__"):
            assert callable(getattr(real, name))


def test_asyncio_loads_none_of_them():
    done = ran("print(*(name for name in sys.modules))")
    assert "asyncio.subprocess" in done.stdout.split()
    left = {"concurrent.futures", "logging", "ssl", "subprocess", "traceback", "tokenize", "textwrap"}
    assert not left & set(done.stdout.split())


def test_whoever_imports_one_of_them_gets_the_module_itself():
    done = ran(
        "import concurrent.futures, linecache, logging, ssl, subprocess, traceback\n"
        "for module in (concurrent.futures, linecache, logging, ssl, subprocess, traceback): print(module.__spec__.name)"
    )
    assert done.stdout.split() == ["concurrent.futures", "linecache", "logging", "ssl", "subprocess", "traceback"]


def test_json_is_read_as_ever():
    done = ran(
        "import json\n"
        "print('json.scanner' in sys.modules, json.loads('[-1.5e3, 7]'))\n"
        "from json.scanner import NUMBER_RE; print(NUMBER_RE.match('12').group())"
    )
    assert done.stdout.splitlines() == ["False [-1500.0, 7]", "12"]


def test_a_process_and_a_thread_of_the_pool_run_as_ever():
    done = ran(
        "import asyncio\n"
        "async def main():\n"
        "    one = await asyncio.create_subprocess_exec(sys.executable, '-S', '-c', 'print(7)', stdout=asyncio.subprocess.PIPE)\n"
        "    print((await one.communicate())[0].decode().strip())\n"
        "    print(await asyncio.to_thread(lambda: 8))\n"
        "    loop = asyncio.get_running_loop()\n"
        "    asked = await asyncio.to_thread(lambda: asyncio.run_coroutine_threadsafe(asyncio.sleep(0, 9), loop).result())\n"
        "    print(asked)\n"
        "asyncio.run(main())"
    )
    assert done.stdout.split() == ["7", "8", "9"]


def test_what_a_process_says_is_text_as_the_locale_has_it():
    done = ran(
        "import subprocess\n"
        "print('getencoding' in vars(sys.modules['locale']))\n"
        "said = subprocess.run([sys.executable, '-S', '-c', 'print(7)'], capture_output=True, text=True).stdout\n"
        "print(said.strip(), 'getencoding' in vars(sys.modules['locale']))"
    )
    assert done.stdout.split() == ["False", "7", "True"]


def test_a_failure_nobody_awaits_is_still_complained_about():
    done = ran(
        "import asyncio\n"
        "async def lost(): raise ValueError('lost one')\n"
        "async def main():\n"
        "    task = asyncio.create_task(lost())\n"
        "    await asyncio.sleep(0.01)\n"
        "asyncio.run(main())"
    )
    assert "Task exception was never retrieved" in done.stderr
    assert "ValueError: lost one" in done.stderr


def test_the_debug_mode_of_asyncio_knows_where_a_task_was_made():
    done = ran(
        "import asyncio\n"
        "async def made():\n    task = asyncio.create_task(asyncio.sleep(0)); print(task.get_name(), task); await task\n"
        "asyncio.run(made(), debug=True)",
        "-X",
        "dev",
    )
    assert "tasks.py" in done.stdout.partition("created at ")[2]


def test_a_socket_of_tls_is_still_known_as_one():
    done = ran(
        "import asyncio.selector_events as e, socket\n"
        "plain = socket.socket()\n"
        "print(isinstance(plain, e.ssl.SSLSocket))\n"
        "import ssl\n"
        "secure = ssl.create_default_context().wrap_socket(plain, server_hostname='a')\n"
        "print(isinstance(secure, e.ssl.SSLSocket))"
    )
    assert done.stdout.split() == ["False", "True"]
