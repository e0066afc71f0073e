"""git for our own purposes: read a repository without running what it configures; checkouts that borrow only objects."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from wieldy.core.errors import WieldyError
from wieldy.core.git import neutral_git_environment
from wieldy.core.programs import own_program

READ_SECONDS = 60.0
CLONE_SECONDS = 3600.0
LOCATION_VARIABLES = frozenset(
    {
        *("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR", "GIT_NAMESPACE", "GIT_PREFIX"),
        *("GIT_OBJECT_DIRECTORY", "GIT_ALTERNATE_OBJECT_DIRECTORIES"),
    }
)
"""Variables that lead git to another repository than that of the current folder; git sets them for hooks."""


class SourceError(WieldyError):
    """The files of a repository cannot be had; the message is one line."""


def is_repository(folder: str | Path) -> bool:
    return os.path.lexists(os.path.join(folder, ".git"))


def resolve_commit(repository: str | Path, ref: str) -> str:
    """The commit that a ref names. Raises `SourceError`."""
    commit = None if ref.startswith("-") else read_git(["rev-parse", "--verify", "-q", f"{ref}^{{commit}}"], repository)
    if commit is None:
        raise SourceError(f"the repository {repository} has no commit `{ref}`")
    return commit.decode().strip()


def read_git(arguments: Sequence[str], folder: str | Path) -> bytes | None:
    """What a git command prints that runs nothing the repository configures; None if it fails."""
    environment = {**without_location(os.environ), **neutral_git_environment(str(folder))}
    environment["GIT_CEILING_DIRECTORIES"] = os.path.dirname(folder)
    environment["GIT_CONFIG_COUNT"] = _with_setting(environment, "safe.bareRepository", "all")
    try:
        return _run(arguments, folder, environment, READ_SECONDS)
    except SourceError:
        return None


def run_git(
    arguments: Sequence[str], folder: str | Path, env: Mapping[str, str] | None = None, *, seconds: float = READ_SECONDS
) -> bytes:
    """Run git without hooks and prompts, and return what it prints. Raises `SourceError`."""
    environment = {**without_location(os.environ), "GIT_TERMINAL_PROMPT": "0", **(env or {})}
    return _run(["-c", "core.hooksPath=/dev/null", "-c", "gc.auto=0", *arguments], folder, environment, seconds)


def clone_mirror(url: str, target: Path) -> None:
    """Clone a remote repository with all its commits. Raises `SourceError`."""
    temporary = target.with_name(f"{target.name}.{os.getpid()}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    try:
        run_git(["clone", "-q", "--mirror", "--", url, str(temporary)], target.parent, seconds=CLONE_SECONDS)
        temporary.replace(target)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def fetch_commit(repository: Path, ref: str) -> None:
    """Fetch a commit that no branch of the remote contains any more. Raises `SourceError`."""
    run_git(["fetch", "-q", "origin", "--", ref], repository, seconds=CLONE_SECONDS)


def check_out(repository: str | Path, commit: str, target: Path) -> None:
    """Check a commit out into a repository of its own that borrows the objects. Raises `SourceError`.

    It has no branches, tags or remotes: nothing later than the commit can be found by name, and nothing can be pushed.
    """
    target.mkdir()
    _init_borrowing(repository, target)
    run_git(["checkout", "-q", "--detach", commit], target, seconds=CLONE_SECONDS)


def detach_repository(source: str | Path, copy: Path) -> None:
    """Give a copied linked worktree a repository of its own; its `.git` leads to that of the source. Raises `SourceError`."""
    link = copy / ".git"
    if not os.path.lexists(link) or (link.is_dir() and not link.is_symlink()):
        return
    link.unlink()
    _init_borrowing(source, copy)
    if (head := read_git(["rev-parse", "--verify", "-q", "HEAD"], source)) is not None:
        run_git(["update-ref", "--no-deref", "HEAD", head.decode().strip()], copy)
        run_git(["reset", "-q"], copy)


def _init_borrowing(repository: str | Path, target: Path) -> None:
    located = read_git(["rev-parse", "--path-format=absolute", "--git-path", "objects"], repository)
    if located is None:
        raise SourceError(f"{repository} is not a git repository")
    objects = Path(os.fsdecode(located).removesuffix("\n"))
    run_git(["init", "-q", "--template=", str(target)], target.parent)
    information = target / ".git" / "objects" / "info"
    information.mkdir(parents=True, exist_ok=True)
    (information / "alternates").write_text(f"{objects}\n", encoding="utf-8", errors="surrogateescape")
    shallow = objects.parent / "shallow"
    if shallow.exists():
        shutil.copyfile(shallow, target / ".git" / "shallow")


def _run(arguments: Sequence[str], folder: str | Path, environment: Mapping[str, str], seconds: float) -> bytes:
    try:
        done = subprocess.run(
            [own_program("git", environment), *arguments],
            cwd=folder,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=seconds,
            check=False,
        )
    except OSError as error:
        raise SourceError(f"git cannot be run: {error.strerror}") from None
    except subprocess.TimeoutExpired:
        raise SourceError(f"git {arguments[0]} took longer than {seconds:g} s") from None
    if done.returncode:
        words = done.stderr.decode("utf-8", "replace").split()
        raise SourceError(f"git {arguments[0]}: {' '.join(words)[:300] or f'exit code {done.returncode}'}")
    return done.stdout


def without_location(env: Mapping[str, str]) -> dict[str, str]:
    """An environment without variables that lead git to another repository than that of the current folder."""
    return {name: value for name, value in env.items() if name not in LOCATION_VARIABLES}


def _with_setting(environment: dict[str, str], key: str, value: str) -> str:
    number = int(environment.get("GIT_CONFIG_COUNT", "0"))
    environment[f"GIT_CONFIG_KEY_{number}"], environment[f"GIT_CONFIG_VALUE_{number}"] = key, value
    return str(number + 1)
