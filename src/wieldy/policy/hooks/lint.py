"""Finds hooks that cannot work before they are needed: a missing script, a matcher that never matches."""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Collection, Iterator, Sequence

from wieldy.policy.hooks.config import Hook, listed_names
from wieldy.policy.hooks.events import HOOK_EVENTS, ToolHookEvent

INTERPRETERS = frozenset({"python", "python3", "node", "ruby", "perl", "bash", "sh", "zsh", "deno", "bun", "php"})
SHELL_KEYWORDS = frozenset({"if", "for", "while", "case", "{", "[", "test"})
SHELL_BUILTINS = frozenset({"echo", "exit", "true", "false", "cd", "exec", "export", "printf", "read", "set", ":", "."})
SHELL_BUILTINS |= {"test", "cat"}


def lint_hooks(hooks: Sequence[Hook], tools: Collection[str], cwd: str) -> Iterator[str]:
    """Yield one line for every hook that is sure to be of no use."""
    for hook in hooks:
        where = f"hooks.{hook.event}: `{hook.name}`"
        event = HOOK_EVENTS[hook.event]
        if hook.command is not None and (problem := _find_missing(hook.command, cwd)):
            yield f"{where} cannot start: {problem}"
        if issubclass(event, ToolHookEvent) and hook.matcher:
            names = listed_names(hook.matcher)
            unknown = sorted(name for name in names if name not in tools and not name.startswith("mcp__"))
            if names and len(unknown) == len(names):
                yield f"{where} can never fire: there is no tool {', '.join(unknown)}"
            elif not names and "mcp__" not in hook.matcher and not any(map(hook.matches, tools)):
                yield f"{where} can never fire: no tool matches `{hook.matcher}`"
        elif not event.matched_on and hook.matcher.strip() not in ("", "*"):
            yield f"{where} has a matcher, but {hook.event} has nothing to match; it fires always or never"


def _find_missing(command: str | tuple[str, ...], cwd: str) -> str | None:
    """Say what a command needs and lacks, where that can be found out without running it."""
    try:
        words = shlex.split(command) if isinstance(command, str) else list(command)
    except ValueError:
        return None
    if not words or words[0] in SHELL_KEYWORDS or any(mark in words[0] for mark in "$`=("):
        return None
    program = words[0]
    if "/" in program:
        path = os.path.join(cwd, program)
        if not os.access(path, os.X_OK):
            return f"{program} {'is not executable' if os.path.exists(path) else 'does not exist'}"
    elif shutil.which(program) is None:
        return None if program in SHELL_BUILTINS else f"{program} is not installed"
    if os.path.basename(program) in INTERPRETERS and not {"-c", "-e", "-m"} & set(words):
        script = next((word for word in words[1:] if not word.startswith("-")), None)
        is_plain = script is not None and not any(mark in script for mark in "$`;|&")
        if script and is_plain and not os.path.exists(os.path.join(cwd, script)):
            return f"{script} does not exist"
    return None
