"""`wieldy permissions replay`: the calls of past sessions, held against the rules of today."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator

from wieldy.core.call import PlannedCall, ToolCall
from wieldy.core.decision import Behavior
from wieldy.core.failure import Refusal, SessionError
from wieldy.core.record import record
from wieldy.engine.bind import bind
from wieldy.engine.lookup import lookup
from wieldy.engine.normalise import normalise
from wieldy.permissions.explain import Changed, replay
from wieldy.session.past import past_calls
from wieldy.session.store import Kept, kept_sessions, look, session_folder
from wieldy.toolbox import Toolbox


@record
class Replayed:
    """What came of one session: how many calls were judged, how many no longer can be, and which change."""

    session: str
    judged: int
    lost: int
    changes: tuple[Changed, ...]


def run(options: argparse.Namespace) -> int:
    """Exit code 1 when a call that was denied or asked about would now be allowed."""
    if bool(options.session) == options.all:
        print("wieldy: name a session, or say --all", file=sys.stderr)
        return 2
    sessions = list(kept_sessions(options.root)) if options.all else [_named(options.session)]
    replayed = [_replayed(kept, options) for kept in sessions]
    if options.json:
        print(json.dumps([_row(done, one) for done in replayed for one in done.changes], ensure_ascii=False, indent=2))
    else:
        print("\n".join(_lines(replayed, by_session=options.all)))
    return 1 if any(change.widened for done in replayed for change in done.changes) else 0


def _named(session: str) -> Kept:
    folder = session_folder(session)
    kept = look(folder, 0.0) if folder.is_dir() else None
    if kept is None:
        raise SessionError(f"there is no session {session}; `wieldy sessions` lists them")
    return kept


def _replayed(kept: Kept, options: argparse.Namespace) -> Replayed:
    """One session, judged by the rules of the folder it worked in, wherever we are."""
    root = kept.root if os.path.isdir(kept.root) else options.root
    box = Toolbox(root, mode=options.mode, load_settings=True)
    planned = list(_planned(kept, box))
    past = [one for one in planned if one is not None]
    return Replayed(kept.id, len(past), len(planned) - len(past), tuple(replay(box.policy, past)))


def _planned(kept: Kept, box: Toolbox) -> Iterator[tuple[PlannedCall, Behavior] | None]:
    """The calls of a session as they would be planned today; None for one whose tool or input exists no more."""
    for number, (name, input, behavior) in enumerate(past_calls(kept.folder)):
        call = ToolCall(f"past-{number}", name, dict(input))
        try:
            yield normalise(bind(call, lookup(call, box.catalog)), box.workspace), behavior
        except Refusal:
            yield None


def _row(done: Replayed, change: Changed) -> dict[str, object]:
    return {
        "session": done.session,
        "tool": change.plan.tool.name,
        "input": change.plan.input,
        "before": change.before,
        "now": change.now.behavior,
        "why": change.now.why,
    }


def _lines(replayed: list[Replayed], *, by_session: bool) -> Iterator[str]:
    for done in replayed:
        if by_session and done.changes:
            yield f"session {done.session}"
        for change in done.changes:
            yield f"{change.before} → {change.now.behavior}  {change.plan.tool.show_use(change.plan.input)}"
            yield f"    {change.now.why}"
    judged, lost = sum(done.judged for done in replayed), sum(done.lost for done in replayed)
    yield f"{judged} past call(s), {sum(len(done.changes) for done in replayed)} would be decided otherwise"
    if lost:
        yield f"{lost} more could not be judged: their tool or input exists no more"
