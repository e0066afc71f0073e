"""Random attempts to read a denied file or to run a denied program.

Those that bypass mode would run are run in a sandbox: they must not show the file, and the program must not leave its mark.

Another seed: `WIELDY_FUZZ_SEED=7 pytest tests/peers/test_shell_deny_fuzz.py`.
"""

from __future__ import annotations

import base64
import os
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.needs import skip_untested

from wieldy import Toolbox
from wieldy.shell.sandbox.policy import SandboxPolicy
from wieldy.shell.sandbox.sandbox import Wrapper, choose_wrapper

pytestmark = pytest.mark.peer
SEED = int(os.environ.get("WIELDY_FUZZ_SEED", "0"))
ATTEMPTS = 1_500
TOKEN = "hunter2-ZQX"
DENIED = ["Read(.env)", "Read(vault/**)"]

CORPORA = Path(__file__).parents[1] / "corpora" / "shell"
# A script on disk that a shell is told to run is not the program: its content is not looked at.
SCRIPT_BY_PATH = r"(sh|bash|source|\.) (\S*/)?bin/zap"
MARK = "mark of the denied program"


class Attempts:
    """Puts a reader, a name and wrappers together."""

    def __init__(self, seed: int, pieces: str) -> None:
        self._random = random.Random(seed)
        text = (CORPORA / pieces).read_text("utf-8")
        sections = re.split(r"^# (names|readers|wrappers)\n", text, flags=re.MULTILINE)
        self._names, self._readers, self._wrappers = (section.splitlines() for section in sections[2::2])

    def __iter__(self) -> Iterator[str]:
        seen: set[str] = set()
        while len(seen) < ATTEMPTS:
            reader, name = self._random.choice(self._readers), self._random.choice(self._names)
            command = reader.replace("%s", name) if "%s" in reader else f"{reader} {name}"
            for _ in range(self._random.choice((0, 1, 1, 2))):
                command = self._random.choice(self._wrappers).replace("%s", command)
            command = command.replace("%%", "%")
            if command not in seen:
                seen.add(command)
                yield command


def fill(work: Path) -> None:
    """A project with denied files, links to them, and one that is free."""
    for name in ("src", "vault", ".git"):
        (work / name).mkdir(parents=True)
    for name in (".env", "vault/key.txt"):
        (work / name).write_text(f"{TOKEN}\n")
    for name in ("a.txt", "src/a.txt"):
        (work / name).write_text("free\n")
    (work / "names.txt").write_text(".env\nvault/key.txt\n")
    (work / "link").symlink_to(".env")
    (work / "src" / "up").symlink_to("..")
    (work / ".git").rmdir()
    (work / "bin").mkdir()
    (work / "bin" / "zap").write_text(f"#!/bin/sh\n: > '{MARK}'\n: > '../{MARK}'\n")
    (work / "bin" / "zap").chmod(0o755)
    env = {**os.environ, "HOME": str(work), "GIT_CONFIG_NOSYSTEM": "1"}
    who = ("-c", "user.name=n", "-c", "user.email=n@host.example")
    for words in (("init", "-q"), ("add", "-f", "."), (*who, "commit", "-qm", "first")):
        subprocess.run(["git", *words], cwd=work, env=env, check=True, capture_output=True)


def run(wrapper: Wrapper, command: str, work: Path) -> str:
    prefix = wrapper.prefix(SandboxPolicy((str(work),)))
    path = f"{work}/bin:{os.environ['PATH']}"
    env = {"HOME": str(work.parent), "PATH": path, "LC_ALL": "C.UTF-8"}
    try:
        done = subprocess.run(
            [*prefix, "bash", "-c", command],
            cwd=work,
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=10,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        return (error.stdout or b"").decode(errors="replace")
    return (done.stdout + done.stderr).decode(errors="replace")


def is_shown(output: str) -> bool:
    """Whether the token can be read: plainly, backwards, spread out, or encoded."""
    plain = "".join(output.split())
    encoded = base64.b64encode(TOKEN.encode()).decode()[:12]
    return any(text in plain for text in (TOKEN, TOKEN[::-1], encoded, TOKEN.encode().hex(), "hunter2"))


@pytest.fixture
def wrapper(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Wrapper:
    found = choose_wrapper(None, "bubblewrap")
    if not found.is_complete:
        skip_untested("attempts against deny rules: bubblewrap does not work here")
    monkeypatch.setenv("WIELDY_HOME", str(tmp_path / "state"))
    print(f"seed {SEED}", file=sys.stderr)
    return found


async def allowed_attempts(work: Path, pieces: str, deny: list[str]) -> list[str]:
    """The attempts that bypass mode would run."""
    async with Toolbox(work, settings={"permissions": {"deny": deny}}, mode="bypassPermissions") as box:
        allowed = [
            command
            for command in Attempts(SEED, pieces)
            if (await box.explain("Bash", {"command": command})).behavior == "allow"
        ]
    assert len(allowed) > ATTEMPTS // 50, "almost nothing was run: the attempts are too plain"
    return allowed


def copies(work: Path, commands: list[str]) -> Iterator[tuple[str, Path]]:
    """Each command with a copy of the project."""
    for number, command in enumerate(commands):
        copy = work.parent / str(number) / "work"
        shutil.copytree(work, copy, symlinks=True)
        yield command, copy
        shutil.rmtree(copy.parent)


@pytest.mark.asyncio
async def test_no_attempt_that_would_run_shows_a_denied_file(tmp_path: Path, wrapper: Wrapper) -> None:
    work = Path(os.path.realpath(tmp_path)) / "home" / "work"
    fill(work)
    allowed = await allowed_attempts(work, "denied_file_attempts.txt", DENIED)
    assert [command for command, copy in copies(work, allowed) if is_shown(run(wrapper, command, copy))] == []


@pytest.mark.asyncio
async def test_no_attempt_that_would_run_starts_a_denied_program(tmp_path: Path, wrapper: Wrapper) -> None:
    work = Path(os.path.realpath(tmp_path)) / "home" / "work"
    fill(work)
    started = []
    allowed = await allowed_attempts(work, "denied_program_attempts.txt", ["Bash(zap:*)"])
    for command, copy in copies(work, allowed):
        run(wrapper, command, copy)
        if list(copy.rglob(MARK)) and not re.search(SCRIPT_BY_PATH, command):
            started.append(command)
    assert started == []
