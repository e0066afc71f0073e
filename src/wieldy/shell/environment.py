"""The environment of a command: nothing that waits for a person or changes what bash reads, and a mark to find it by."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from wieldy.schema.pattern import pattern

MARK = "WIELDY_MARK"
PREAMBLE = str(Path(__file__).with_name("preamble.sh"))
_UNEXPANDED = PREAMBLE.translate({ord(char): f"\\{char}" for char in '\\$`"'})

UNATTENDED: Mapping[str, str] = {
    "PAGER": "cat",
    "GIT_PAGER": "cat",
    "MANPAGER": "cat",
    "SYSTEMD_PAGER": "cat",
    "EDITOR": "true",
    "VISUAL": "true",
    "GIT_EDITOR": "true",
    "GIT_SEQUENCE_EDITOR": "true",
    "GIT_TERMINAL_PROMPT": "0",
    "GCM_INTERACTIVE": "never",
    "SSH_ASKPASS_REQUIRE": "never",
    "PIP_NO_INPUT": "1",
    "DEBIAN_FRONTEND": "noninteractive",
    "TERM": "dumb",
    "NO_COLOR": "1",
}
"""Answers given in advance by programs' own switches, so that none opens an editor, a pager or a prompt."""

FOREIGN = frozenset({"BASHOPTS", "CDPATH", "ENV", "GLOBIGNORE", "PROMPT_COMMAND", "SHELLOPTS"})
"""Variables by which the surrounding shell would change how bash reads a command."""

READ_FIRST = frozenset({"BASH_ENV", "WIELDY_ENV_FILE", "CLAUDE_ENV_FILE"})
"""Variables that name a file to be read before a command."""

SECRET = pattern(
    r"(^|_|API|ACCESS)KEYS?(_|$)|(TOKEN|SECRET|PASSW(OR)?D|PASSPHRASE|CREDENTIAL|COOKIE)S?(_|$)"
    r"|(^|_)(AUTH|PAT)$|^DATABASE_URL$|_DSN$",
    re.IGNORECASE,
)


def command_environment(surrounding: Mapping[str, str], *, mark: str, at_exit: str | None) -> dict[str, str]:
    """What a command sees: the surrounding variables but the foreign ones, the unattended answers, mark and preamble.

    Without anything to do `at_exit` there is no preamble: that is for commands for which nothing has to be read first.
    """
    env = {name: value for name, value in surrounding.items() if name not in FOREIGN and name[:10] != "BASH_FUNC_"}
    if at_exit is not None and (users := env.get("BASH_ENV")) is not None:
        env["WIELDY_USERS_BASH_ENV"] = users
    # A wieldy inside a wieldy keeps the outer mark, or its shells would be lost to the outer one.
    outer = env.get(MARK)
    env |= UNATTENDED
    env[MARK] = f"{outer} {mark}" if outer else mark
    if at_exit is not None:
        env["BASH_ENV"] = _UNEXPANDED
        env["WIELDY_AT_EXIT"] = at_exit
    return env


def scrub_secrets(env: Mapping[str, str], keep: Iterable[str] = ()) -> tuple[dict[str, str], tuple[str, ...]]:
    """The environment without variables whose names speak of secrets, and the names that were taken out."""
    kept = frozenset(keep)
    removed = tuple(sorted(name for name in env if name not in kept and SECRET.search(name)))
    return {name: value for name, value in env.items() if name not in removed}, removed
