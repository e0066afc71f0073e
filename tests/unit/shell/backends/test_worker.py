"""The worker of an overlay: a system that allows no more threads makes it slower and ends nothing, and it keeps no process."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator

import pytest

from wieldy.shell.backends.channel import Caller
from wieldy.shell.backends.overlay import OverlayProcess
from wieldy.shell.backends.worker import NamespaceWorker

if not hasattr(os, "pidfd_open"):
    pytest.skip("the worker of an overlay runs on Linux", allow_module_level=True)


@pytest.fixture
def no_more_threads() -> Iterator[None]:
    yield
    threading.stack_size(0)


@pytest.fixture
def worker() -> Iterator[tuple[NamespaceWorker, Caller]]:
    ours, theirs = socket.socketpair()
    worker, caller = NamespaceWorker(theirs), Caller(ours)
    running = threading.Thread(target=worker.run, daemon=True)
    running.start()
    yield worker, caller
    caller.close()
    running.join(30)
    theirs.close()


def spawn(caller: Caller, script: str) -> OverlayProcess:
    (key, pid), pipes = caller.call("spawn", [b"/bin/sh", b"-c", script.encode()], b"/", [], False)
    return OverlayProcess(caller, key, pid, pipes)


def allow_no_more_threads() -> None:
    threading.stack_size(1 << 46)
    with pytest.raises(RuntimeError, match="start new thread"):
        threading.Thread(target=print).start()


def test_waiting_needs_no_thread_of_its_own_where_the_system_allows_none(worker, no_more_threads):
    _, caller = worker
    process = spawn(caller, "exit 7")
    allow_no_more_threads()
    assert process.wait() == 7
    assert caller.call("stat", b"/", True)[0]["kind"] == "folder"
    os.close(process.stdout)


def test_a_process_that_was_waited_for_is_forgotten_and_what_it_left_running_can_still_be_ended(worker):
    server, caller = worker
    process = spawn(caller, "sleep 600 & exit 3")
    assert [process.wait(), process.wait()] == [3, 3]
    assert not server._processes
    process.end()
    assert os.read(process.stdout, 1) == b""  # nobody holds the output any more
    os.close(process.stdout)
