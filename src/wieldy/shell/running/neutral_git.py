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
    root = _run_git(["rev-parse", "--show-toplevel"], cwd, environment).removesuffix("\n")
    if root and os.path.lexists(f"{root}/.gitmodules"):
        return drivers + keys("--file", f"{root}/.gitmodules")
    return drivers + keys("--blob", ":.gitmodules") + keys("--blob", "HEAD:.gitmodules") if root else drivers


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
