"""Analyze a shell command before it runs: its parts with their effects, a verdict, and catastrophic commands in it."""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from wieldy.core.effects import Effects, Opaque
from wieldy.shell.effects.command_part import CommandPart, RuleTexts, Sweep
from wieldy.shell.effects.programs.builtins import changes_folder
from wieldy.shell.effects.programs.catastrophic import Danger, find_dangers, fork_bombs
from wieldy.shell.effects.programs.git import changes_repository, enters_submodules, repository_folders
from wieldy.shell.effects.programs.interpreters import imports_modules
from wieldy.shell.effects.programs.pipeline_input import UNKNOWN_INPUT
from wieldy.shell.effects.programs.profiles import profile_of
from wieldy.shell.effects.programs.wrappers import unwrap
from wieldy.shell.effects.script_analyzer import ScriptAnalyzer
from wieldy.shell.effects.words import ShellState, Word, literal
from wieldy.shell.parsing.cross_check import parsers_agree
from wieldy.shell.parsing.parser import parse
from wieldy.shell.parsing.syntax import TooComplex, Unparsable

Verdict: TypeAlias = Literal["read_only", "known", "unknown"]
_INVISIBLE_CATEGORIES = frozenset({"Cf", "Cc", "Zl", "Zp", "Zs", "Cs", "Co"})
_CHARACTER_NAMES = {"\0": "a NUL byte", "\r": "a carriage return", "\x1b": "an escape character"}


class Analysis(Struct, frozen=True, dict=True):
    """`read_only`: proven to change nothing. `known`: every effect is listed. `unknown`: a person should look."""

    parts: tuple[CommandPart, ...]
    verdict: Verdict
    catastrophic: tuple[Danger, ...] = ()
    problems: tuple[str, ...] = ()
    sweeps: tuple[Sweep, ...] = ()

    @cached_property
    def effects(self) -> Effects:
        return tuple(dict.fromkeys([effect for part in self.parts for effect in part.effects]))

    @cached_property
    def may_change_folder(self) -> bool:
        """Whether the shell may end in another folder than it started in."""
        return self.verdict != "read_only" or any(map(changes_folder, self.parts))

    @cached_property
    def git_folders(self) -> tuple[str, ...]:
        """Where git commands look for repositories."""
        folders = [folder for part in self.parts for folder in repository_folders(part)]
        return tuple(dict.fromkeys(folders))

    @cached_property
    def neutral_git_folders(self) -> tuple[str, ...]:
        """Where git commands look for repositories if all of them only read, so that the launcher must neutralize git."""
        return () if any(map(changes_repository, self.parts)) else self.git_folders

    @cached_property
    def enters_submodules(self) -> bool:
        """Whether git looks into nested repositories, whose settings name programs that no variable replaces."""
        return any(map(enters_submodules, self.parts))

    @cached_property
    def sees_processes(self) -> bool:
        """Whether it looks into the open files of other processes, and runs nothing beside that but plain text tools."""
        profiles = [profile_of(part.program) for part in self.parts]
        only_text = all(profile.sees_processes or profile.only_text for profile in profiles)
        return only_text and any(profile.sees_processes for profile in profiles)

    @cached_property
    def neutral_pythons(self) -> tuple[str, ...]:
        """The Pythons, as the command names them, that the launcher must keep from importing modules of the project."""
        return tuple(dict.fromkeys(part.argv[0].text for part in self.parts if imports_modules(part)))


def classify(command: str, *, cwd: str | None = None, home: str | None = None) -> Literal["read_only", "ask", "deny"]:
    """`read_only`: proven harmless. `deny`: no mode runs it. `ask`: everything else."""
    analysis = analyze(command, cwd=cwd or os.getcwd(), home=home or os.path.expanduser("~"))
    if any(danger.behavior == "deny" for danger in analysis.catastrophic):
        return "deny"
    return "read_only" if analysis.verdict == "read_only" else "ask"


def analyze(command: str, *, cwd: str, home: str, root: str | None = None) -> Analysis:
    """Analyze a command as bash would run it in `cwd`. Nothing is run and no file is read."""
    state = ShellState(os.path.normpath(home), os.path.normpath(root or cwd), (os.path.normpath(cwd),))
    analysis = _analyze_in(state, command, names_on_disk=True)
    if analysis.verdict != "read_only" and any(
        sweep.dashes or (sweep.splits and sweep.pattern) for sweep in analysis.sweeps
    ):
        # The command could make a file itself whose name is split or becomes an option.
        return _analyze_in(state, command, names_on_disk=False)
    return analysis


def _analyze_in(state: ShellState, command: str, *, names_on_disk: bool) -> Analysis:
    """Analyze a command. `names_on_disk`: that bash splits no name, and programs take none for an option, is seen on disk."""
    problems = unusual_characters(command)
    try:
        script = parse(command)
    except (Unparsable, RecursionError) as error:
        return _analyze_unparsable(command, state, [*problems, f"not understood: {error}"])
    analyzer = ScriptAnalyzer(command, script, names_on_disk=names_on_disk)
    try:
        analyzer.follow_script(script, state)
    except (TooComplex, RecursionError) as error:
        why = str(error) if isinstance(error, TooComplex) else "nested too deeply"
        return _analyze_unparsable(command, state, [*problems, why], analyzer.parts)
    parts = tuple(dict.fromkeys(analyzer.parts)) if analyzer.revisited else tuple(analyzer.parts)
    problems += analyzer.problems
    for part in parts:
        if part.program and not part.program.isascii():
            problems += [f"`{part.program}` contains {name}" for name in non_ascii_characters(part.program)]
    if not parts:
        problems.append("there is no command in it")
    dangers = find_dangers(parts, state)
    if analyzer.functions:
        dangers = (*(danger for _, script in analyzer.scripts for danger in fork_bombs(script)), *dangers)
    known = all(part.known for part in parts)
    if known and not problems and not all(parsers_agree(text, script) for text, script in analyzer.scripts):
        problems.append("a second parser reads the command differently")
    sweeps = tuple(dict.fromkeys(analyzer.sweeps))
    if problems or not known or any(map(changes_repository, parts)):
        parts = tuple(_with_project_settings(part) for part in parts)
    if problems:
        return Analysis(_not_read_only(parts), "unknown", dangers, tuple(problems), sweeps)
    if not known:
        return Analysis(parts, "unknown", dangers, sweeps=sweeps)
    read_only = all(part.read_only for part in parts) and not dangers
    return Analysis(parts, "read_only" if read_only else "known", dangers, sweeps=sweeps)


def _with_project_settings(part: CommandPart) -> CommandPart:
    """A git, go or Python command beside programs that need the real settings, which can make it run other programs."""
    if not part.program_read_only or not (profile_of(part.program).obeys_project or imports_modules(part)):
        return part
    why = f"`{part.program}` can run programs that the project names, unless the whole command is understood and git only reads"
    return replace(part, read_only=False, program_read_only=False, why=why)


def _not_read_only(parts: Sequence[CommandPart]) -> tuple[CommandPart, ...]:
    """Parts of a command that is not understood as a whole: none of them is proven harmless."""
    return tuple(replace(part, read_only=False) for part in parts)


def unusual_characters(text: str) -> list[str]:
    """Name the invisible characters and foreign spaces in a command."""
    if text.isascii() and text.isprintable():
        return []
    characters = [char for char in dict.fromkeys(text) if char not in "\t\n "]
    unusual = [char for char in characters if unicodedata.category(char) in _INVISIBLE_CATEGORIES]
    return [f"the command contains {_character_name(char)}" for char in unusual]


def non_ascii_characters(program: str) -> list[str]:
    """Name the characters of a program's name that are not ASCII: a Cyrillic letter can look like a Latin one."""
    return [_character_name(char) for char in dict.fromkeys(program) if not char.isascii()]


def _character_name(char: str) -> str:
    return _CHARACTER_NAMES.get(char) or f"U+{ord(char):04X} ({unicodedata.name(char, 'unnamed').lower()})"


# The rough reading of text that cannot be parsed. It proves nothing; it lets deny rules and the search for catastrophic
# commands see the words.

# No system passes a longer text to bash.
MAX_ROUGH_LENGTH = 131_072
_SEPARATORS = re.compile(r"[;&|\n()`]+|\$\(|\{ | \}")
_EXTENDED_GLOB = re.compile(r"[@!+*?]\([^()]*\)")
_COMMENT = re.compile(r"(?:^|\s)#")
_KEYWORDS = frozenset(["then", "do", "else", "elif", "if", "while", "until", "!", "time", "coproc", "{", "}"])
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
_REMOVE_QUOTES = str.maketrans("", "", "\"'\\")


def _analyze_unparsable(
    command: str, state: ShellState, problems: list[str], analyzed: Sequence[CommandPart] = ()
) -> Analysis:
    parts = (*_not_read_only(analyzed), *_rough_parts(command, state.cwds))
    return Analysis(parts, "unknown", find_dangers(parts, state), tuple(problems))


def _rough_parts(text: str, cwds: tuple[str, ...]) -> Iterator[CommandPart]:
    """A part for each fragment between separators, without quotes; with what may be a comment, and without."""
    text = _EXTENDED_GLOB.sub("*", text[:MAX_ROUGH_LENGTH].translate(_REMOVE_QUOTES))
    fragments = _SEPARATORS.split(text)
    readings = [reading for fragment in fragments for reading in (fragment, _COMMENT.split(fragment, 1)[0])]
    for reading in dict.fromkeys(readings):
        words = reading.split()
        while words and (words[0] in _KEYWORDS or _ASSIGNMENT.match(words[0])):
            words = words[1:]
        if words:
            yield from _rough_command(tuple(map(_rough_word, words)), cwds)


def _rough_word(text: str) -> Word:
    wildcard = next((at for at, char in enumerate(text) if char in "*?["), None)
    return literal(text) if wildcard is None else Word(text, "glob", text, text[:wildcard])


def _rough_command(words: tuple[Word, ...], cwds: tuple[str, ...]) -> Iterator[CommandPart]:
    unwrapped = unwrap(words, UNKNOWN_INPUT)
    yield CommandPart(
        unwrapped.allow_texts[0],
        unwrapped.words,
        unwrapped.program,
        (Opaque(),),
        read_only=False,
        known=False,
        why="the command is not understood",
        wrappers=unwrapped.wrappers,
        rules=RuleTexts(deny=unwrapped.deny_texts),
        cwds=cwds,
    )
    if (script := unwrapped.script) is not None:
        # Without its quotes, the script of a shell is the rest of the words.
        inner = unwrapped.words
        in_words = script in inner[1:]
        rest = inner[inner.index(script, 1) :] if in_words else tuple(map(literal, script.text.split()))
        yield from _rough_command(rest, cwds)
