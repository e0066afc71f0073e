"""From what a table says about a call to effects with absolute paths."""

from __future__ import annotations

from wieldy.core.effect import Effect, Fetches, Reads, Writes
from wieldy.core.record import record
from wieldy.shell.programs.judgement import Judgement
from wieldy.shell.redirects import is_stream
from wieldy.shell.scene import Scene
from wieldy.shell.words import Word


@record
class Touched:
    """What a call touches; `why` names the first thing that cannot be told."""

    effects: tuple[Effect, ...]
    sweeps: tuple[str, ...] = ()
    why: str = ""


def touched(judged: Judgement, scene: Scene) -> Touched:
    """The effects of one judged call."""
    effects: list[Effect] = []
    sweeps: list[str] = []
    why = judged.why if not judged.known else ""
    for word in judged.reads:
        paths = word.paths(scene)
        why = why or ("" if paths else _cannot_tell(word, "read"))
        effects.extend(Reads(path) for path in paths or () if not is_stream(path))
        if (judged.sweeps and word not in judged.spared) or not word.static:
            sweeps.extend(paths or ())
    for word in judged.writes:
        paths = word.paths(scene)
        why = why or ("" if paths else _cannot_tell(word, "written"))
        effects.extend(Writes(path) for path in paths or () if not is_stream(path))
    effects.extend(map(Fetches, judged.fetches))
    if len(effects) > 1:
        effects = list(dict.fromkeys(effects))
    return Touched(tuple(effects), tuple(dict.fromkeys(sweeps)) if sweeps else (), why)


def _cannot_tell(word: Word, how: str) -> str:
    return f"which file is {how} by `{word.source or 'its input'}` cannot be told"
