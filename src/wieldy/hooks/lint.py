"""Hooks that cannot do what they are there for, found before they are needed: a missing script, a matcher that never fires."""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Collection, Iterator, Sequence

from wieldy.hooks.config import Hook, exact_names
from wieldy.hooks.events import HOOK_EVENTS, ToolHookEvent

INTERPRETERS = frozenset({"python", "python3", "node", "ruby", "perl", "bash", "sh", "zsh", "deno", "bun", "php"})


def probe(hooks: Sequence[Hook], tools: Collection[str], cwd: str) -> Iterator[str]:
    """One line for every hook that is sure to be of no use."""
    for hook in hooks:
        where = f"hooks.{hook.event}: `{hook.name}`"
        if hook.command is not None and (missing := _missing(hook.command, cwd)):
            yield f"{where} cannot start: {missing}"
        if issubclass(HOOK_EVENTS[hook.event], ToolHookEvent) and hook.matcher:
            names = exact_names(hook.matcher)
            if names:
                unknown = sorted(name for name in names if name not in tools and not name.startswith("mcp__"))
                if len(unknown) == len(names):
                    yield f"{where} can never fire: there is no tool {', '.join(unknown)}"
            elif "mcp__" not in hook.matcher and not any(hook.matches(tool) for tool in tools):
                yield f"{where} can never fire: no tool matches `{hook.matcher}`"
        elif not HOOK_EVENTS[hook.event].matched_on and hook.matcher.strip() not in ("", "*"):
            yield f"{where} has a matcher, but {hook.event} has nothing to match; it fires always or never"


def _missing(command: str | tuple[str, ...], cwd: str) -> str | None:
    """What a command needs and does not find, where that can be told without running it."""
    try:
        words = shlex.split(command) if isinstance(command, str) else list(command)
    except ValueError:
        return None
    if (
        not words
        or any(mark in words[0] for mark in "$`=(")
        or words[0] in ("if", "for", "while", "case", "{", "[", "test")
    ):
        return None
    program = words[0]
    found = os.path.join(cwd, program) if "/" in program else shutil.which(program)
    if "/" in program and not os.access(str(found), os.X_OK):
        return f"{program} {'is not executable' if os.path.exists(str(found)) else 'does not exist'}"
    if found is None:
        return None if _is_builtin(program) else f"{program} is not installed"
    if os.path.basename(program) in INTERPRETERS:
        script = next((word for word in words[1:] if not word.startswith("-")), None)
        quiet = (
            script is None or "-c" in words or "-e" in words or "-m" in words or any(mark in script for mark in "$`;|&")
        )
        if not quiet and not os.path.exists(os.path.join(cwd, str(script))):
            return f"{script} does not exist"
    return None


def _is_builtin(program: str) -> bool:
    return program in {
        "echo",
        "exit",
        "true",
        "false",
        "cd",
        "exec",
        "export",
        "printf",
        "read",
        "set",
        ":",
        ".",
        "test",
        "cat",
    }
