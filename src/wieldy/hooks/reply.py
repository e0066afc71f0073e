"""What a hook's answer means, for every moment, exit code and form of output: one function, and the table the docs show."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from wieldy.core.decision import Behavior
from wieldy.core.record import record
from wieldy.hooks.command import Raw
from wieldy.hooks.configured import Hook
from wieldy.hooks.moment import MOMENTS

DECISIONS: Mapping[str, Behavior] = {
    "allow": "allow",
    "approve": "allow",
    "deny": "deny",
    "block": "deny",
    "ask": "ask",
}


@record
class Reply:
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


def interpret(hook: Hook, raw: Raw) -> Reply:
    """The meaning of an answer. Crash, time-out, missing script and unknown output mean what `on_error` says."""
    moment = MOMENTS[hook.event]
    if raw.exit_code is None:
        return _trouble(hook, raw.trouble)
    if raw.exit_code < 0:
        return _trouble(hook, f"was killed by signal {-raw.exit_code}")
    if raw.exit_code in (126, 127):
        return _trouble(hook, f"could not start: {_first_line(raw.stderr) or f'exit code {raw.exit_code}'}")
    if raw.exit_code == 2:
        why = _first_words(raw.stderr) or "no reason given"
        if _never_began(raw.stderr):
            where = f"Mend or remove it in the settings under hooks.{hook.event}"
            why = f"the hook could not start ({_first_line(raw.stderr)}). {where}"
        return Reply(hook.name, "blocked", "deny", why) if moment.blocks else Reply(hook.name, "shown", message=why)
    stdout = raw.stdout.strip()
    if stdout.startswith("{"):
        return _from_json(hook, stdout)
    if raw.exit_code != 0:
        shown = _first_words(raw.stderr) or _first_words(raw.stdout)
        return Reply(hook.name, "shown", message=f"exit code {raw.exit_code}{f': {shown}' if shown else ''}")
    return Reply(hook.name, context=(stdout,) if stdout and moment.takes_text else ())


def from_python(hook: Hook, said: Any) -> Reply:
    """The meaning of what a Python hook returned: None, or what a command would print as JSON."""
    if said is None:
        return Reply(hook.name)
    if not isinstance(said, Mapping):
        return _trouble(hook, f"returned {type(said).__name__}; a hook returns a dict or None")
    return _from_object(hook, said)


def _from_json(hook: Hook, text: str) -> Reply:
    try:
        said = json.loads(text)
    except ValueError as error:
        return _trouble(hook, f"printed something that begins like JSON and is not: {error}")
    return _from_object(hook, said)


def _from_object(hook: Hook, said: Mapping[str, Any]) -> Reply:
    specific = said.get("hookSpecificOutput")
    own: Mapping[str, Any] = specific if isinstance(specific, Mapping) else {}
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
        return _trouble(hook, "`updatedInput` must be an object")
    context = own.get("additionalContext", said.get("additionalContext"))
    halt = str(said.get("stopReason") or "a hook stopped the run") if said.get("continue") is False else None
    return Reply(
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
        found = found.get("behavior")
    if found is None or found == "defer":
        return None, str(reason or "")
    known = DECISIONS if hook.event == "PreToolUse" else {**DECISIONS, "defer": "ask"}
    if found not in known or (found == "block" and "permissionDecision" in own):
        raise ValueError(f"answered `{found}`, which is no decision; there are allow, deny and ask")
    return known[found], str(reason or "")


def _trouble(hook: Hook, what: str) -> Reply:
    if hook.on_error == "block":
        way_on = f'Mend it, remove it in the settings under hooks.{hook.event}, or give it "on_error": "warn"'
        return Reply(hook.name, "failed", "deny", f"the hook `{hook.name}` {what}. {way_on}")
    return Reply(hook.name, "failed", message=f"the hook `{hook.name}` {what}")


def _never_began(stderr: str) -> bool:
    """Interpreters report a script that is not there with exit code 2, which would read as a considered no."""
    line = _first_line(stderr)
    return ("can't open file" in line or "No such file or directory" in line) and ":" in line


def _first_line(text: str) -> str:
    return text.strip().splitlines()[0] if text.strip() else ""


def _first_words(text: str) -> str:
    text = text.strip()
    return text if len(text) <= 10_000 else text[:10_000] + " …"
