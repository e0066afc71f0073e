"""Every program there is a table for. What a name is not looked up in is not loaded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache

from wieldy.shell.policy.programs.builtins import BUILTINS
from wieldy.shell.policy.programs.tables import NOTHING, Call, Judge, Judgement, unknown

REMEMBERED = 512


def judge(call: Call) -> Judgement:
    """What is known about one call of a program."""
    if len(call.args) == 1 and call.args[0].static and _tells_version(call.name, call.args[0].text):
        return NOTHING
    found = _judge_of(call.name)
    return found(call) if found else unknown(f"`{call.name}` is not a program known to be read-only")


def _tells_version(name: str, word: str) -> bool:
    if not word.startswith("-"):
        return False
    from wieldy.shell.policy.programs.system_tools import VERSION_WORDS

    return word in VERSION_WORDS.get(name, ())


@lru_cache(maxsize=REMEMBERED)
def _judge_of(name: str) -> Judge | None:
    match name:
        case "git":
            from wieldy.shell.policy.programs import git

            return git.judge
        case "find":
            from wieldy.shell.policy.programs import find

            return find.judge
        case "sed" | "gsed":
            from wieldy.shell.policy.programs import sed

            return sed.judge
        case "awk" | "gawk" | "mawk":
            from wieldy.shell.policy.programs import awk

            return awk.judge
        case "egrep" | "fgrep":
            name = "grep"
    return next((table[name] for table in tables() if name in table), None)


def tables() -> Iterator[Mapping[str, Judge]]:
    """The tables of the other programs. No name is in two of them."""
    yield BUILTINS
    from wieldy.shell.policy.programs.system_tools import SYSTEM_TOOLS

    yield SYSTEM_TOOLS
    from wieldy.shell.policy.programs.text_tools import TEXT_TOOLS

    yield TEXT_TOOLS
    from wieldy.shell.policy.programs.writers import WRITERS

    yield WRITERS
    from wieldy.shell.policy.programs.special import SPECIAL

    yield SPECIAL
