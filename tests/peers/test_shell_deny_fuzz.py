"""Random attempts to read a denied file: those that bypass mode would run are run in a sandbox, and must not show it.

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

PIECES = Path(__file__).parents[1] / "corpora" / "shell" / "denied_file_attempts.txt"


class Attempts:
    """Puts a reader, a name and wrappers together."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        sections = re.split(r"^# (names|readers|wrappers)\n", PIECES.read_text("utf-8"), flags=re.MULTILINE)
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
    env = {**os.environ, "HOME": str(work), "GIT_CONFIG_NOSYSTEM": "1"}
    who = ("-c", "user.name=n", "-c", "user.email=n@host.example")
    for words in (("init", "-q"), ("add", "-f", "."), (*who, "commit", "-qm", "first")):
        subprocess.run(["git", *words], cwd=work, env=env, check=True, capture_output=True)


def run(wrapper: Wrapper, command: str, work: Path) -> str:
    prefix = wrapper.prefix(SandboxPolicy((str(work),)))
    env = {"HOME": str(work.parent), "PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"}
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


@pytest.mark.asyncio
async def test_no_attempt_that_would_run_shows_a_denied_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wrapper = choose_wrapper(None, "bubblewrap")
    if not wrapper.is_complete:
        skip_untested("attempts to read denied files: bubblewrap does not work here")
    monkeypatch.setenv("WIELDY_HOME", str(tmp_path / "state"))
    print(f"seed {SEED}", file=sys.stderr)
    work = Path(os.path.realpath(tmp_path)) / "home" / "work"
    fill(work)
    settings = {"permissions": {"deny": DENIED}}
    async with Toolbox(work, settings=settings, mode="bypassPermissions") as box:
        allowed = [
            command
            for command in Attempts(SEED)
            if (await box.explain("Bash", {"command": command})).behavior == "allow"
        ]
    shown = []
    for number, command in enumerate(allowed):
        copy = work.parent / f"work{number}"
        shutil.copytree(work, copy, symlinks=True)
        if is_shown(run(wrapper, command, copy)):
            shown.append(command)
        shutil.rmtree(copy)
    assert shown == []
    assert len(allowed) > ATTEMPTS // 50, "almost nothing was run: the attempts are too plain"
