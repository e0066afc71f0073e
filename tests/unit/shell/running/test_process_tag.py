"""Process tags: numbers in a resource limit that say to which command a process belongs."""

from __future__ import annotations

import os
import resource
import secrets
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from wieldy.engine.workspace_services import open_workspace
from wieldy.shell.running.launch import PREAMBLE
from wieldy.shell.running.process_tag import (
    COUNT_BITS,
    MAX_PIDS_CHECKED,
    RLIMIT_LOCKS,
    TAG_NUMBER_VARIABLE,
    has_tag_number,
    last_pid,
    may_have_descendants,
    tag_numbers,
    tag_process,
)

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has limits of other processes")


@pytest.fixture
def token() -> str:
    return secrets.token_hex(8)


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    child = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    yield child
    assert child.stdin
    child.stdin.close()
    child.wait()


def test_a_command_has_one_number_which_is_among_those_of_its_session(token: str) -> None:
    session = tag_numbers(f"{token}.")
    assert tag_numbers(token) == session
    for count in (1, 2, 77_777):
        [number] = tag_numbers(f"{token}.{count}.")
        assert number in session
        assert 0 < number < 1 << 63
    assert tag_numbers(f"{token}.1.") != tag_numbers(f"{token}.2.")


def test_even_the_lowest_and_the_highest_numbers_stay_within_their_session() -> None:
    for token in ("0" * 16, "f" * 16):
        for count in (1, (1 << COUNT_BITS) - 1, 1 << COUNT_BITS, (1 << COUNT_BITS) + 1):
            assert tag_numbers(f"{token}.{count}.").start in tag_numbers(f"{token}.")
    assert tag_numbers("f" * 16).stop <= 1 << 62


@pytest.mark.parametrize(
    "tag", ["", "test-0a1b2c.", "a-tag-nobody-carries.", "0123456789abcde.", "0123456789abcdef.x."]
)
def test_text_that_is_no_tag_has_no_numbers_and_tags_nobody(tag: str, child: subprocess.Popen[bytes]) -> None:
    assert not tag_numbers(tag)
    tag_process(child.pid, tag)
    assert not has_tag_number(child.pid, tag_numbers(tag))
    assert not has_tag_number(child.pid, range(1 << 63))


def test_a_tag_tells_one_command_and_one_session_from_another(token: str, child: subprocess.Popen[bytes]) -> None:
    tag_process(child.pid, f"{token}.3.")
    assert has_tag_number(child.pid, tag_numbers(f"{token}.3."))
    assert has_tag_number(child.pid, tag_numbers(f"{token}."))
    assert not has_tag_number(child.pid, tag_numbers(f"{token}.4."))
    assert not has_tag_number(child.pid, tag_numbers(secrets.token_hex(8)))
    assert not has_tag_number(os.getpid(), tag_numbers(f"{token}."))


def test_only_the_younger_are_looked_at(token: str, child: subprocess.Popen[bytes]) -> None:
    tag, pid = f"{token}.1.", child.pid
    assert not may_have_descendants(pid - 1, tag, pid)
    tag_process(pid, tag)
    assert may_have_descendants(pid - 1, tag, pid)
    assert not may_have_descendants(pid, tag, pid + 5)
    assert not may_have_descendants(pid - 5, tag, pid - 1)


@pytest.mark.parametrize(("pid", "last"), [(400, 401 + MAX_PIDS_CHECKED), (400, 399), (400, 0)])
def test_where_there_are_too_many_or_numbers_were_begun_anew_there_may_be_one(token: str, pid: int, last: int) -> None:
    assert may_have_descendants(pid, f"{token}.1.", last)


def test_a_process_just_born_is_not_behind_the_one_born_last(child: subprocess.Popen[bytes]) -> None:
    born = [last_pid() for _ in range(3)]
    assert min(born) > 0
    # Numbers begin anew when they have run out, which may happen just now.
    assert born[-1] >= child.pid or born[-1] < child.pid // 2


def test_the_dead_carry_nothing_and_cannot_be_tagged(token: str) -> None:
    dead = subprocess.Popen(["true"])
    dead.wait()
    tag_process(dead.pid, f"{token}.1.")
    assert not has_tag_number(dead.pid, tag_numbers(token))


@pytest.mark.skipif(os.geteuid() != 0, reason="NOT TESTED: processes of another group: only root can start one")
def test_one_with_a_group_of_its_own_is_known_by_what_everybody_is_shown(token: str) -> None:
    command = f"ulimit -S -x {tag_numbers(token).start}; echo ready; exec cat"
    with subprocess.Popen(
        ["bash", "-c", command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, group=54_321
    ) as other:
        assert other.stdout
        assert other.stdout.readline() == b"ready\n"
        os.seteuid(65_534)
        try:
            with pytest.raises(PermissionError):
                resource.prlimit(other.pid, RLIMIT_LOCKS)
            assert has_tag_number(other.pid, tag_numbers(token))
            assert not has_tag_number(other.pid, tag_numbers(secrets.token_hex(8)))
            assert not has_tag_number(1, range(1 << 63))
        finally:
            os.seteuid(0)


def test_a_hard_limit_below_every_number_is_left_alone(token: str) -> None:
    limited = subprocess.Popen(
        ["bash", "-c", "ulimit -x 5; echo ready; read -r; ulimit -S -x; ulimit -H -x"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert limited.stdout
    assert limited.stdout.readline() == "ready\n"
    tag_process(limited.pid, f"{token}.1.")
    assert limited.communicate("\n")[0] == "5\n5\n"


def test_bash_tags_itself_before_the_command_starts_anything(token: str) -> None:
    [number] = tag_numbers(f"{token}.1.")
    env = {"BASH_ENV": PREAMBLE, "WIELDY_AT_EXIT": "", TAG_NUMBER_VARIABLE: str(number), "PATH": os.environ["PATH"]}
    said = subprocess.run(
        [
            "bash",
            "--norc",
            "--noprofile",
            "-c",
            f"env -i bash -c 'ulimit -S -x; ulimit -H -x'; echo ${TAG_NUMBER_VARIABLE} $?",
        ],
        env=env,
        capture_output=True,
        text=True,
    )
    hard = resource.prlimit(0, RLIMIT_LOCKS)[1]
    assert said.stdout.split() == [str(number), "unlimited" if hard == resource.RLIM_INFINITY else str(hard), "0"]
    assert said.stderr == ""


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("command", "stays", "by_bash"),
    [("make", False, True), ("ls", True, False), ("env -i setsid ls &", True, True)],
)
async def test_only_where_nothing_can_hide_bash_is_not_told_its_tag(
    tmp_path: Path, command: str, stays: bool, by_bash: bool
) -> None:
    told: list[str | None] = []

    def confine(argv: list[str | bytes], env: dict[str, str]) -> tuple[list[str | bytes], dict[str, str]]:
        told.append(env.get(TAG_NUMBER_VARIABLE))
        return ["true"], env

    workspace = open_workspace(tmp_path, session_dir=tmp_path / "session")
    shell = workspace.services.shells.start(command, cwd=workspace.cwd, confine=confine, keeps_directory=stays)
    assert told == [str(tag_numbers(shell.tag).start) if by_bash else None]
    await workspace.aclose()
