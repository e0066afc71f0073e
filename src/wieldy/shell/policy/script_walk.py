"""Following a script the way bash would run it, collecting one part for each simple command."""

from __future__ import annotations

from collections.abc import Container, Iterator

from msgspec import Struct
from msgspec.structs import replace

from wieldy.shell.parsing.budget import AGAIN, ANEW, MAX_UNROLLED_WORK, MAX_WORK, TooMuch
from wieldy.shell.parsing.syntax import (
    Branches,
    Chain,
    Command,
    Condition,
    Coprocess,
    Expansion,
    Function,
    Group,
    LiteralText,
    Loop,
    Piece,
    Pipeline,
    RawWord,
    Redirect,
    Script,
    Simple,
    hazards_in,
    scripts_in,
)
from wieldy.shell.policy.command_part import CommandPart
from wieldy.shell.policy.piped_names import UNFED, Feed, fed_by
from wieldy.shell.policy.programs.builtins import is_quiet_variable
from wieldy.shell.policy.programs.options import names
from wieldy.shell.policy.simple_command import Context, SimpleCommands, change_in, redirected
from wieldy.shell.policy.words import ShellState, Word, plain, resolve_all, within

_SETTERS = names(
    "read declare typeset local export readonly printf unset mapfile readarray getopts let eval source . trap"
)
_MOVERS = frozenset({"cd", "pushd", "popd", "eval", "source", ".", "builtin", "command"})


class Everything(Container[str]):
    """A set that holds every name."""

    def __contains__(self, name: object) -> bool:
        return True


def assigned_names(script: Script) -> Container[str]:
    """The variables that a script may set; everything, if it uses a command that can set any."""
    found: set[str] = set()
    for simple in simple_commands(script):
        if simple.words and simple.words[0].source in _SETTERS:
            return Everything()
        found.update(one.name for one in simple.assignments)
        for word in _words(simple):
            found.update(p.name for p in word.pieces if isinstance(p, Expansion) and p.operator in ("=", ":="))
    found.update(_loop_variables(script))
    return found


def moves(code: Script | Command) -> bool:
    """Whether the working directory may be another after this."""
    found = simple_commands(code) if isinstance(code, Script) else _in_command(code)
    return any(simple.words and simple.words[0].source in _MOVERS for simple in found)


def simple_commands(script: Script) -> Iterator[Simple]:
    """Every simple command of a script outside substitutions."""
    for chain in script.chains:
        for _, pipeline in chain.links:
            for stage in pipeline.stages:
                yield from _in_command(stage)


def _in_command(command: Command) -> Iterator[Simple]:
    match command:
        case Simple():
            yield command
        case Group(body=body):
            yield from simple_commands(body)
        case Branches(bodies=bodies):
            for body in bodies:
                yield from simple_commands(body)
        case Loop(body=body, condition=condition):
            yield from simple_commands(body)
            if condition:
                yield from simple_commands(condition)
        case Function(body=inner) | Coprocess(body=inner):
            yield from _in_command(inner)
        case Condition():
            return


def _words(simple: Simple) -> Iterator[RawWord]:
    yield from simple.words
    for one in simple.assignments:
        yield from (word for word in (one.value, *one.items) if word)


def _loop_variables(script: Script) -> Iterator[str]:
    for chain in script.chains:
        for _, pipeline in chain.links:
            for stage in pipeline.stages:
                if isinstance(stage, Loop):
                    if stage.variable:
                        yield stage.variable
                    yield from _loop_variables(stage.body)
                elif isinstance(stage, Group):
                    yield from _loop_variables(stage.body)
                elif isinstance(stage, Branches):
                    for body in stage.bodies:
                        yield from _loop_variables(body)


MAX_UNROLLED = 16


class Ends(Struct, frozen=True):
    """Where the shell stands after a command that went well and after one that did not; None where it never gets there."""

    well: ShellState | None
    badly: ShellState | None

    @property
    def scene(self) -> ShellState | None:
        """The scene when it is not known how it went."""
        return _either(self.well, self.badly)


class Followed(Struct, frozen=True):
    """A command that became one part and left everything else alone; what it was followed in stays alive with it."""

    part: CommandPart
    scene: ShellState
    feed: Feed
    context: Context
    piped: bool


class Walk(SimpleCommands):
    """One walk over a script and everything nested in it; `straight` until it comes to the same command twice."""

    __slots__ = ("defined", "effort", "followed", "running", "straight")

    def __init__(self, command: str, script: Script) -> None:
        super().__init__(command, script)
        self.defined: dict[str, Function] = {}
        self.running: set[str] = set()
        self.straight = True
        self.effort = 0
        self.followed: dict[tuple[str, int, int, int], Followed] = {}

    def script(self, script: Script, scene: ShellState) -> ShellState:
        """Follow a script; the scene at its end."""
        here: ShellState | None = scene
        for chain in script.chains:
            here = self._chain(chain, here or scene.lost())
        return here or scene.lost()

    def _chain(self, chain: Chain, scene: ShellState) -> ShellState | None:
        ends = Ends(scene, scene)
        for operator, pipeline in chain.links:
            if operator == "":
                ends = self._pipeline(pipeline, scene)
            elif operator == "&&":
                now = self._pipeline(pipeline, ends.well or scene.lost())
                ends = Ends(now.well if ends.well else None, _either(ends.badly, now.badly if ends.well else None))
            else:
                now = self._pipeline(pipeline, ends.badly or scene.lost())
                ends = Ends(_either(ends.well, now.well if ends.badly else None), now.badly if ends.badly else None)
        return scene if chain.background else ends.scene

    def _pipeline(self, pipeline: Pipeline, scene: ShellState) -> Ends:
        if len(pipeline.stages) == 1:
            return self.command(pipeline.stages[0], scene, UNFED)
        feed, outer, start = UNFED, self.piped_from, len(self.parts)
        for index, stage in enumerate(pipeline.stages):
            before = len(self.parts)
            self.command(stage, scene, feed)
            feed = fed_by(self.parts[before:], feed, scene.cwds, first=index == 0)
            self.piped_from = start if outer is None else outer
        self.piped_from = outer
        return Ends(scene, scene)

    def command(self, command: Command, scene: ShellState, feed: Feed) -> Ends:
        """Follow one command."""
        match command:
            case Simple():
                return self._simple(command, scene, feed)
            case Group(body=body, subshell=subshell):
                after = self.script(body, scene)
                self._redirects(command.redirects, scene)
                return Ends(scene, scene) if subshell else Ends(after, after)
            case Branches():
                after = self._branches(command, scene)
            case Loop():
                after = self._loop(command, scene)
            case Condition(words=words, hazard=hazard):
                if hazard:
                    self.problem(hazard)
                self.expansions(words, scene)
                self._redirects(command.redirects, scene)
                self.add(
                    CommandPart(" ".join(word.source for word in words), (), None, (), not hazard, not hazard, hazard)
                )
                after = scene
            case Coprocess(body=body):
                self.command(body, scene, UNFED)
                after = scene
            case Function():
                after = self._define(command, scene)
        return Ends(after, after)

    def _simple(self, simple: Simple, scene: ShellState, feed: Feed) -> Ends:
        if self._again(simple, scene, feed):
            return Ends(scene, scene)
        before = len(self.parts), len(self.problems), len(self.scripts)
        words = resolve_all(simple.words, scene)
        name = words[0].text if words and words[0].static else ""
        after = self.simple(simple, words, scene, feed)
        # What is run through another program costs more than the two of them apart.
        for part in self.parts[before[0] :]:
            self.effort += 2 * ANEW * len(part.wrappers)
        if name in self.defined:
            after = scene.lost() if moves(self.defined[name].body) else scene
            self._call(name, scene)
        elif name == "exit":
            return Ends(None, None)
        elif after is scene and before == (len(self.parts) - 1, len(self.problems), len(self.scripts)):
            key = simple.source, id(scene), id(feed), id(self.context)
            self.followed[key] = Followed(self.parts[-1], scene, feed, self.context, self.piped_from is not None)
        return Ends(after, scene if after.cwds != scene.cwds else after)

    def _again(self, simple: Simple, scene: ShellState, feed: Feed) -> bool:
        """Whether the same command was followed in the same surroundings: then it is the same part at another place."""
        done = self.followed.get((simple.source, id(scene), id(feed), id(self.context)))
        if done and not done.part.known and (done.piped or self.piped_from is not None):
            # What is piped into it may be another text this time.
            done = None
        self.effort += AGAIN if done else ANEW
        if self.effort > MAX_WORK:
            raise TooMuch
        if done is None:
            return False
        span = done.part.span if self.context.span else (simple.start, simple.end)
        self.parts.append(replace(done.part, span=span))
        return True

    def _call(self, name: str, scene: ShellState) -> None:
        """Follow a function again where it is called: its working directory may be another there."""
        if name not in self.running:
            self.straight = False
            self.running.add(name)
            self.command(self.defined[name].body, scene, UNFED)
            self.running.discard(name)

    def _define(self, function: Function, scene: ShellState) -> ShellState:
        self.defined[function.name] = function
        self.running.add(function.name)
        self.command(function.body, scene.lost() if moves(function.body) else scene, UNFED)
        self.running.discard(function.name)
        return replace(scene, functions=scene.functions | {function.name})

    def _branches(self, branches: Branches, scene: ShellState) -> ShellState:
        self.expansions(branches.words, scene)
        after = scene
        for body in branches.bodies:
            after = after.either(self.script(body, after))
        self._redirects(branches.redirects, scene)
        return after

    def _loop(self, loop: Loop, scene: ShellState) -> ShellState:
        self.expansions(loop.words or (), scene)
        if loop.header:
            self._pieces((loop.header,), scene)
        if loop.variable and not is_quiet_variable(loop.variable):
            self.problem(f"it sets `{loop.variable}`, which programs may listen to")
        self._redirects(loop.redirects, scene)
        values = self._loop_values(loop, scene)
        if values is not None and loop.variable:
            self.straight = False
            for value in values:
                scene = scene.either(self.script(loop.body, scene.knowing(loop.variable, value))).knowing(
                    loop.variable, None
                )
            return scene
        unsettled = moves(loop.body) or (loop.condition is not None and moves(loop.condition))
        scene = scene.lost() if unsettled else scene
        if loop.variable:
            scene = scene.knowing(loop.variable, None)
        if loop.condition:
            self.script(loop.condition, scene)
        self.script(loop.body, scene)
        return scene

    def _loop_values(self, loop: Loop, scene: ShellState) -> list[Word] | None:
        """The values a `for` runs through, one by one, if they are few and the body leaves the variable alone."""
        if loop.variable is None or not loop.words or loop.variable in ("HOME", "PWD"):
            return None
        words = resolve_all(loop.words, scene)
        if len(words) > MAX_UNROLLED or loop.variable in assigned_names(loop.body):
            return None
        turn = sum(ANEW for _ in simple_commands(loop.body))
        if self.effort + turn * len(words) > MAX_UNROLLED_WORK:
            return None
        values: list[Word] = []
        for word in words:
            places = word.paths(scene)
            if word.static:
                values.append(plain(word.text))
            elif word.kind == "glob" and places:
                values.append(within(word.source, places, word.prefix))
            else:
                return None
        return values

    def _redirects(self, redirects: tuple[Redirect, ...], scene: ShellState) -> None:
        """The redirections of a compound command, as a part of their own."""
        self.expansions(tuple(redirect.target for redirect in redirects), scene)
        found = redirected(redirects, scene)
        if found.effects or found.why:
            text = " ".join(
                f"{redirect.operator} {redirect.target.source}" for redirect in redirects if not redirect.heredoc
            )
            why = found.why or change_in(found.effects)
            self.add(
                CommandPart(text, (), None, found.effects, not why, not found.why, why, redirect_effects=found.effects)
            )

    def expansions(self, words: tuple[RawWord, ...], scene: ShellState) -> None:
        """Follow the scripts that run when these words are expanded."""
        for word in words:
            if len(word.pieces) != 1 or not isinstance(word.pieces[0], LiteralText):
                self._pieces(word.pieces, scene)

    def _pieces(self, pieces: tuple[Piece, ...], scene: ShellState) -> None:
        for hazard in hazards_in(pieces):
            self.problem(hazard)
        for script in scripts_in(pieces):
            self.script(script, scene)


def _either(one: ShellState | None, other: ShellState | None) -> ShellState | None:
    if one is None or other is None:
        return one or other
    return one if one is other else one.either(other)
