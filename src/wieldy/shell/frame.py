"""What surrounds a program in its simple command, and the part that the two become together."""

from __future__ import annotations

from wieldy.core.effect import Effect, Fetches, Runs, Writes
from wieldy.core.record import record
from wieldy.shell.effects import Touched
from wieldy.shell.layers import Layers
from wieldy.shell.parts import Part
from wieldy.shell.programs.builtins import is_quiet_variable
from wieldy.shell.programs.judgement import Judgement
from wieldy.shell.redirects import Redirected
from wieldy.shell.scene import Scene
from wieldy.shell.syntax import Assignment, Simple
from wieldy.shell.words import Word

EXACT = frozenset({"watch", "setsid", "ionice", "flock"})


@record
class Frame:
    """What surrounds a program in its simple command."""

    simple: Simple
    layers: Layers
    outside: Redirected
    names: tuple[str, ...]
    exact: bool = False

    def problem(self) -> str:
        """What about the surroundings is not understood."""
        heard = loud(self.simple.assignments) or _loud_names(self.layers.variables)
        return self.layers.problem or heard or self.outside.why

    def part(
        self, words: tuple[Word, ...], name: str | None, judged: Judgement, touches: Touched, scene: Scene
    ) -> Part:
        """The part that this command becomes."""
        effects = (*touches.effects, *self.outside.effects)
        why = self.problem() or touches.why
        known = not why
        quiet = known and self.layers.quiet and judged.read_only and not change_in(touches.effects)
        text = self.layers.allow_texts[0]
        return Part(
            text=text,
            argv=words,
            program=name,
            effects=(Runs(text, contained=known), *effects),
            read_only=quiet and not change_in(self.outside.effects),
            known=known,
            why=why or reason_not_read_only(self.layers, effects, judged),
            via=self.layers.via,
            assignments=self.names,
            span=(self.simple.start, self.simple.end),
            allow_texts=self._led(self.layers.allow_texts),
            deny_texts=self.layers.deny_texts,
            sweeps=touches.sweeps,
            cwds=scene.cwds,
            redirections=self.outside.effects,
            reads_alone=quiet,
            exact_rule=self.exact or not EXACT.isdisjoint(self.layers.via),
        )

    def _led(self, texts: tuple[str, ...]) -> tuple[str, ...]:
        """These texts behind the assignments that programs may listen to: a rule must name them, too."""
        heard = [one for one in self.simple.assignments if not is_quiet_variable(one.name)]
        if not heard:
            return texts
        lead = self.simple.source[: heard[-1].end - self.simple.start]
        return tuple(f"{lead} {text}" for text in texts)


def change_in(effects: tuple[Effect, ...]) -> str:
    """The first effect that changes something, in words; nothing if none does."""
    for effect in effects:
        if isinstance(effect, Writes):
            return f"it writes {effect.path}"
        if isinstance(effect, Fetches):
            return f"it fetches {effect.url}"
    return ""


def reason_not_read_only(layers: Layers, effects: tuple[Effect, ...], judged: Judgement) -> str:
    """Why a call that is understood is not read-only; nothing if it is."""
    if change := change_in(effects):
        return change
    if judged.changes or judged.writes:
        return judged.why or "it changes something"
    return "" if layers.quiet else f"it runs through `{layers.via[-1]}`"


def loud(assignments: tuple[Assignment, ...]) -> str:
    """The first variable that programs may listen to, as a reason; nothing if there is none."""
    return _loud_names(tuple(one.name for one in assignments)) if assignments else ""


def _loud_names(names: tuple[str, ...]) -> str:
    heard = [name for name in names if not is_quiet_variable(name)] if names else []
    return f"it sets `{heard[0]}`, which programs may listen to" if heard else ""
