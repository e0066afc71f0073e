"""What a hook's answer means, for every event, exit code and form of output."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from wieldy.core.decision import STRICTNESS, Advice, Behavior, Opinion
from wieldy.core.text import truncate
from wieldy.policy.hooks.config import Hook
from wieldy.policy.hooks.events import HOOK_EVENTS
from wieldy.shell.running.program_output import ProgramOutput

DECISIONS: Mapping[str, Behavior] = {
    "allow": "allow",
    "approve": "allow",
    "deny": "deny",
    "block": "deny",
    "ask": "ask",
}
ANSWER_FIELDS = frozenset({"decision", "permissionDecision", "hookSpecificOutput", "continue", "systemMessage"})
REASON_FIELDS = ("permissionDecisionReason", "reason", "stopReason")
MAX_TEXT_CHARS = 10_000
LAST_SIGNAL = 64
_REFUSAL = re.compile(r"""["'](deny|block|denied|blocked)["']""", re.IGNORECASE)
# Python, then dash and its kin, then Perl.
_SCRIPT_NOT_FOUND = re.compile(
    r"""(?:\S*python\S*: can't open file|\w*sh: \d+: (?:cannot|can't|Can't) open|Can't open perl script) ['"]?([^'":]+)"""
)


class HookReply(Struct, frozen=True):
    """One hook's answer. `outcome` is a word for the log, `message` is shown to the person."""

    hook: str
    outcome: str = "ok"
    behavior: Behavior | None = None
    reason: str = ""
    updated_input: Mapping[str, Any] | None = None
    updated_output: Any = None
    context: tuple[str, ...] = ()
    message: str = ""
    halt: str | None = None


class HookReplies(Struct, frozen=True):
    """The answers of all hooks of an event together. `blocked` is the first reason to block."""

    blocked: str | None = None
    behavior: str | None = None
    reason: str = ""
    updated_input: Mapping[str, Any] | None = None
    updated_output: Any = None
    context: tuple[str, ...] = ()
    messages: tuple[str, ...] = ()
    halt: str | None = None


def combine(replies: Sequence[HookReply]) -> HookReplies:
    """Combine replies given in the order of the configuration: the strictest decides, the last rewrite stands."""
    decided = [reply for reply in replies if reply.behavior is not None]
    strictest = max(decided, key=lambda reply: STRICTNESS[reply.behavior or "allow"], default=None)
    blocked = next((f"{reply.hook}: {reply.reason}" for reply in decided if reply.behavior == "deny"), None)
    inputs = [reply.updated_input for reply in replies if reply.updated_input is not None]
    outputs = [reply.updated_output for reply in replies if reply.updated_output is not None]
    return HookReplies(
        blocked=blocked,
        behavior=strictest.behavior if strictest else None,
        reason=strictest.reason if strictest else "",
        updated_input=inputs[-1] if inputs else None,
        updated_output=outputs[-1] if outputs else None,
        context=tuple(line for reply in replies for line in reply.context),
        messages=tuple(f"{reply.hook}: {reply.message}" for reply in replies if reply.message),
        halt=next((reply.halt for reply in replies if reply.halt is not None), None),
    )


def as_advice(replies: Sequence[HookReply]) -> Advice:
    """Turn the replies of PreToolUse hooks into advice on a call."""
    combined = combine(replies)
    opinions = tuple(
        Opinion(f"hook {reply.hook}", reply.behavior, reply.reason) for reply in replies if reply.behavior is not None
    )
    if combined.halt is not None:
        opinions = (*opinions, Opinion("hook", "deny", combined.halt))
    return Advice(opinions, combined.updated_input, combined.context)


def interpret_output(hook: Hook, output: ProgramOutput) -> HookReply:
    """Interpret what a command left. Crash, time-out, missing script and unknown output mean what `on_error` says."""
    event = HOOK_EVENTS[hook.event]
    if output.exit_code is None:
        return failed_reply(hook, output.failure)
    # A shell reports the death of its last command as 128 and the number of the signal.
    signal = -output.exit_code if output.exit_code < 0 else output.exit_code - 128
    if 0 < signal <= LAST_SIGNAL:
        return failed_reply(hook, f"was killed by signal {signal}")
    if output.exit_code in (126, 127) or _script_not_found(hook, output):
        return failed_reply(hook, f"could not start: {_first_line(output.stderr) or f'exit code {output.exit_code}'}")
    stdout = output.stdout.strip()
    answer = _find_json(stdout)
    if output.exit_code == 2:
        reason = _stripped(output.stderr) or _reason_in(answer) or "no reason given"
        if event.can_block:
            return HookReply(hook.name, "blocked", "deny", reason)
        return HookReply(hook.name, "shown", message=reason)
    if answer:
        try:
            return interpret_answer(hook, json.loads(answer))
        except (ValueError, RecursionError) as error:
            return unreadable_reply(hook, f"printed something that begins like JSON and is not: {error}", answer)
    if output.exit_code != 0:
        text = _stripped(output.stderr) or _stripped(output.stdout)
        if hook.blocks_on_crash:
            return failed_reply(hook, f"ended with exit code {output.exit_code}{f': {text}' if text else ''}")
        return HookReply(hook.name, "shown", message=f"exit code {output.exit_code}{f': {text}' if text else ''}")
    return HookReply(hook.name, context=(stdout,) if stdout and event.takes_text else ())


def interpret_answer(hook: Hook, answer: Any) -> HookReply:
    """Interpret the JSON object a hook printed, or what a Python hook returned: an object or None."""
    if answer is None:
        return HookReply(hook.name)
    if not isinstance(answer, Mapping):
        return unreadable_reply(hook, f"returned {type(answer).__name__}; a hook returns a dict or None", repr(answer))
    specific = answer.get("hookSpecificOutput") or {}
    if not isinstance(specific, Mapping):
        return unreadable_reply(hook, "answered with a `hookSpecificOutput` that is no object", repr(answer))
    if specific.get("hookEventName", hook.event) != hook.event:
        return failed_reply(hook, f"answered for {specific['hookEventName']} instead of {hook.event}")
    try:
        behavior, reason = _parse_decision(hook, answer, specific)
    except ValueError as error:
        return unreadable_reply(hook, str(error), repr(answer))
    updated_input = specific.get("updatedInput", answer.get("updatedInput"))
    if isinstance(decision := specific.get("decision"), Mapping):
        updated_input = decision.get("updatedInput", updated_input)
    if updated_input is not None and not isinstance(updated_input, Mapping):
        return failed_reply(hook, "answered with an `updatedInput` that is no object")
    context = specific.get("additionalContext", answer.get("additionalContext"))
    halts = answer.get("continue") is False
    return HookReply(
        hook.name,
        "blocked" if behavior == "deny" else "ok",
        behavior,
        reason,
        updated_input,
        specific.get("updatedToolOutput", specific.get("updatedMCPToolOutput")),
        (str(context),) if context else (),
        str(answer.get("systemMessage") or ""),
        str(answer.get("stopReason") or "a hook stopped the run") if halts else None,
    )


def failed_reply(hook: Hook, problem: str) -> HookReply:
    """Make the reply of a hook that failed, as its `on_error` says."""
    if hook.on_error == "block":
        advice = f'Fix it, remove it in the settings under hooks.{hook.event}, or give it "on_error": "warn"'
        return HookReply(hook.name, "failed", "deny", f"the hook `{hook.name}` {problem}. {advice}")
    return HookReply(hook.name, "failed", message=f"the hook `{hook.name}` {problem}")


def unreadable_reply(hook: Hook, problem: str, text: str) -> HookReply:
    """Make the reply of a hook whose answer has no known form. One that seems to refuse is never taken for consent."""
    refuses = HOOK_EVENTS[hook.event].can_block and _REFUSAL.search(text)
    return failed_reply(replace(hook, on_error="block") if refuses else hook, problem)


def _parse_decision(hook: Hook, answer: Mapping[str, Any], specific: Mapping[str, Any]) -> tuple[Behavior | None, str]:
    """Find the decision wherever hooks of this event write it. Raises `ValueError` for an unknown word."""
    keys = ("permissionDecision", "decision")
    decision = next((fields[key] for fields in (specific, answer) for key in keys if key in fields), None)
    reason = (
        specific.get("permissionDecisionReason")
        or answer.get("permissionDecisionReason")
        or answer.get("reason")
        or specific.get("reason")
    )
    if isinstance(decision, Mapping):
        reason = decision.get("message") or reason
        decision = decision.get("behavior", "{}")
    if decision is None or decision == "defer":
        return None, str(reason or "")
    is_misplaced = decision == "block" and "permissionDecision" in specific
    if not isinstance(decision, str) or decision not in DECISIONS or is_misplaced:
        raise ValueError(f"answered `{decision}`, which is no decision; there are allow, deny and ask")
    return DECISIONS[decision], str(reason or "")


def _find_json(stdout: str) -> str:
    """Find the JSON a hook answered with: all it printed, or what follows some lines of text."""
    if stdout.startswith("{") or (stdout.startswith(("[", '"')) and _REFUSAL.search(stdout)):
        return stdout
    start = stdout.find("\n{")
    if start < 0:
        return ""
    text = stdout[start + 1 :]
    try:
        answer = json.loads(text)
    except (ValueError, RecursionError):
        return ""
    return text if not ANSWER_FIELDS.isdisjoint(answer) else ""


def _reason_in(answer: str) -> str:
    with contextlib.suppress(ValueError, RecursionError):
        fields = json.loads(answer or "{}")
        specific = fields.get("hookSpecificOutput")
        places = (specific, fields) if isinstance(specific, Mapping) else (fields,)
        return next((str(place[key]) for place in places for key in REASON_FIELDS if place.get(key)), "")
    return ""


def _script_not_found(hook: Hook, output: ProgramOutput) -> bool:
    """Some interpreters exit with 2 when there is no script, which would look like a decision to block."""
    if output.exit_code != 2 or output.stdout:
        return False
    match = _SCRIPT_NOT_FOUND.match(_first_line(output.stderr))
    words = hook.command if isinstance(hook.command, str) else " ".join(hook.command or ())
    return match is not None and match[1].rsplit("/", 1)[-1] in words


def _first_line(text: str) -> str:
    return text.strip().splitlines()[0] if text.strip() else ""


def _stripped(text: str) -> str:
    return truncate(text.strip(), MAX_TEXT_CHARS)
