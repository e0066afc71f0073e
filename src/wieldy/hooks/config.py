"""Hooks as the settings write them, read one by one: a broken one is reported and left out, the rest hold."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeAlias

from msgspec import Struct

from wieldy.hooks.events import HOOK_EVENTS, HookEvent
from wieldy.permissions.rules import Rule, RuleError, parse

Matcher: TypeAlias = Callable[[str], bool]

_NAMES = re.compile(r"[A-Za-z0-9_\- ,|]*")
_SEPARATORS = re.compile(r"[,|]")


class BadMatcher(ValueError):
    """A matcher that is no regular expression."""


def matcher(text: str | None) -> Matcher:
    """Nothing or `*` is everything; letters, digits and `_ - , |` are exact names; anything else is a regular expression."""
    if text is None or text.strip() in ("", "*"):
        return lambda subject: True
    if _NAMES.fullmatch(text):
        names = exact_names(text)
        return lambda subject: subject in names
    try:
        found = re.compile(text)
    except re.error as error:
        raise BadMatcher(f"`{text}` is no regular expression: {error}") from None
    return lambda subject: found.search(subject) is not None


def exact_names(text: str) -> frozenset[str]:
    """The names a matcher lists; empty for a regular expression or for everything."""
    if text.strip() in ("", "*") or not _NAMES.fullmatch(text):
        return frozenset()
    return frozenset(name.strip() for name in _SEPARATORS.split(text) if name.strip())


DEFAULT_SECONDS = 60.0
OnError: TypeAlias = Literal["block", "warn"]
PythonHook: TypeAlias = Callable[[dict[str, Any]], Any]


class Hook(Struct, frozen=True):
    """One hook: when it runs, what runs, and what its failure means."""

    event: str
    name: str
    command: str | tuple[str, ...] | None
    matches: Matcher
    matcher: str = ""
    call: PythonHook | None = None
    only_if: Rule | None = None
    seconds: float = DEFAULT_SECONDS
    on_error: OnError = "warn"

    def wants(self, moment: HookEvent) -> bool:
        """Whether this hook is for this moment, as far as the matcher says."""
        return moment.event == self.event and self.matches(moment.subject)


def python_hook(event: str, call: PythonHook, *, match: str = "", on_error: OnError | None = None) -> Hook:
    """A hook that is a Python function of the payload, returning what a command would print as JSON, or None."""
    kind = HOOK_EVENTS[event]
    name = getattr(call, "__qualname__", repr(call))
    failing: OnError = on_error or ("block" if kind.guards else "warn")
    return Hook(event, name, None, matcher(match), match, call=call, on_error=failing)


def configured(section: Any) -> tuple[list[Hook], list[str]]:
    """The hooks of a settings' `hooks` section in their order, and what is wrong with those left out."""
    hooks: list[Hook] = []
    problems: list[str] = []
    if not isinstance(section, Mapping):
        return hooks, ([] if section is None else ["`hooks` must be an object of events"])
    for event, groups in section.items():
        if event not in HOOK_EVENTS:
            problems.append(f"hooks.{event}: there is no such event; there are {', '.join(HOOK_EVENTS)}")
            continue
        for number, group in enumerate(groups if isinstance(groups, list) else [groups]):
            where = f"hooks.{event}[{number}]"
            if not isinstance(group, Mapping) or not isinstance(group.get("hooks"), list):
                problems.append(f"{where}: must be an object with a list `hooks`")
                continue
            for entry in group["hooks"]:
                _add(event, group, entry, where, hooks, problems)
    return hooks, problems


def _add(event: str, group: Mapping[str, Any], entry: Any, where: str, hooks: list[Hook], problems: list[str]) -> None:
    try:
        hook = _hook(event, group.get("matcher"), entry)
    except (BadMatcher, RuleError, TypeError, ValueError) as error:
        problems.append(f"{where}: {error}")
        return
    if all((hook.command, hook.matcher) != (other.command, other.matcher) or other.event != event for other in hooks):
        hooks.append(hook)


def _hook(event: str, match: Any, entry: Any) -> Hook:
    if not isinstance(entry, Mapping):
        raise TypeError("a hook must be an object")
    if (kind := entry.get("type", "command")) != "command":
        raise ValueError(f"hooks of type `{kind}` are not supported; use `command`")
    command = entry.get("command")
    if not isinstance(command, str) or not command.strip():
        raise ValueError("`command` is missing")
    args = entry.get("args")
    if args is not None and not isinstance(args, list):
        raise TypeError("`args` must be a list of strings")
    if not isinstance(entry.get("if", ""), str):
        raise TypeError("`if` must be one permission rule")
    guards = HOOK_EVENTS[event].guards
    on_error = entry.get("on_error", entry.get("onError", "block" if guards else "warn"))
    if on_error not in ("block", "warn"):
        raise ValueError(f"`on_error` must be `block` or `warn`, not `{on_error}`")
    seconds = entry.get("timeout", DEFAULT_SECONDS)
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or seconds <= 0:
        raise ValueError("`timeout` must be a number of seconds")
    text = match if isinstance(match, str) else ""
    return Hook(
        event,
        name=command if args is None else " ".join([command, *map(str, args)]),
        command=command if args is None else (command, *map(str, args)),
        matches=matcher(text),
        matcher=text,
        only_if=parse(entry["if"], "ask") if entry.get("if") else None,
        seconds=float(seconds),
        on_error=on_error,
    )
