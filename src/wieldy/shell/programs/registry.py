"""Every program there is a table for."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from wieldy.shell.programs import awk, find, git, sed
from wieldy.shell.programs.builtins import BUILTINS
from wieldy.shell.programs.judgement import NOTHING, Call, Judge, Judgement, unknown
from wieldy.shell.programs.special import SPECIAL
from wieldy.shell.programs.system_tools import SYSTEM_TOOLS, VERSION_WORDS
from wieldy.shell.programs.text_tools import TEXT_TOOLS
from wieldy.shell.programs.writers import WRITERS


@cache
def _judges() -> Mapping[str, Judge]:
    return {
        **SYSTEM_TOOLS,
        **TEXT_TOOLS,
        **SPECIAL,
        **BUILTINS,
        **WRITERS,
        "egrep": TEXT_TOOLS["grep"],
        "fgrep": TEXT_TOOLS["grep"],
        "sed": sed.judge,
        "gsed": sed.judge,
        "awk": awk.judge,
        "gawk": awk.judge,
        "mawk": awk.judge,
        "find": find.judge,
        "git": git.judge,
    }


def judge(call: Call) -> Judgement:
    """What is known about one call of a program."""
    if len(call.args) == 1 and call.args[0].static and call.args[0].text in VERSION_WORDS.get(call.name, ()):
        return NOTHING
    found = _judges().get(call.name)
    return found(call) if found else unknown(f"`{call.name}` is not a program known to be read-only")
