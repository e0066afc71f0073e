"""Calls over a socket: each comes to an end, whatever becomes of the other side or of this process."""

from __future__ import annotations

import errno
import os
import resource
import socket
import threading
from contextlib import suppress

import msgspec
import pytest

from wieldy.shell.backends.channel import Caller, FrameSocket


def descriptors_of(pipe: int) -> int:
    """How many descriptors of this process are ends of a pipe."""
    name = os.readlink(f"/proc/self/fd/{pipe}")
    count = 0
    for descriptor in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):
            count += os.readlink(f"/proc/self/fd/{descriptor}") == name
    return count


def test_a_call_whose_pipes_cannot_be_opened_fails_and_the_next_one_does_not():
    ours, theirs = socket.socketpair()
    caller, worker = Caller(ours), FrameSocket(theirs)
    pipes = [*os.pipe(), *os.pipe()]

    def answer() -> None:
        for _ in range(2):
            frame = worker.receive()
            assert frame is not None
            number, *_ = msgspec.msgpack.decode(frame[0])
            worker.send(msgspec.msgpack.encode((number, "spawned", None)), (pipes[0], pipes[2]))

    answering = threading.Thread(target=answer)
    answering.start()
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.dup(0)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free + 1, before[1]))  # room for one of two
    try:
        with pytest.raises(OSError, match=os.strerror(errno.EMFILE)):
            caller.call("spawn")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    result, descriptors = caller.call("spawn")
    answering.join()
    assert result == "spawned"
    for descriptor, write_end in zip(descriptors, (pipes[1], pipes[3]), strict=True):
        os.write(write_end, b"output")
        assert os.read(descriptor, 10) == b"output"
        assert not os.get_inheritable(descriptor)
    # Each pipe has its two ends and the one that came with the second call: what came with the first is closed.
    assert [descriptors_of(pipe) for pipe in (pipes[0], pipes[2])] == [3, 3]
    for descriptor in (*pipes, *descriptors):
        os.close(descriptor)
    caller.close()
    worker.close()


def test_an_answer_that_makes_no_sense_ends_the_calls_instead_of_leaving_them_waiting():
    ours, theirs = socket.socketpair()
    caller = Caller(ours)
    results: list[BaseException] = []

    def call() -> None:
        try:
            caller.call("stat")
        except OSError as error:
            results.append(error)

    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    frames = FrameSocket(theirs)
    assert frames.receive() is not None
    frames.send(b"\xc1")
    thread.join(30)
    assert [type(error) for error in results] == [ConnectionResetError]
    with pytest.raises(ConnectionResetError):
        caller.call("stat")
    caller.close()
    frames.close()
