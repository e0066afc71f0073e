"""The result of an attempt: how it ended (the task, a limit, a permission, the model, or the infrastructure), cost and files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

from msgspec import Struct

from wieldy.core.events import RunEnded

Ending: TypeAlias = Literal["solved", "unsolved", "done", "limit", "denied", "refused", "infra", "crashed", "skipped"]

FINAL = frozenset({"solved", "unsolved", "done", "limit", "denied", "refused"})
"""Endings that say something about the task. The others say that it has not been tried in earnest, and run again."""

FAILED = frozenset({"unsolved", "limit", "denied", "refused", "crashed"})

MAX_TEXT_CHARS = 4_000


class TaskCheck(Struct, frozen=True, omit_defaults=True):
    """What the check of a task said: its exit code, or why there is none."""

    exit_code: int | None = None
    seconds: float = 0.0
    timed_out: bool = False

    @property
    def passed(self) -> bool:
        return self.exit_code == 0


class AttemptResult(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One line of `results.jsonl`.

    `seconds` is working time, `wall_seconds` also counts `waited_seconds` for rate limits and retries. `limit` names the limit
    that was reached, `error_class` what kind of infrastructure failed, also in the name that Harbor has for it. `tools` counts
    calls by tool. `cost` is in US dollars; `unpriced` says that the price of the model is unknown.
    """

    id: str
    identity: str
    ending: Ending
    sample: int = 1
    attempt: int = 0
    detail: str = ""
    limit: str = ""
    error_class: str = ""
    harbor_class: str = ""
    check: TaskCheck | None = None
    model: str = ""
    isolation: str = ""
    isolation_note: str = ""
    folder: str = ""
    session_id: str = ""
    started: float = 0.0
    seconds: float = 0.0
    wall_seconds: float = 0.0
    waited_seconds: float = 0.0
    turns: int = 0
    cost: float = 0.0
    unpriced: bool = False
    usage: dict[str, int] = {}
    tools: dict[str, int] = {}
    tool_errors: int = 0
    denials: list[dict[str, Any]] = []
    text: str = ""
    patch_bytes: int | None = None
    patch_note: str = ""
    tags: tuple[str, ...] = ()
    worker: str = ""
    version: str = ""

    @property
    def is_final(self) -> bool:
        return self.ending in FINAL


LIMITS = frozenset({"max_turns", "max_cost", "max_tokens", "looping"})
# Kind of a provider's failure → our class, and the class that Harbor has for it.
ERROR_CLASSES: Mapping[str, tuple[str, str]] = {
    "rate": ("rate_limit", "ApiRateLimitError"),
    "overloaded": ("overloaded", "ApiOverloadedError"),
    "connection": ("connection", "ApiConnectionClosedError"),
    "refused": ("connection", "NetworkConnectionError"),
    "auth": ("authentication", "AgentAuthenticationError"),
    "model": ("model_not_found", "ModelNotFoundError"),
    "bad_request": ("bad_request", "UnsupportedModelParametersError"),
    "protocol": ("protocol", "UnknownApiError"),
}
CONTEXT_KINDS = ("overflow", "too_large")

RETRIED = frozenset({"rate_limit", "overloaded", "connection", "protocol"})
"""Classes that may pass by themselves: an attempt that ended so is made again."""

HOPELESS = frozenset({"authentication", "model_not_found", "storage", "settings"})
"""Classes that the next task would meet too: a few of them in a row end the run."""


class Verdict(Struct, frozen=True):
    """The part of a result that says how it ended."""

    ending: Ending
    detail: str = ""
    limit: str = ""
    error_class: str = ""
    harbor_class: str = ""


def needs_check(end: RunEnded, limit: str) -> bool:
    """Whether the check can say anything: also after a limit, when the work may be done already."""
    return bool(limit) or end.why == "done" or end.why in LIMITS or end.failure in CONTEXT_KINDS


def judge(end: RunEnded, limit: str, check: TaskCheck | None, *, denied: bool) -> Verdict:
    """The ending of a run. `limit` is the clock that stopped it, `denied` whether a call was not permitted."""
    limit = limit or (end.why if end.why in LIMITS else "") or ("context" if end.failure in CONTEXT_KINDS else "")
    if end.why == "refusal":
        return Verdict("refused", end.detail)
    if not limit and end.why != "done":
        return _judge_error(end)
    if check is not None and check.passed:
        return Verdict("solved", end.detail if limit else "", limit)
    if limit:
        harbor = "ContextWindowExceededError" if limit == "context" else ""
        return Verdict("limit", end.detail or f"stopped at the limit {limit}", limit, harbor_class=harbor)
    if denied:
        return Verdict("denied", "a call that the model made was not permitted")
    if check is None:
        return Verdict("done")
    if check.timed_out:
        return Verdict("unsolved", f"the check took longer than {check.seconds:.0f} s")
    return Verdict("unsolved", f"the check ended with exit code {check.exit_code}")


def _judge_error(end: RunEnded) -> Verdict:
    if end.why == "interrupted":
        return Verdict("limit", end.detail, "stopped")
    error_class, harbor = ERROR_CLASSES.get(end.failure, ("session", "UnknownApiError"))
    return Verdict("infra", end.detail or end.why, error_class=error_class, harbor_class=harbor)
