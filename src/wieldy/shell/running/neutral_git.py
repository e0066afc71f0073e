"""Environment variables that keep read-only git commands from running programs that the configuration names."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable, Mapping

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
}
_DRIVER_KEYS = r"^(diff\..*\.(textconv|command)|filter\..*\.(clean|smudge|process|required)|diff\.external)$"
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
    """The keys of the drivers that git's configuration in `cwd` sets."""
    try:
        process = subprocess.run(
            ["git", "config", "-z", "--name-only", "--get-regexp", _DRIVER_KEYS],
            cwd=cwd,
            env=dict(environment),
            capture_output=True,
            timeout=_TIMEOUT,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return []
    return [key for key in process.stdout.decode("utf-8", "replace").split("\0") if key]
