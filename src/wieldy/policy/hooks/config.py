"""Parses the `hooks` section of the settings one hook at a time: an invalid one is reported and left out."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Literal, TypeAlias

from msgspec import Struct

from wieldy.core.text import MISSPELLED, nearest_name
from wieldy.core.tool_names import RENAMED_TOOLS
from wieldy.policy.hooks.events import HOOK_EVENTS, HookEvent
from wieldy.policy.permissions.rules import Rule, parse

Matcher: TypeAlias = Callable[[str], bool]
OnError: TypeAlias = Literal["block", "warn"]
PythonHook: TypeAlias = Callable[[dict[str, Any]], Any]

DEFAULT_SECONDS = 60.0
GROUP_KEYS = ("matcher", "hooks")
HOOK_KEYS = ("type", "command", "args", "if", "on_error", "onError", "timeout")
_NAME_LIST = re.compile(r"[A-Za-z0-9_\- ,|]*")
_SEPARATORS = re.compile(r"[,|]")


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
    blocks_on_crash: bool = False  # `on_error: "block"` was written out: any exit code but 0 is a failure

    def wants(self, event: HookEvent) -> bool:
        return event.event == self.event and self.matches(event.subject)


def python_hook(
    event: str,
    call: PythonHook,
    *,
    match: str = "",
    on_error: OnError | None = None,
    seconds: float = DEFAULT_SECONDS,
) -> Hook:
    """Make a hook of a Python function: it gets the payload and returns what a command would print as JSON, or None.

    A plain function runs in a thread. One that raises, or takes longer than `seconds`, has failed: `on_error` says whether
    that refuses the call.
    """
    if event not in HOOK_EVENTS:
        raise ValueError(f"there is no hook event `{event}`; there are {', '.join(HOOK_EVENTS)}")
    if not callable(call):
        raise TypeError(f"a hook is a function, not {call!r}")
    if on_error not in (None, "block", "warn"):
        raise ValueError(f"`on_error` must be `block` or `warn`, not `{on_error}`")
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or seconds <= 0:
        raise ValueError(f"`seconds` must be a number above 0, not {seconds!r}")
    name = getattr(call, "__qualname__", repr(call))
    return Hook(
        event,
        name,
        None,
        compile_matcher(match),
        match,
        call=call,
        on_error=on_error or _default_on_error(event),
        seconds=float(seconds),
    )


def require_hooks(hooks: Sequence[Any]) -> None:
    """Raise `TypeError` for something that is no hook."""
    for hook in hooks:
        if not isinstance(hook, Hook):
            raise TypeError(f"{hook!r} is no hook: make it with python_hook(event, function)")


def compile_matcher(text: str | None) -> Matcher:
    """Compile a matcher: empty or `*` matches all; letters, digits and `_ - , |` list names; the rest is a regular expression.

    Raises `ValueError` for an invalid expression.
    """
    if text is None or text.strip() in ("", "*"):
        return lambda subject: True
    if _NAME_LIST.fullmatch(text):
        names = listed_names(text)
        return lambda subject: subject in names
    try:
        expression = re.compile(text)
    except re.error as error:
        raise ValueError(f"`{text}` is no regular expression: {error}") from None
    return lambda subject: any(expression.search(name) for name in (subject, *_old_names(subject)))


def _old_names(tool: str) -> list[str]:
    return [old for old, new in RENAMED_TOOLS.items() if new == tool]


def listed_names(text: str) -> frozenset[str]:
    """Return the names a matcher lists; none for a regular expression or for all."""
    if text.strip() in ("", "*") or not _NAME_LIST.fullmatch(text):
        return frozenset()
    names = (name.strip() for name in _SEPARATORS.split(text))
    return frozenset(RENAMED_TOOLS.get(name, name) for name in names if name)


def parse_hooks(section: Any) -> tuple[list[Hook], list[str]]:
    """Return the hooks of the `hooks` section in their order, and what is wrong with those left out."""
    hooks: list[Hook] = []
    problems: list[str] = []
    if not isinstance(section, Mapping):
        return hooks, ([] if section is None else ["`hooks` must be an object of events"])
    for event, groups in section.items():
        if event not in HOOK_EVENTS:
            problems.append(f"hooks.{event}: there is no such event; there are {', '.join(HOOK_EVENTS)}")
            continue
        for index, group in enumerate(groups if isinstance(groups, list) else [groups]):
            where = f"hooks.{event}[{index}]"
            if not isinstance(group, Mapping) or not isinstance(group.get("hooks"), list):
                problems.append(f"{where}: must be an object with a list `hooks`")
                continue
            for entry in group["hooks"]:
                try:
                    _check_spelling(group, GROUP_KEYS)
                    hook = _parse_hook(event, group.get("matcher"), entry)
                except (TypeError, ValueError) as error:
                    problems.append(f"{where}: {error}")
                    continue
                if not any(_is_same(hook, other) for other in hooks):
                    hooks.append(hook)
    return hooks, problems


def lost_guards(event: str, groups: Any) -> list[str]:
    """Return what is wrong with the hooks of an event that may block calls or prompts; its name may be misspelled."""
    guards = [name for name, kind in HOOK_EVENTS.items() if kind.can_block and kind.fails_closed]
    name = event if event in HOOK_EVENTS else nearest_name(event, HOOK_EVENTS)
    return parse_hooks({event: groups})[1] if name in guards else []


def _is_same(hook: Hook, other: Hook) -> bool:
    return (hook.event, hook.command, hook.matcher) == (other.event, other.command, other.matcher)


def _check_spelling(entry: Mapping[str, Any], known: Collection[str]) -> None:
    """Raise `ValueError` for a misspelled key. Keys that resemble none may be those of other programs."""
    for key in entry:
        if key not in known and (near := nearest_name(key, known, cutoff=MISSPELLED)):
            raise ValueError(f"`{key}` is not known; did you mean `{near}`?")


def _parse_hook(event: str, matcher: Any, entry: Any) -> Hook:
    if not isinstance(entry, Mapping):
        raise TypeError("a hook must be an object")
    if not isinstance(matcher, str | None):
        raise TypeError("`matcher` must be a string")
    _check_spelling(entry, HOOK_KEYS)
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
    on_error = entry.get("on_error", entry.get("onError", _default_on_error(event)))
    if on_error not in ("block", "warn"):
        raise ValueError(f"`on_error` must be `block` or `warn`, not `{on_error}`")
    seconds = entry.get("timeout", DEFAULT_SECONDS)
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or seconds <= 0:
        raise ValueError("`timeout` must be a number of seconds")
    text = matcher or ""
    words = None if args is None else (command, *map(str, args))
    return Hook(
        event,
        name=command if words is None else " ".join(words),
        command=command if words is None else words,
        matches=compile_matcher(text),
        matcher=text,
        only_if=parse(entry["if"], "ask") if entry.get("if") else None,
        seconds=float(seconds),
        on_error=on_error,
        blocks_on_crash=on_error == "block" and ("on_error" in entry or "onError" in entry),
    )


def _default_on_error(event: str) -> OnError:
    return "block" if HOOK_EVENTS[event].fails_closed else "warn"
