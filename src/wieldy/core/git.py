"""The one place that prepares and starts git: nothing that a repository configures runs, and nothing leads it elsewhere."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from wieldy.core.backend import run_on
from wieldy.core.errors import ToolFailure, WieldyError
from wieldy.core.filesystem import LOCAL_FILES, FileSystem, RemoteFileSystem
from wieldy.core.programs import own_program

_SETTINGS: Mapping[str, str] = {
    "core.fsmonitor": "false",
    "core.untrackedCache": "false",
    "core.hooksPath": "/dev/null",
    "core.pager": "cat",
    "core.editor": "true",
    "core.askPass": "true",
    "core.sshCommand": "false",
    "core.gitProxy": "",
    "core.alternateRefsCommand": "true",
    "sequence.editor": "true",
    "credential.helper": "",
    "gpg.program": "false",
    "gpg.openpgp.program": "false",
    "gpg.x509.program": "false",
    "gpg.ssh.program": "false",
    "log.showSignature": "false",
    "interactive.diffFilter": "cat",
    "diff.ignoreSubmodules": "dirty",
    "diff.submodule": "short",
    "log.diffMerges": "separate",
    "status.submoduleSummary": "false",
    "submodule.recurse": "false",
    "safe.bareRepository": "explicit",
}
_VARIABLES: Mapping[str, str] = {
    "GIT_PAGER": "cat",
    "PAGER": "cat",
    "GIT_EDITOR": "true",
    "GIT_SEQUENCE_EDITOR": "true",
    "GIT_ASKPASS": "true",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_SSH_COMMAND": "false",
    "GIT_ALLOW_PROTOCOL": "none",
    "GIT_NO_LAZY_FETCH": "1",
}
# An external diff can only be replaced, not switched off: git calls it with path, old file, …, new file.
_NEUTRAL_DIFF = 'f() { diff -u -L "a/$1" -L "b/$1" "$2" "$5"; true; }; f'
# The repository chooses the names of drivers, so they are looked up and replaced: `cat` shows a file unchanged, an empty
# filter is no filter.
_DRIVERS = {
    "textconv": "cat",
    "command": _NEUTRAL_DIFF,
    "external": _NEUTRAL_DIFF,
    "clean": "",
    "smudge": "",
    "process": "",
    "required": "false",
    "driver": "false",
    # In a submodule git would run with the settings of that repository.
    "ignore": "dirty",
}
_SUBMODULE_KEYS = r"^submodule\..*\.ignore$"
_DRIVER_KEYS = (
    r"^(diff\..*\.(textconv|command)|filter\..*\.(clean|smudge|process|required)|diff\.external"
    rf"|merge\..*\.driver)$|{_SUBMODULE_KEYS}"
)
_INCLUDE_KEYS = r"^include(if\..*)?\.path$"
_TIMEOUT = 5.0
LOOKUP_SECONDS = 10.0
READ_SECONDS = 60.0


LOCATION_VARIABLES = frozenset(
    {
        *("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR", "GIT_NAMESPACE", "GIT_PREFIX"),
        *("GIT_OBJECT_DIRECTORY", "GIT_ALTERNATE_OBJECT_DIRECTORIES"),
    }
)
"""Variables that lead git to another repository than that of the current folder; git sets them for hooks."""


class SourceError(WieldyError):
    """The files of a repository are not available; the message is one line."""


def start_git(
    arguments: Sequence[str], folder: str | Path, environment: Mapping[str, str], *, seconds: float, input: bytes = b""
) -> subprocess.CompletedProcess[bytes]:
    """Run git in exactly this environment. Raises `OSError` and `subprocess.TimeoutExpired`."""
    return subprocess.run(
        [own_program("git", environment), *arguments],
        cwd=folder,
        env=dict(environment),
        input=input,
        capture_output=True,
        timeout=seconds,
        check=False,
    )


def look_up_with_git(
    arguments: Sequence[str], folder: str, env: Mapping[str, str], *, input: bytes = b""
) -> subprocess.CompletedProcess[bytes] | None:
    """Run a command that runs nothing the repository configures, such as `config` and `cat-file`; None where git cannot run."""
    clean = {name: value for name, value in env.items() if not name.startswith("GIT_")}
    environment = {**clean, **_VARIABLES, "GIT_NO_REPLACE_OBJECTS": "1"}
    try:
        return start_git(arguments, folder, environment, seconds=LOOKUP_SECONDS, input=input)
    except (OSError, subprocess.TimeoutExpired):
        return None


def read_git(arguments: Sequence[str], folder: str | Path) -> bytes | None:
    """What a git command prints in the top folder of a repository, with nothing run that it configures; None if it fails."""
    environment = {**without_location(os.environ), **neutral_git_environment(str(folder))}
    count = int(environment["GIT_CONFIG_COUNT"])
    environment |= {
        "GIT_CEILING_DIRECTORIES": os.path.dirname(folder),
        "GIT_CONFIG_COUNT": str(count + 1),
        f"GIT_CONFIG_KEY_{count}": "safe.bareRepository",
        f"GIT_CONFIG_VALUE_{count}": "all",
    }
    try:
        return _output_of_git(arguments, folder, environment, READ_SECONDS)
    except SourceError:
        return None


def run_git(
    arguments: Sequence[str], folder: str | Path, env: Mapping[str, str] | None = None, *, seconds: float = READ_SECONDS
) -> bytes:
    """Run git without hooks and prompts, and return what it prints. Raises `SourceError`."""
    environment = {**without_location(os.environ), "GIT_TERMINAL_PROMPT": "0", **(env or {})}
    return _output_of_git(
        ["-c", "core.hooksPath=/dev/null", "-c", "gc.auto=0", *arguments], folder, environment, seconds
    )


def git_status(folder: str) -> str | None:
    """List what git calls changed, untracked or ignored in a work tree; None where that cannot be found out. Blocking."""
    arguments = ("status", "--porcelain", "--ignored", "--untracked-files=normal")
    try:
        environment = {**os.environ, **neutral_git_environment(folder)}
        done = start_git(arguments, folder, environment, seconds=_TIMEOUT)
    except (OSError, subprocess.TimeoutExpired, ToolFailure):
        return None
    return done.stdout.decode("utf-8", "replace") if done.returncode == 0 else None


def without_location(env: Mapping[str, str]) -> dict[str, str]:
    """An environment without variables that lead git to another repository than that of the current folder."""
    return {name: value for name, value in env.items() if name not in LOCATION_VARIABLES}


def _output_of_git(
    arguments: Sequence[str], folder: str | Path, environment: Mapping[str, str], seconds: float
) -> bytes:
    try:
        done = start_git(arguments, folder, environment, seconds=seconds)
    except OSError as error:
        raise SourceError(f"git cannot be run: {error.strerror}") from None
    except subprocess.TimeoutExpired:
        raise SourceError(f"git {arguments[0]} took longer than {seconds:g} s") from None
    if done.returncode:
        words = done.stderr.decode("utf-8", "replace").split()
        raise SourceError(f"git {arguments[0]}: {' '.join(words)[:300] or f'exit code {done.returncode}'}")
    return done.stdout


class Git(Struct, frozen=True):
    """Runs git on this machine or on a backend, and looks at the files there."""

    environment: Mapping[str, str]
    files: FileSystem = LOCAL_FILES

    def run(self, args: list[str], cwd: str) -> str:
        """What git prints; nothing if it fails. Raises `ToolFailure` on a timeout: what git would run is not known then."""
        try:
            if isinstance(self.files, RemoteFileSystem):
                output = run_on(self.files.backend, ["git", *args], cwd=cwd, env=self.environment, seconds=_TIMEOUT)[1]
            else:
                output = start_git(args, cwd, self.environment, seconds=_TIMEOUT).stdout
        except (subprocess.TimeoutExpired, TimeoutError):
            text = f"git did not answer in {_TIMEOUT:g} s in {cwd}, so nothing was run."
            raise ToolFailure(text, "Try again.") from None
        except OSError:
            return ""
        return os.fsdecode(output)


def neutral_git_environment(
    *cwds: str, surrounding: Mapping[str, str] | None = None, files: FileSystem = LOCAL_FILES
) -> dict[str, str]:
    """Variables to add to the environment of read-only git commands.

    Settings that `surrounding` (default: our own environment) passes in variables are kept. The diff and filter drivers
    configured in `cwds` are replaced too, which runs git for each folder: call it in a thread.
    """
    outer = os.environ if surrounding is None else surrounding
    base = _environment((), outer)
    git = Git({**outer, **base}, files)
    drivers = [key for cwd in cwds for key in _configured_drivers(cwd, git)]
    return _environment(drivers, outer) if drivers else base


def _environment(driver_keys: Iterable[str], outer: Mapping[str, str]) -> dict[str, str]:
    count = outer.get("GIT_CONFIG_COUNT", "")
    first = int(count) if count.isdecimal() else 0
    settings = dict(_SETTINGS)
    for key in driver_keys:
        settings[key] = _DRIVERS[key.rsplit(".", 1)[-1]]
    variables = dict(_VARIABLES)
    variables["GIT_CONFIG_COUNT"] = str(first + len(settings))
    for index, (key, value) in enumerate(settings.items(), first):
        variables[f"GIT_CONFIG_KEY_{index}"] = key
        variables[f"GIT_CONFIG_VALUE_{index}"] = value
    return variables


def _configured_drivers(cwd: str, git: Git) -> list[str]:
    """The keys of the drivers that git's configuration in `cwd` sets, and of the submodules it looks into."""

    def keys(*source: str, pattern: str = _SUBMODULE_KEYS) -> list[str]:
        output = git.run(["config", *source, "-z", "--name-only", "--get-regexp", pattern], cwd)
        return [key for key in output.split("\0") if key]

    drivers = keys(pattern=_DRIVER_KEYS)
    root, _, git_dir = git.run(["rev-parse", "--show-toplevel", "--absolute-git-dir"], cwd).partition("\n")
    if root:
        _check_location(cwd, root, git_dir.removesuffix("\n"), git)
        _check_includes(cwd, root, git_dir.removesuffix("\n"), git)
    if root and git.files.exists(f"{root}/.gitmodules"):
        return drivers + keys("--file", f"{root}/.gitmodules")
    return drivers + keys("--blob", ":.gitmodules") + keys("--blob", "HEAD:.gitmodules") if root else drivers


def _check_location(cwd: str, root: str, git_dir: str, git: Git) -> None:
    """Raise `ToolFailure` if settings or a link make git read another folder, or another repository, than the one here."""
    found = git.files.realpath(cwd)
    while not git.files.exists(os.path.join(found, ".git")):
        if found == os.path.dirname(found):
            return  # variables of the surrounding environment name the repository
        found = os.path.dirname(found)
    own = os.path.join(found, ".git")
    if git.files.realpath(root) != found:
        raise ToolFailure(
            f"core.worktree of {own} leads git to {root}, so nothing was run: this would read there.",
            f"If that is meant, write `git --work-tree={root} …`, which asks the user.",
        )
    if git_dir == own or _names_back(git_dir, own, git.files) or git.run(["config", "core.worktree"], cwd):
        return
    raise ToolFailure(
        f"{own} leads git to the repository {git_dir}, which does not know this folder, so nothing was run.",
        f"If that is meant, write `git --git-dir={git_dir} …`, which asks the user.",
    )


def _check_includes(cwd: str, root: str, git_dir: str, git: Git) -> None:
    """Raise `ToolFailure` if the repository's settings include a file from elsewhere, whose values git would print."""
    arguments = ["config", "--local", "--includes", "--show-origin", "-z", "--get-regexp", _INCLUDE_KEYS]
    fields = git.run(arguments, cwd).split("\0")
    for origin, setting in zip(fields[::2], fields[1::2], strict=False):
        value = setting.partition("\n")[2]
        source = os.path.join(cwd, origin.removeprefix("file:"))
        home = git.environment.get("HOME", "")
        path = os.path.join(home, value[2:]) if value.startswith("~/") else os.path.join(os.path.dirname(source), value)
        real = git.files.realpath(path)
        if not any(f"{real}/".startswith(f"{git.files.realpath(folder)}/") for folder in (root, git_dir)):
            raise ToolFailure(
                f"the git settings in {source} include {value}, which is not part of the repository, so nothing was run.",
                "Tell the user.",
            )


def _names_back(git_dir: str, own: str, files: FileSystem) -> bool:
    """Whether a linked work tree's folder in the repository names the work tree in turn."""
    try:
        named = files.read_text(os.path.join(git_dir, "gitdir")).strip()
    except OSError:
        return False
    return files.realpath(os.path.join(git_dir, named)) == files.realpath(own)
