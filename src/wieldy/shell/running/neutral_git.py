"""An environment in which git looks at a repository without running what its configuration names."""

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
# An external diff cannot be switched off from outside, only replaced: git calls it with path, old file, …, new file.
_PLAIN_DIFF = 'f() { diff -u -L "a/$1" -L "b/$1" "$2" "$5"; true; }; f'
# Drivers have names of the repository's choosing, so they are looked up. What stands here takes their place: `cat` shows a
# file as it is, and an empty filter is no filter.
_DRIVERS = {
    "textconv": "cat",
    "command": _PLAIN_DIFF,
    "external": _PLAIN_DIFF,
    "clean": "",
    "smudge": "",
    "process": "",
    "required": "false",
}
_NAMED = r"^(diff\..*\.(textconv|command)|filter\..*\.(clean|smudge|process|required)|diff\.external)$"
_SECONDS = 5.0


def neutral_git_environment(*cwds: str, surrounding: Mapping[str, str] | None = None) -> dict[str, str]:
    """Variables to add to the environment of read-only git commands.

    What `surrounding` (our own environment, if not given) sets by the same means stays in front. The diff and filter drivers
    configured in `cwds` are disarmed too, which takes a git process for each: call it from a thread.
    """
    around = os.environ if surrounding is None else surrounding
    base = _environment((), around)
    named = [key for cwd in cwds for key in _configured(cwd, {**around, **base})]
    return _environment(named, around) if named else base


def _environment(keys: Iterable[str], around: Mapping[str, str]) -> dict[str, str]:
    counted = around.get("GIT_CONFIG_COUNT", "")
    first = int(counted) if counted.isdecimal() else 0
    settings = dict(_SETTINGS)
    for key in keys:
        settings[key] = _DRIVERS[key.rsplit(".", 1)[-1]]
    variables = dict(_VARIABLES)
    variables["GIT_CONFIG_COUNT"] = str(first + len(settings))
    for index, (key, value) in enumerate(settings.items(), first):
        variables[f"GIT_CONFIG_KEY_{index}"] = key
        variables[f"GIT_CONFIG_VALUE_{index}"] = value
    return variables


def _configured(cwd: str, environment: Mapping[str, str]) -> list[str]:
    """The names of the drivers that the configuration in force in `cwd` sets."""
    try:
        done = subprocess.run(
            ["git", "config", "-z", "--name-only", "--get-regexp", _NAMED],
            cwd=cwd,
            env=dict(environment),
            capture_output=True,
            timeout=_SECONDS,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return []
    return [key for key in done.stdout.decode("utf-8", "replace").split("\0") if key]
