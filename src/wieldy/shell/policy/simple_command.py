"""One simple command: its layers, what the tables say of it, and the part it becomes."""

from __future__ import annotations

import os
import re

from msgspec import Struct
from msgspec.structs import replace

from wieldy.core.effects import Effect, Fetches, Reads, Runs, Writes
from wieldy.shell.parsing.budget import TooMuch
from wieldy.shell.parsing.read import read
from wieldy.shell.parsing.syntax import Assignment, RawWord, Redirect, Script, Simple, Unparsable
from wieldy.shell.policy.command_part import CommandPart, text_of, unquoted_text
from wieldy.shell.policy.piped_names import UNFED, Feed
from wieldy.shell.policy.programs.builtins import is_quiet_variable
from wieldy.shell.policy.programs.registry import judge
from wieldy.shell.policy.programs.tables import NOTHING, Call, Judgement
from wieldy.shell.policy.words import ShellState, Word, resolve, resolve_all, resolve_one
from wieldy.shell.policy.wrappers import SHELLS, Peeled, peel

MAX_LAYERS = 12
_STANDARD_FOLDERS = frozenset({"/bin", "/usr/bin", "/usr/local/bin", "/sbin", "/usr/sbin"})


class Layers(Struct, frozen=True):
    """A command unwrapped: `words` (or `script`) is what runs in the end."""

    words: tuple[Word, ...]
    script: Word | None
    wrappers: tuple[str, ...]
    allow_texts: tuple[str, ...]
    deny_texts: tuple[str, ...]
    quiet: bool
    transparent: bool
    reads: tuple[Word, ...]
    variables: tuple[str, ...]
    problem: str


def program_of(word: Word) -> str | None:
    """The name a table knows a program by: without its folder, if that is one of the system's."""
    if not word.static:
        return None
    if "/" not in word.text:
        return word.text
    folder, name = os.path.split(word.text)
    return name if folder in _STANDARD_FOLDERS else word.text


def unwrap(words: tuple[Word, ...], feed: Feed) -> Layers:
    """Look through the wrappers of a command."""
    wrappers: list[str] = []
    deny = _deny(words)
    allow = deny[:1]
    quiet = transparent = True
    reads: list[Word] = []
    variables: list[str] = []
    script, problem = None, ""
    while words and len(wrappers) < MAX_LAYERS:
        name = program_of(words[0])
        found = peel(words, name) if name else None
        if found is None or name is None:
            break
        wrappers.append(name)
        quiet, transparent = quiet and found.quiet, transparent and found.transparent
        reads.extend(found.reads)
        variables.extend(found.variables)
        if found.problem:
            problem = f"`{name}`: {found.problem}"
            deny.extend(text for index in range(1, min(len(words), 9)) for text in _deny(words[index:]))
            break
        if found.script is not None:
            script = found.script
            break
        words = _fed(found, feed) if found.fed else found.inner
        deny.extend(_deny(words))
        if transparent:
            allow.append(text_of(words))
    return Layers(
        words,
        script,
        tuple(wrappers),
        tuple(allow),
        tuple(dict.fromkeys(deny)),
        quiet,
        transparent,
        tuple(reads),
        tuple(variables),
        problem,
    )


def _deny(words: tuple[Word, ...]) -> list[str]:
    return [text_of(words), unquoted_text(words)]


def _fed(found: Peeled, feed: Feed) -> tuple[Word, ...]:
    """The command as `xargs` completes it from its input. A name split at a blank may go on with a dash."""
    feed = feed if found.whole else Feed(feed.folders)
    if not found.placeholder:
        return (*found.inner, Word("", "multiple", "", feed.prefix, feed.folders))
    return tuple(_filled(word, found.placeholder, feed) for word in found.inner)


def _filled(word: Word, placeholder: str, feed: Feed) -> Word:
    if not word.static or placeholder not in word.text:
        return word
    if word.text == placeholder:
        return Word(word.source, "single", "", feed.prefix, feed.folders)
    return Word(word.source, "single", word.text, word.text.partition(placeholder)[0])


def filled_by_find(words: tuple[Word, ...], feed: Feed) -> tuple[Word, ...]:
    """The command of a `find -exec`, with `{}` standing for what was found."""
    return tuple(_filled(word, "{}", feed) for word in words)


_STREAMS = frozenset({"/dev/null", "/dev/stdout", "/dev/stderr", "/dev/stdin", "/dev/tty"})
_SOCKET = re.compile(r"/dev/(tcp|udp)/([^/]+)/([^/]+)")
_DUPLICATE = re.compile(r"\d*-?")


class Redirected(Struct, frozen=True):
    """The effects of some redirections; `why` says what could not be told."""

    effects: tuple[Effect, ...] = ()
    why: str = ""


UNREDIRECTED = Redirected()


def is_stream(path: str) -> bool:
    """Whether a path is no file: the null device, or what the shell has already opened."""
    return path in _STREAMS or path.startswith("/dev/fd/")


def redirected(redirects: tuple[Redirect, ...], scene: ShellState) -> Redirected:
    """What these redirections read and write. Text given in place and the null device touch nothing."""
    effects: list[Effect] = []
    why = ""
    for redirect in redirects:
        if redirect.heredoc:
            continue
        words = resolve(redirect.target, scene)
        word = words[0]
        if len(words) != 1 or not word.static:
            why = f"the redirection to `{redirect.target.source}` cannot be told"
            continue
        if redirect.operator in (">&", "<&") and _DUPLICATE.fullmatch(word.text):
            continue
        if found := _SOCKET.fullmatch(word.text):
            effects.append(Fetches(f"{found.group(1)}://{found.group(2)}:{found.group(3)}"))
            why = f"`{word.text}` opens a connection"
            continue
        for path in scene.absolute(word.text) or ("",):
            if not path:
                why = "the folder of a redirection cannot be told"
            elif not is_stream(path):
                if redirect.operator in ("<", "<&", "<>"):
                    effects.append(Reads(path))
                if redirect.operator not in ("<", "<&"):
                    effects.append(Writes(path))
    return Redirected(tuple(effects), why)


class Touched(Struct, frozen=True):
    """What a call touches; `why` names the first thing that cannot be told."""

    effects: tuple[Effect, ...]
    sweeps: tuple[str, ...] = ()
    why: str = ""


def touched(judged: Judgement, scene: ShellState) -> Touched:
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


EXACT = frozenset({"watch", "setsid", "ionice", "flock"})


class Frame(Struct, frozen=True):
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
        self, words: tuple[Word, ...], name: str | None, judged: Judgement, touches: Touched, scene: ShellState
    ) -> CommandPart:
        """The part that this command becomes."""
        effects = (*touches.effects, *self.outside.effects)
        why = self.problem() or touches.why
        known = not why
        quiet = known and self.layers.quiet and judged.read_only and not change_in(touches.effects)
        text = self.layers.allow_texts[0]
        return CommandPart(
            text=text,
            argv=words,
            program=name,
            effects=(Runs(text, contained=known), *effects),
            read_only=quiet and not change_in(self.outside.effects),
            known=known,
            why=why or reason_not_read_only(self.layers, effects, judged),
            wrappers=self.layers.wrappers,
            assignments=self.names,
            span=(self.simple.start, self.simple.end),
            allow_texts=self._led(self.layers.allow_texts),
            deny_texts=self.layers.deny_texts,
            bulk_reads=touches.sweeps,
            cwds=scene.cwds,
            redirect_effects=self.outside.effects,
            program_read_only=quiet,
            exact_rule=self.exact or not EXACT.isdisjoint(self.layers.wrappers),
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
    return "" if layers.quiet else f"it runs through `{layers.wrappers[-1]}`"


def loud(assignments: tuple[Assignment, ...]) -> str:
    """The first variable that programs may listen to, as a reason; nothing if there is none."""
    return _loud_names(tuple(one.name for one in assignments)) if assignments else ""


def _loud_names(names: tuple[str, ...]) -> str:
    heard = [name for name in names if not is_quiet_variable(name)] if names else []
    return f"it sets `{heard[0]}`, which programs may listen to" if heard else ""


MAX_NESTING = 6
_LOSING = frozenset({"pushd", "popd", "source", "."})


class Context(Struct, frozen=True):
    """The wrappers round the script that is being followed."""

    wrappers: tuple[str, ...] = ()
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
        self.parts: list[CommandPart] = []
        self.problems: list[str] = []
        self.scripts: list[tuple[str, Script]] = [(command, script)]
        self.context = OUTSIDE
        self.piped_from: int | None = None

    def script(self, script: Script, scene: ShellState) -> ShellState:
        """Follow a script; the scene at its end."""
        raise NotImplementedError

    def expansions(self, words: tuple[RawWord, ...], scene: ShellState) -> None:
        """Follow the scripts that run when these words are expanded."""
        raise NotImplementedError

    def add(self, part: CommandPart) -> None:
        """Keep a part, with the wrappers round it."""
        around = self.context
        if around is OUTSIDE:
            self.parts.append(part)
            return
        part = replace(
            part,
            wrappers=(*around.wrappers, *part.wrappers),
            allow_texts=around.allow_texts if around.closed else (*around.allow_texts, *part.allow_texts),
            deny_texts=tuple(dict.fromkeys((*around.deny_texts, *part.deny_texts))),
            read_only=part.read_only and around.quiet,
            program_read_only=part.program_read_only and around.quiet,
            why=part.why or around.why,
            span=around.span or part.span,
            exact_rule=part.exact_rule or bool(EXACT & set(around.wrappers)),
        )
        self.parts.append(part)

    def problem(self, text: str) -> None:
        """Note something that is not understood."""
        if text not in self.problems:
            self.problems.append(text)

    def simple(self, simple: Simple, words: tuple[Word, ...], scene: ShellState, feed: Feed) -> ShellState:
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

    def _expand(self, simple: Simple, scene: ShellState) -> None:
        self.expansions(simple.words, scene)
        if simple.redirects:
            self.expansions(tuple(redirect.target for redirect in simple.redirects), scene)
        for one in simple.assignments:
            if one.subscript and not one.subscript.source.isdecimal():
                self.problem("an array subscript can run code held in a variable")
            self.expansions(tuple(word for word in (one.subscript, one.value, *one.items) if word), scene)

    def _without_program(self, simple: Simple, outside: Redirected, scene: ShellState) -> None:
        unknown = loud(simple.assignments) or outside.why
        reason = unknown or change_in(outside.effects)
        names = tuple(one.name for one in simple.assignments)
        span = (simple.start, simple.end)
        self.add(
            CommandPart(
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
                redirect_effects=outside.effects,
                variable_values=_settings(simple, (), scene) if unknown else (),
            )
        )

    def _told(self, part: CommandPart, frame: Frame, scene: ShellState) -> CommandPart:
        """The part with the texts that it, or whoever it prints to, may take for code."""
        given = [redirect.target for redirect in frame.simple.redirects if redirect.heredoc]
        if part.known and not given:
            return part
        texts = [_spelled(resolve_one(text, scene)) for text in given]
        if part.known:
            return replace(part, input_texts=tuple(texts))
        texts += self._piped()
        settings = _settings(frame.simple, frame.layers.variables, scene)
        return replace(part, input_texts=tuple(texts), variable_values=settings) if texts or settings else part

    def _piped(self) -> list[str]:
        """What the earlier stages of the pipeline may print of what they were given."""
        if self.piped_from is None:
            return []
        earlier = dict.fromkeys(self.parts[self.piped_from :])
        return ["\n".join(text for part in earlier for text in (*part.input_texts, _words(part.argv[1:])) if text)]

    def _program(self, frame: Frame, scene: ShellState) -> ShellState:
        words = frame.layers.words
        name = program_of(words[0])
        call = Call(name or "", words[1:], scene)
        own = name in scene.functions and not frame.layers.wrappers
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
            judged = replace(judged, reads=(*frame.layers.reads, *judged.reads))
        touches = touched(judged, scene)
        part = self._told(frame.part(words, name, judged, touches, scene), frame, scene)
        if executed or (name == "find" and judged.writes):
            part = replace(part, exact_rule=True)
        self.add(part)
        for command in executed or ():
            self._executed(command, part, touches, scene)
        return scene if own else _after(name, words, judged, scene)

    def _executed(self, command: tuple[Word, ...], part: CommandPart, touches: Touched, scene: ShellState) -> None:
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

    def _nested(self, frame: Frame, text: Word, scene: ShellState) -> ShellState:
        """Shell text in an argument, such as that of `bash -c` or `eval`."""
        layers = frame.layers
        same_shell = layers.wrappers[-1:] == ("eval",)
        why = frame.problem() or ("" if text.static else "the script is known only when it runs")
        outer = self.context
        if len(outer.wrappers) + len(layers.wrappers) > MAX_NESTING:
            self.problem("shells nested too deeply")
            return scene.lost()
        found = len(self.parts)
        quiet = layers.quiet and not why and not change_in(frame.outside.effects)
        self.context = self._inside(
            layers.allow_texts,
            layers.deny_texts,
            layers.wrappers,
            quiet,
            why or reason_not_read_only(layers, frame.outside.effects, NOTHING),
            closed=not layers.transparent,
        )
        self.context = replace(self.context, span=outer.span or (frame.simple.start, frame.simple.end))
        after = scene
        try:
            script = read(text.text)
            self.scripts.append((text.text, script))
            inside = scene if same_shell else replace(scene, variables={}, functions=frozenset())
            after = self.script(script, inside)
        except TooMuch:
            raise
        except Unparsable as error:
            why = why or f"the script of `{layers.wrappers[-1]}` is not understood: {error}"
        self.context = outer
        if why or frame.outside.effects or len(self.parts) == found:
            judged = Judgement(known=not why, why=why)
            touches = touched(replace(judged, reads=layers.reads), scene)
            part = frame.part(layers.words, layers.wrappers[-1], judged, touches, scene)
            self.add(self._told(part, frame, scene))
        return after if same_shell else scene

    def _inside(
        self,
        allow: tuple[str, ...],
        deny: tuple[str, ...],
        wrappers: tuple[str, ...],
        quiet: bool,
        why: str,
        *,
        closed: bool = False,
    ) -> Context:
        around = self.context
        allowed = around.allow_texts if around.closed else (*around.allow_texts, *allow)
        return Context(
            (*around.wrappers, *wrappers),
            allowed,
            (*around.deny_texts, *deny),
            around.quiet and quiet,
            around.why or why,
            around.span,
            around.closed or closed,
        )


def _executed_by_find(words: tuple[Word, ...]) -> list[tuple[Word, ...]] | None:
    from wieldy.shell.policy.programs.find import executed

    return executed(words)


def _settings(simple: Simple, variables: tuple[str, ...], scene: ShellState) -> tuple[str, ...]:
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


def _fed_shell(layers: Layers, simple: Simple, scene: ShellState) -> Layers:
    """A shell without a script reads it from its input: the text of a here-document is then no data."""
    name = program_of(layers.words[0]) if layers.words else None
    texts = [redirect.target for redirect in simple.redirects if redirect.heredoc]
    if layers.script or layers.problem or name not in SHELLS or not texts:
        return layers
    if any(not word.prefix.startswith("-") for word in layers.words[1:]):
        return layers
    return replace(
        layers,
        script=resolve_one(texts[-1], scene),
        wrappers=(*layers.wrappers, name or ""),
        quiet=False,
        transparent=False,
    )


def _after(name: str | None, words: tuple[Word, ...], judged: Judgement, scene: ShellState) -> ShellState:
    if name != "cd":
        return scene.lost() if name is None or name in _LOSING else scene
    targets = [word for word in words[1:] if not (word.static and word.text in ("-P", "-L", "--"))]
    physical = any(word.static and word.text == "-P" for word in words) and any(".." in word.text for word in targets)
    if not judged.known or physical:
        return scene.lost()
    return scene.moved(targets[0].text if targets else scene.home)
