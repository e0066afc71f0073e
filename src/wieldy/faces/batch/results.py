"""The result of an attempt: how it ended, what it cost, and where its files are."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from msgspec import Struct

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
