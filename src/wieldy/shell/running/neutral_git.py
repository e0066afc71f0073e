"""Environment variables that keep read-only git commands from running programs that the configuration names."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable, Mapping

from wieldy.core.errors import ToolFailure

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


def neutral_git_environment(*cwds: str, surrounding: Mapping[str, str] | None = None) -> dict[str, str]:
    """Variables to add to the environment of read-only git commands.

    Settings that `surrounding` (default: our own environment) passes in variables are kept. The diff and filter drivers
    configured in `cwds` are replaced too, which runs git for each folder: call it in a thread.
    """
    outer = os.environ if surrounding is None else surrounding
    base = _environment((), outer)
    drivers = [key for cwd in cwds for key in _configured_drivers(cwd, {**outer, **base})]
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


def _configured_drivers(cwd: str, environment: Mapping[str, str]) -> list[str]:
    """The keys of the drivers that git's configuration in `cwd` sets, and of the submodules it looks into."""

    def keys(*source: str, pattern: str = _SUBMODULE_KEYS) -> list[str]:
        output = _run_git(["config", *source, "-z", "--name-only", "--get-regexp", pattern], cwd, environment)
        return [key for key in output.split("\0") if key]

    drivers = keys(pattern=_DRIVER_KEYS)
    root, _, git_dir = _run_git(["rev-parse", "--show-toplevel", "--absolute-git-dir"], cwd, environment).partition(
        "\n"
    )
    if root:
        _check_location(cwd, root, git_dir.removesuffix("\n"), environment)
        _check_includes(cwd, root, git_dir.removesuffix("\n"), environment)
    if root and os.path.lexists(f"{root}/.gitmodules"):
        return drivers + keys("--file", f"{root}/.gitmodules")
    return drivers + keys("--blob", ":.gitmodules") + keys("--blob", "HEAD:.gitmodules") if root else drivers


def _check_location(cwd: str, root: str, git_dir: str, environment: Mapping[str, str]) -> None:
    """Raise `ToolFailure` if settings or a link make git read another folder, or another repository, than the one here."""
    found = os.path.realpath(cwd)
    while not os.path.lexists(os.path.join(found, ".git")):
        if found == os.path.dirname(found):
            return  # variables of the surrounding environment name the repository
        found = os.path.dirname(found)
    own = os.path.join(found, ".git")
    if os.path.realpath(root) != found:
        raise ToolFailure(
            f"core.worktree of {own} leads git to {root}, so nothing was run: this would read there. If that is meant, "
            f"write `git --work-tree={root} …`, which asks the user."
        )
    if git_dir == own or _names_back(git_dir, own) or _run_git(["config", "core.worktree"], cwd, environment):
        return
    raise ToolFailure(
        f"{own} leads git to the repository {git_dir}, which does not know this folder, so nothing was run. If that is "
        f"meant, write `git --git-dir={git_dir} …`, which asks the user."
    )


def _check_includes(cwd: str, root: str, git_dir: str, environment: Mapping[str, str]) -> None:
    """Raise `ToolFailure` if the repository's settings include a file from elsewhere, whose values git would print."""
    arguments = ["config", "--local", "--includes", "--show-origin", "-z", "--get-regexp", _INCLUDE_KEYS]
    fields = _run_git(arguments, cwd, environment).split("\0")
    for origin, setting in zip(fields[::2], fields[1::2], strict=False):
        value = setting.partition("\n")[2]
        source = os.path.join(cwd, origin.removeprefix("file:"))
        home = environment.get("HOME", "")
        path = os.path.join(home, value[2:]) if value.startswith("~/") else os.path.join(os.path.dirname(source), value)
        real = os.path.realpath(path)
        if not any(f"{real}/".startswith(f"{os.path.realpath(folder)}/") for folder in (root, git_dir)):
            raise ToolFailure(
                f"the git settings in {source} include {value}, which is not part of the repository, so nothing was run. "
                "Tell the user."
            )


def _names_back(git_dir: str, own: str) -> bool:
    """Whether a linked work tree's folder in the repository names the work tree in turn."""
    try:
        with open(os.path.join(git_dir, "gitdir"), encoding="utf-8", errors="surrogateescape") as file:
            named = file.read().strip()
    except OSError:
        return False
    return os.path.realpath(os.path.join(git_dir, named)) == os.path.realpath(own)


def _run_git(args: list[str], cwd: str, environment: Mapping[str, str]) -> str:
    """What git prints; nothing if it fails. Raises `ToolFailure` if it does not answer: then nobody knows what it would run."""
    try:
        process = subprocess.run(
            ["git", *args],
            cwd=cwd,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_TIMEOUT,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise ToolFailure(f"git did not answer in {_TIMEOUT:g} s in {cwd}, so nothing was run. Try again.") from None
    except OSError:
        return ""
    return os.fsdecode(process.stdout)
