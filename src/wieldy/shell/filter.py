"""Lines of a text that match a model's pattern. A pattern that could run for ever runs where it can be stopped."""

from __future__ import annotations

import asyncio
import json
import re
import sys

from wieldy.core.failure import ToolFailure
from wieldy.core.threads import in_thread

SECONDS = 2.0
LONGEST_LINE = 2_000
_CHILD = """
import json, re, sys
pattern, lines = json.load(sys.stdin)
search = re.compile(pattern).search
json.dump([i for i, line in enumerate(lines) if search(line)], sys.stdout)
"""


async def matching_lines(pattern: str, text: str) -> list[str]:
    """The matching lines, in order. Raises `ToolFailure` when the pattern is not valid, or takes too long."""
    try:
        compiled = re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as problem:
        raise ToolFailure(f"The filter is no valid regular expression: {problem}. Send another, or none.") from None
    lines = text.split("\n")
    shortened = [line[:LONGEST_LINE] for line in lines]
    if _is_tame(pattern):
        found = await in_thread(lambda: [index for index, line in enumerate(shortened) if compiled.search(line)])
    else:
        found = await _in_child(pattern, shortened)
    return [lines[index] for index in found]


def _is_tame(pattern: str) -> bool:
    """Whether matching is surely quick: at most one repetition, and no reference to an earlier group."""
    unescaped = re.sub(r"\\[^\d]", "", pattern)
    return sum(map(unescaped.count, "*+{?")) <= 1 and "\\" not in unescaped


async def _in_child(pattern: str, lines: list[str]) -> list[int]:
    if not sys.executable or getattr(sys, "frozen", False):
        raise ToolFailure("This filter is too intricate to be run safely here. Use one with at most one repetition.")
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-I", "-S", "-c", _CHILD, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    try:
        said, _ = await asyncio.wait_for(child.communicate(json.dumps([pattern, lines]).encode()), SECONDS)
    except TimeoutError:
        raise ToolFailure(f"The filter did not finish within {SECONDS:g} s. Send a simpler pattern.") from None
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
    found: list[int] = json.loads(said)
    return found
