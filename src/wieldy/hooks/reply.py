"""What a hook's answer means, for every moment, exit code and form of output: one function, and the table the docs show."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from wieldy.core.decision import STRICTNESS, Advice, Behavior, Opinion
from wieldy.core.truncate import truncate
from wieldy.hooks.command import HookOutput
from wieldy.hooks.config import Hook
from wieldy.hooks.events import HOOK_EVENTS

DECISIONS: Mapping[str, Behavior] = {
    "allow": "allow",
    "approve": "allow",
    "deny": "deny",
    "block": "deny",
    "ask": "ask",
}

ANSWERS = frozenset({"decision", "permissionDecision", "hookSpecificOutput", "continue", "systemMessage"})
REASONS = ("permissionDecisionReason", "reason", "stopReason")
# Python, then dash and its kin, then Perl.
_NO_SCRIPT = re.compile(
    r"""(?:\S*python\S*: can't open file|\w*sh: \d+: (?:cannot|can't|Can't) open|Can't open perl script) ['"]?([^'":]+)"""
)


class HookReply(Struct, frozen=True):
    """A hook's answer. `blocked` is the reason it stopped what was about to happen; `outcome` is a word for the log."""

    hook: str
    outcome: str = "ok"
    behavior: Behavior | None = None
    reason: str = ""
    updated_input: Mapping[str, Any] | None = None
    updated_output: Any = None
    context: tuple[str, ...] = ()
    message: str = ""
    halt: str | None = None

    @property
    def blocked(self) -> bool:
        """Whether it said no."""
        return self.behavior == "deny"


def interpret(hook: Hook, raw: HookOutput) -> HookReply:
    """The meaning of an answer. Crash, time-out, missing script and unknown output mean what `on_error` says."""
    moment = HOOK_EVENTS[hook.event]
    if raw.exit_code is None:
        return _trouble(hook, raw.trouble)
    if raw.exit_code < 0:
        return _trouble(hook, f"was killed by signal {-raw.exit_code}")
    if raw.exit_code in (126, 127):
        return _trouble(hook, f"could not start: {_first_line(raw.stderr) or f'exit code {raw.exit_code}'}")
    if _never_began(hook, raw):
        return _trouble(hook, f"could not start: {_first_line(raw.stderr)}")
    stdout = raw.stdout.strip()
    answer = _answer_in(stdout)
    if raw.exit_code == 2:
        why = _first_words(raw.stderr) or _reason_in(answer) or "no reason given"
        return (
            HookReply(hook.name, "blocked", "deny", why)
            if moment.blocks
            else HookReply(hook.name, "shown", message=why)
        )
    if answer:
        return _from_json(hook, answer)
    if raw.exit_code != 0:
        shown = _first_words(raw.stderr) or _first_words(raw.stdout)
        return HookReply(hook.name, "shown", message=f"exit code {raw.exit_code}{f': {shown}' if shown else ''}")
    return HookReply(hook.name, context=(stdout,) if stdout and moment.takes_text else ())


def from_python(hook: Hook, said: Any) -> HookReply:
    """The meaning of what a Python hook returned: None, or what a command would print as JSON."""
    if said is None:
        return HookReply(hook.name)
    if not isinstance(said, Mapping):
        return _trouble(hook, f"returned {type(said).__name__}; a hook returns a dict or None")
    return _from_object(hook, said)


def _from_json(hook: Hook, text: str) -> HookReply:
    try:
        said = json.loads(text)
    except (ValueError, RecursionError) as error:
        return _trouble(hook, f"printed something that begins like JSON and is not: {error}")
    return _from_object(hook, said)


def _from_object(hook: Hook, said: Mapping[str, Any]) -> HookReply:
    own = said.get("hookSpecificOutput") or {}
    if not isinstance(own, Mapping):
        return _trouble(hook, "answered with a `hookSpecificOutput` that is no object")
    if own.get("hookEventName", hook.event) != hook.event:
        return _trouble(hook, f"answered for {own['hookEventName']} instead of {hook.event}")
    try:
        behavior, reason = _decision(hook, said, own)
    except ValueError as error:
        return _trouble(hook, str(error))
    updated = own.get("updatedInput", said.get("updatedInput"))
    if isinstance(answered := own.get("decision"), Mapping):
        updated = answered.get("updatedInput", updated)
    if updated is not None and not isinstance(updated, Mapping):
        return _trouble(hook, "answered with an `updatedInput` that is no object")
    context = own.get("additionalContext", said.get("additionalContext"))
    halt = str(said.get("stopReason") or "a hook stopped the run") if said.get("continue") is False else None
    return HookReply(
        hook.name,
        "blocked" if behavior == "deny" else "ok",
        behavior,
        reason,
        updated,
        own.get("updatedToolOutput", own.get("updatedMCPToolOutput")),
        (str(context),) if context else (),
        str(said.get("systemMessage") or ""),
        halt,
    )


def _decision(hook: Hook, said: Mapping[str, Any], own: Mapping[str, Any]) -> tuple[Behavior | None, str]:
    """The decision, wherever this event's hooks write it. Raises `ValueError` for a word nobody knows."""
    found = own.get("permissionDecision", own.get("decision", said.get("permissionDecision", said.get("decision"))))
    reason = (
        own.get("permissionDecisionReason")
        or said.get("permissionDecisionReason")
        or said.get("reason")
        or own.get("reason")
    )
    if isinstance(found, Mapping):
        reason = found.get("message") or reason
        found = found.get("behavior", "{}")
    if found is None or found == "defer":
        return None, str(reason or "")
    known = DECISIONS if hook.event == "PreToolUse" else {**DECISIONS, "defer": "ask"}
    if not isinstance(found, str) or found not in known or (found == "block" and "permissionDecision" in own):
        raise ValueError(f"answered `{found}`, which is no decision; there are allow, deny and ask")
    return known[found], str(reason or "")


def _trouble(hook: Hook, what: str) -> HookReply:
    if hook.on_error == "block":
        way_on = f'Mend it, remove it in the settings under hooks.{hook.event}, or give it "on_error": "warn"'
        return HookReply(hook.name, "failed", "deny", f"the hook `{hook.name}` {what}. {way_on}")
    return HookReply(hook.name, "failed", message=f"the hook `{hook.name}` {what}")


def _answer_in(stdout: str) -> str:
    """The JSON a hook answered with: all it printed, or what follows a few lines of its own chatter."""
    if stdout.startswith("{") or "\n{" not in stdout:
        return stdout if stdout.startswith("{") else ""
    text = stdout[stdout.index("\n{") + 1 :]
    try:
        said = json.loads(text)
    except (ValueError, RecursionError):
        return ""
    return text if not ANSWERS.isdisjoint(said) else ""


def _reason_in(answer: str) -> str:
    with contextlib.suppress(ValueError, RecursionError):
        said = json.loads(answer or "{}")
        own = said.get("hookSpecificOutput")
        places = (own, said) if isinstance(own, Mapping) else (said,)
        return next((str(one[key]) for one in places for key in REASONS if one.get(key)), "")
    return ""


def _never_began(hook: Hook, raw: HookOutput) -> bool:
    """Some interpreters report a script that is not there with exit code 2, which would read as a considered no."""
    found = _NO_SCRIPT.match(_first_line(raw.stderr)) if raw.exit_code == 2 and not raw.stdout else None
    words = hook.command if isinstance(hook.command, str) else " ".join(hook.command or ())
    return found is not None and found[1].rsplit("/", 1)[-1] in words


def _first_line(text: str) -> str:
    return text.strip().splitlines()[0] if text.strip() else ""


def _first_words(text: str) -> str:
    text = text.strip()
    return truncate(text, 10_000)


class HookReplies(Struct, frozen=True):
    """What all hooks of a moment said together. `blocked` is the first reason among the strictest."""

    blocked: str | None = None
    behavior: str | None = None
    reason: str = ""
    updated_input: Mapping[str, Any] | None = None
    updated_output: Any = None
    context: tuple[str, ...] = ()
    messages: tuple[str, ...] = ()
    halt: str | None = None


def fold(replies: Sequence[HookReply]) -> HookReplies:
    """One answer out of several, given in the order of the configuration: the strictest decides, the last rewrite stands."""
    decided = [reply for reply in replies if reply.behavior is not None]
    strictest = max(decided, key=lambda reply: STRICTNESS[reply.behavior or "allow"], default=None)
    blocked = next((f"{reply.hook}: {reply.reason}" for reply in decided if reply.blocked), None)
    updated = [reply.updated_input for reply in replies if reply.updated_input is not None]
    outputs = [reply.updated_output for reply in replies if reply.updated_output is not None]
    return HookReplies(
        blocked=blocked,
        behavior=strictest.behavior if strictest else None,
        reason=strictest.reason if strictest else "",
        updated_input=updated[-1] if updated else None,
        updated_output=outputs[-1] if outputs else None,
        context=tuple(line for reply in replies for line in reply.context),
        messages=tuple(f"{reply.hook}: {reply.message}" for reply in replies if reply.message),
        halt=next((reply.halt for reply in replies if reply.halt is not None), None),
    )


def advice(replies: Sequence[HookReply]) -> Advice:
    """What PreToolUse hooks have to say about a call."""
    said = fold(replies)
    opinions = tuple(
        Opinion(f"hook {reply.hook}", reply.behavior, reply.reason) for reply in replies if reply.behavior is not None
    )
    if said.halt is not None:
        opinions = (*opinions, Opinion("hook", "deny", said.halt))
    return Advice(opinions, said.updated_input, said.context)
