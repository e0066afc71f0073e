"""One simple command: its layers, what the tables say of it, and the part it becomes."""

from __future__ import annotations

from wieldy.core.effect import Reads, Writes
from wieldy.core.record import changed, record
from wieldy.shell.effects import Touched, touched
from wieldy.shell.effort import TooMuch
from wieldy.shell.feed import UNFED, Feed
from wieldy.shell.frame import EXACT, Frame, change_in, loud, reason_not_read_only
from wieldy.shell.layers import Layers, filled_by_find, program_of, unwrap
from wieldy.shell.parts import Part
from wieldy.shell.programs.builtins import is_quiet_variable
from wieldy.shell.programs.judgement import NOTHING, Call, Judgement
from wieldy.shell.programs.registry import judge
from wieldy.shell.read import read
from wieldy.shell.redirects import UNREDIRECTED, Redirected, redirected
from wieldy.shell.scene import Scene
from wieldy.shell.syntax import RawWord, Script, Simple, Unparsable
from wieldy.shell.words import Word, resolve_all, resolve_one
from wieldy.shell.wrappers import SHELLS

MAX_NESTING = 6
_LOSING = frozenset({"pushd", "popd", "source", "."})


@record
class Context:
    """The wrappers round the script that is being followed."""

    via: tuple[str, ...] = ()
    allow_texts: tuple[str, ...] = ()
    deny_texts: tuple[str, ...] = ()
    quiet: bool = True
    why: str = ""
    span: tuple[int, int] | None = None
    closed: bool = False


OUTSIDE = Context()


class SimpleCommands:
    """The parts found so far, the problems met, and the scripts that were read on the way."""

    __slots__ = ("context", "parts", "piped_from", "problems", "scripts")

    def __init__(self, command: str, script: Script) -> None:
        self.parts: list[Part] = []
        self.problems: list[str] = []
        self.scripts: list[tuple[str, Script]] = [(command, script)]
        self.context = OUTSIDE
        self.piped_from: int | None = None

    def script(self, script: Script, scene: Scene) -> Scene:
        """Follow a script; the scene at its end."""
        raise NotImplementedError

    def expansions(self, words: tuple[RawWord, ...], scene: Scene) -> None:
        """Follow the scripts that run when these words are expanded."""
        raise NotImplementedError

    def add(self, part: Part) -> None:
        """Keep a part, with the wrappers round it."""
        around = self.context
        if around is OUTSIDE:
            self.parts.append(part)
            return
        part = changed(
            part,
            via=(*around.via, *part.via),
            allow_texts=around.allow_texts if around.closed else (*around.allow_texts, *part.allow_texts),
            deny_texts=tuple(dict.fromkeys((*around.deny_texts, *part.deny_texts))),
            read_only=part.read_only and around.quiet,
            reads_alone=part.reads_alone and around.quiet,
            why=part.why or around.why,
            span=around.span or part.span,
            exact_rule=part.exact_rule or bool(EXACT & set(around.via)),
        )
        self.parts.append(part)

    def problem(self, text: str) -> None:
        """Note something that is not understood."""
        if text not in self.problems:
            self.problems.append(text)

    def simple(self, simple: Simple, words: tuple[Word, ...], scene: Scene, feed: Feed) -> Scene:
        """Judge one simple command, whose words have become these; the scene after it."""
        self._expand(simple, scene)
        outside = redirected(simple.redirects, scene) if simple.redirects else UNREDIRECTED
        if not words:
            self._without_program(simple, outside, scene)
            return scene
        layers = _fed_shell(unwrap(words, feed), simple, scene)
        frame = Frame(simple, layers, outside, tuple(one.name for one in simple.assignments))
        if layers.script is not None and not layers.problem:
            return self._nested(frame, layers.script, scene)
        return self._program(frame, scene)

    def _expand(self, simple: Simple, scene: Scene) -> None:
        self.expansions(simple.words, scene)
        if simple.redirects:
            self.expansions(tuple(redirect.target for redirect in simple.redirects), scene)
        for one in simple.assignments:
            if one.subscript and not one.subscript.source.isdecimal():
                self.problem("an array subscript can run code held in a variable")
            self.expansions(tuple(word for word in (one.subscript, one.value, *one.items) if word), scene)

    def _without_program(self, simple: Simple, outside: Redirected, scene: Scene) -> None:
        unknown = loud(simple.assignments) or outside.why
        reason = unknown or change_in(outside.effects)
        names = tuple(one.name for one in simple.assignments)
        span = (simple.start, simple.end)
        self.add(
            Part(
                simple.source,
                (),
                None,
                outside.effects,
                not reason,
                not unknown,
                reason,
                (),
                names,
                span,
                redirections=outside.effects,
                settings=_settings(simple, (), scene) if unknown else (),
            )
        )

    def _told(self, part: Part, frame: Frame, scene: Scene) -> Part:
        """The part with the texts that it, or whoever it prints to, may take for code."""
        given = [redirect.target for redirect in frame.simple.redirects if redirect.heredoc]
        if part.known and not given:
            return part
        texts = [_spelled(resolve_one(text, scene)) for text in given]
        if part.known:
            return changed(part, inputs=tuple(texts))
        texts += self._piped()
        settings = _settings(frame.simple, frame.layers.variables, scene)
        return changed(part, inputs=tuple(texts), settings=settings) if texts or settings else part

    def _piped(self) -> list[str]:
        """What the earlier stages of the pipeline may print of what they were given."""
        if self.piped_from is None:
            return []
        earlier = dict.fromkeys(self.parts[self.piped_from :])
        return ["\n".join(text for part in earlier for text in (*part.inputs, _words(part.argv[1:])) if text)]

    def _program(self, frame: Frame, scene: Scene) -> Scene:
        words = frame.layers.words
        name = program_of(words[0])
        call = Call(name or "", words[1:], scene)
        own = name in scene.functions and not frame.layers.via
        if name is None:
            judged = Judgement(known=False, why="which program runs is known only when it runs")
        elif own:
            judged = NOTHING
        else:
            judged = judge(call)
        executed = _executed_by_find(words[1:]) if name == "find" else []
        if executed is None:
            judged = Judgement(known=False, why="the commands that `find` executes cannot be told")
        if frame.layers.reads:
            judged = changed(judged, reads=(*frame.layers.reads, *judged.reads))
        touches = touched(judged, scene)
        part = self._told(frame.part(words, name, judged, touches, scene), frame, scene)
        if executed or (name == "find" and judged.writes):
            part = changed(part, exact_rule=True)
        self.add(part)
        for command in executed or ():
            self._executed(command, part, touches, scene)
        return scene if own else _after(name, words, judged, scene)

    def _executed(self, command: tuple[Word, ...], part: Part, touches: Touched, scene: Scene) -> None:
        """A command that `find` runs for what it finds: only a rule for the whole `find` covers it."""
        folders = tuple(effect.path for effect in touches.effects if isinstance(effect, Reads | Writes))
        starts = [word.text for word in part.argv[1:2] if word.static and not word.text.startswith("-")]
        elsewhere = any(word.static and word.text in ("-execdir", "-okdir") for word in part.argv)
        words = filled_by_find(command, Feed(folders, starts[0] if starts else "./"))
        outer, self.context = (
            self.context,
            self._inside(part.allow_texts, part.deny_texts, ("find",), True, "", closed=True),
        )
        source = Simple((), (), (), part.text, *part.span)
        layers = unwrap(words, UNFED)
        frame = Frame(source, layers, UNREDIRECTED, (), exact=True)
        if layers.script is not None and not layers.problem:
            self._nested(frame, layers.script, scene.lost())
        else:
            self._program(frame, scene.lost() if elsewhere else scene)
        self.context = outer

    def _nested(self, frame: Frame, text: Word, scene: Scene) -> Scene:
        """Shell text in an argument, such as that of `bash -c` or `eval`."""
        layers = frame.layers
        same_shell = layers.via[-1:] == ("eval",)
        why = frame.problem() or ("" if text.static else "the script is known only when it runs")
        outer = self.context
        if len(outer.via) + len(layers.via) > MAX_NESTING:
            self.problem("shells nested too deeply")
            return scene.lost()
        found = len(self.parts)
        quiet = layers.quiet and not why and not change_in(frame.outside.effects)
        self.context = self._inside(
            layers.allow_texts,
            layers.deny_texts,
            layers.via,
            quiet,
            why or reason_not_read_only(layers, frame.outside.effects, NOTHING),
            closed=not layers.transparent,
        )
        self.context = changed(self.context, span=outer.span or (frame.simple.start, frame.simple.end))
        after = scene
        try:
            script = read(text.text)
            self.scripts.append((text.text, script))
            inside = scene if same_shell else changed(scene, variables={}, functions=frozenset())
            after = self.script(script, inside)
        except TooMuch:
            raise
        except Unparsable as error:
            why = why or f"the script of `{layers.via[-1]}` is not understood: {error}"
        self.context = outer
        if why or frame.outside.effects or len(self.parts) == found:
            judged = Judgement(known=not why, why=why)
            touches = touched(changed(judged, reads=layers.reads), scene)
            part = frame.part(layers.words, layers.via[-1], judged, touches, scene)
            self.add(self._told(part, frame, scene))
        return after if same_shell else scene

    def _inside(
        self,
        allow: tuple[str, ...],
        deny: tuple[str, ...],
        via: tuple[str, ...],
        quiet: bool,
        why: str,
        *,
        closed: bool = False,
    ) -> Context:
        around = self.context
        allowed = around.allow_texts if around.closed else (*around.allow_texts, *allow)
        return Context(
            (*around.via, *via),
            allowed,
            (*around.deny_texts, *deny),
            around.quiet and quiet,
            around.why or why,
            around.span,
            around.closed or closed,
        )


def _executed_by_find(words: tuple[Word, ...]) -> list[tuple[Word, ...]] | None:
    from wieldy.shell.programs.find import executed

    return executed(words)


def _settings(simple: Simple, variables: tuple[str, ...], scene: Scene) -> tuple[str, ...]:
    """What is given to variables that programs listen to, before the command or, of these names, among its words."""
    values = [one.value for one in simple.assignments if one.value and not is_quiet_variable(one.name)]
    texts = [_spelled(resolve_one(value, scene)) for value in values]
    if variables:
        pairs = [_spelled(word).partition("=") for word in resolve_all(simple.words, scene)]
        texts += [value for name, _, value in pairs if name in variables and not is_quiet_variable(name)]
    return tuple(texts)


def _words(words: tuple[Word, ...]) -> str:
    return " ".join([word.text or word.source for word in words])


def _spelled(word: Word) -> str:
    return word.text if word.static else word.source


def _fed_shell(layers: Layers, simple: Simple, scene: Scene) -> Layers:
    """A shell without a script reads it from its input: the text of a here-document is then no data."""
    name = program_of(layers.words[0]) if layers.words else None
    texts = [redirect.target for redirect in simple.redirects if redirect.heredoc]
    if layers.script or layers.problem or name not in SHELLS or not texts:
        return layers
    if any(not word.stem.startswith("-") for word in layers.words[1:]):
        return layers
    return changed(
        layers, script=resolve_one(texts[-1], scene), via=(*layers.via, name or ""), quiet=False, transparent=False
    )


def _after(name: str | None, words: tuple[Word, ...], judged: Judgement, scene: Scene) -> Scene:
    if name != "cd":
        return scene.lost() if name is None or name in _LOSING else scene
    targets = [word for word in words[1:] if not (word.static and word.text in ("-P", "-L", "--"))]
    physical = any(word.static and word.text == "-P" for word in words) and any(".." in word.text for word in targets)
    if not judged.known or physical:
        return scene.lost()
    return scene.moved(targets[0].text if targets else scene.home)
