"""The commands we call read-only, run for once: the folder they run in and the home folder stay as they were."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from wieldy.shell.policy.analysis import analyze
from wieldy.shell.running.neutral_git import neutral_git_environment

pytestmark = pytest.mark.peer
CORPUS = Path(__file__).parents[1] / "corpora" / "shell" / "read_only.txt"
# They wait for ever, take long to start, or talk to a daemon; none of that is about files.
SLOW = ("tail -f", "sleep", "docker", "npm", "node", "java", "pip", "go ", "cargo", "rustc", "nohup")


def commands(place: str, home: str) -> list[str]:
    lines = CORPUS.read_text(encoding="utf-8").splitlines()
    wanted = [line for line in lines if line and not line.startswith("#") and not any(slow in line for slow in SLOW)]
    return [line for line in wanted if analyze(line, cwd=place, home=home).verdict == "read_only"]


def snapshot(folder: Path) -> dict[str, tuple[int, bytes]]:
    found = {}
    for path in sorted(folder.rglob("*")):
        content = b"" if path.is_dir() or path.is_symlink() else path.read_bytes()
        found[str(path.relative_to(folder))] = (path.lstat().st_mode, content)
    return found


def furnished(place: Path, environment: dict[str, str]) -> None:
    """A small repository with the files that the corpus talks about."""
    (place / "src").mkdir()
    (place / "sub").mkdir()
    (place / "d").mkdir()
    for name in (
        "file",
        "a",
        "b",
        "f",
        "README.md",
        "src/main.py",
        "src/a.py",
        "input.txt",
        "a.txt",
        "b.txt",
        "log.txt",
        "data.csv",
    ):
        (place / name).write_text("alpha beta\nfoo bar\nfoo 5, 6\n")
    (place / "package.json").write_text('{"scripts": {"test": "x"}, "dependencies": {}}\n')
    (place / "file.json").write_text('{"a": [{"b": 1}]}\n')
    for command in ("git init -q", "git add .", "git commit -q -m first"):
        subprocess.run(command.split(), cwd=place, env=environment, check=True, capture_output=True)
    (place / "file").write_text("changed\n")


@pytest.mark.parametrize("part", range(4))
def test_a_read_only_command_changes_nothing(part: int, tmp_path: Path) -> None:
    home, place = tmp_path / "home", tmp_path / "home" / "place"
    place.mkdir(parents=True)
    base = {
        "HOME": str(home),
        "PATH": os.environ["PATH"],
        "LC_ALL": "C.UTF-8",
        "GIT_CONFIG_NOSYSTEM": "1",
        "TMPDIR": str(tmp_path),
    }
    who = {f"GIT_{role}_{what}": "n@example.com" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    furnished(place, {**base, **who})
    before = snapshot(home)
    selected = commands(str(place), str(home))[part::4]
    assert len(selected) > 80
    for command in selected:
        subprocess.run(
            ["timeout", "-k", "1", "10", "bash", "--norc", "-c", command],
            cwd=place,
            env={**base, **neutral_git_environment()},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=30,
        )
        assert snapshot(home) == before, command
