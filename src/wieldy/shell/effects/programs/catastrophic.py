"""Catastrophic commands: those that always need a person's consent, and those that never run."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Sequence
from itertools import pairwise
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from wieldy.core.effects import Writes
from wieldy.shell.effects.command_part import CommandPart
from wieldy.shell.effects.programs.find import primaries_of, split_find_args
from wieldy.shell.effects.programs.git import GitCall, split_git_args
from wieldy.shell.effects.programs.spec import UnknownArguments, option_table, parse_args, word_set
from wieldy.shell.effects.words import ShellState, Word, glob_regex
from wieldy.shell.parsing.syntax import (
    FunctionDefinition,
    Pipeline,
    ShellScript,
    SimpleCommand,
    bodies_of,
    every_command,
)

_DEVICE = re.compile(
    r"/dev/(sd|hd|vd|xvd|nvme|mmcblk|md|dm-|loop|sr|mapper/|r?disk[/\d]|mem$|kmem$|port$).*|/proc/sysrq-trigger"
)
_SYSTEM_FOLDERS = word_set("/ /bin /boot /dev /etc /lib /lib32 /lib64 /proc /sbin /sys /usr /var")
_SHARED_FOLDERS = word_set("/home /root /opt /Users /srv /mnt /media")
_MAIN_BRANCHES = word_set("main master trunk develop")
_REMOVERS = word_set("rm unlink shred")
# What a variable or substitution becomes where that can be told from its text.
_DEFAULT_VALUE = re.compile(r"\$\{\w+:?[-=]([^{}$`]*)\}")
_PRINTED_CWD = re.compile(r"\$\(\s*pwd(?:\s+-[PL])?\s*\)|`\s*pwd\s*`|\$PWD\b|\$\{PWD\b[^{}]*\}")
_PRINTED_PATH = re.compile(r"\$\(\s*(dirname|echo|realpath|readlink -f)\s+([^()`$]*?)\s*\)")
# The home folder, also with something cut off it, and that of any user.
_HOME = re.compile(r"\$HOME\b|\$\{HOME\b[^{}]*\}|^~[\w.-]*(?=/|$)")
_PRINTED_ROOT = re.compile(r"\$\(\s*git rev-parse --show-toplevel\s*\)")
# Commands that print the names of all that is in the current folder.
_PRINTED_NAMES = re.compile(r"\$\(\s*(ls|git ls-files)(\s+-\w+)*\s*\)|`\s*(ls|git ls-files)(\s+-\w+)*\s*`")
_MANY_WORDS = re.compile(r"\$\{?[@*]|\[[@*]\]")
_FORMATTERS = word_set("mke2fs mkswap wipefs blkdiscard")
_PARTITIONERS = word_set("parted sfdisk sgdisk")
_DEVICE_WRITERS = word_set("dd shred cp tee mv install truncate badblocks")
# Options with which a program removes what it is given.
_MOVES = {"tar": "--remove-f", "zip": r"-\w*m|--mo"}
_REMOVER_WORD = re.compile(r"(?<![\w.-])(rm|unlink|shred|mv|truncate)(?![\w.-])")
_STARTED = word_set("rm find chmod chown chgrp mv dd shred")
_CWD_SENSITIVE = word_set("rm find fd fdfind chmod chown chgrp mv")
# A name of a glob that leaves out little of a folder: `*`, `.*`, `?*`, `.[!.]*`.
_ALL_FILES = re.compile(r"\.?(\?|\[[!^][^]]*\])*\*+(\?|\*)*")
_DISCARDS_WORK = "it throws away uncommitted work"
_FORGETS_HISTORY = "it removes commits that could still be brought back"


class Danger(Struct, frozen=True):
    """A catastrophic command. `ask`: a person must agree in every mode; `deny`: no mode or rule allows it.

    `only_if_dirty`: it is catastrophic only if the work tree holds uncommitted changes.
    """

    behavior: Literal["ask", "deny"]
    why: str
    text: str
    only_if_dirty: bool = False


def find_dangers(parts: tuple[CommandPart, ...], state: ShellState) -> tuple[Danger, ...]:
    """The catastrophic commands among the parts of a command line."""
    executed = {_name(part) for part in parts if "find" in part.wrappers}
    dangers = [danger for part in parts for danger in _part_dangers(part, state, executed)]
    dangers += [danger for part in parts if not part.known for danger in _started_dangers(part, state)]
    for part, following in pairwise(parts):
        if part.program == "find" and "xargs" in following.wrappers and _name(following) in _REMOVERS:
            dangers += _find(part, part.argv[1:], replace(state, cwds=part.cwds), removes=True)
        elif _lists_project(part) and "xargs" in following.wrappers and _name(following) in _REMOVERS:
            dangers += [danger for place in part.cwds or (".",) for danger in _removal(part, place, state, "empties")]
    return tuple(dict.fromkeys(dangers))


def _started_dangers(part: CommandPart, state: ShellState) -> Iterator[Danger]:
    """The dangers of a command that may stand among the words of a program that is not understood, in whatever folder."""
    for index, word in enumerate(part.argv[1:], 1):
        name = os.path.basename(word.text)
        if word.kind != "literal" or not (name in _STARTED or name.startswith("mkfs")):
            continue
        for cwds in (part.cwds, ()):
            started = replace(part, argv=part.argv[index:], program=name, cwds=cwds)
            for danger in _part_dangers(started, replace(state, cwds=cwds), ()):
                yield replace(danger, behavior="ask", text=part.text)


def _lists_project(part: CommandPart) -> bool:
    """Whether a part prints the names of all files that git knows in the current folder."""
    return [word.text for word in part.argv if not word.prefix.startswith("-")] == ["git", "ls-files"]


def _name(part: CommandPart) -> str:
    return (part.program or "").rsplit("/", 1)[-1]


def _part_dangers(part: CommandPart, state: ShellState, executed: Collection[str]) -> Iterator[Danger]:
    """`executed`: the programs that some `find` of the command line runs."""
    yield from _device_writes(part)
    program = _name(part)
    args = part.argv[1:]
    if program in _CWD_SENSITIVE and part.cwds != state.cwds:
        state = replace(state, cwds=part.cwds)
    if program == "rm":
        yield from _rm(part, args, state)
    elif program == "find":
        yield from _find(part, args, state, executed=executed)
    elif program in ("fd", "fdfind"):
        yield from _fd(part, args, state)
    elif program in ("chmod", "chown", "chgrp"):
        yield from _chmod(part, args, state)
    elif program == "mv":
        yield from _mv(part, args, state)
    elif program in _MOVES and any(re.match(_MOVES[program], word.prefix) for word in args):
        for path in (path for word in args if not word.prefix.startswith("-") for path in _targets(word, state)):
            yield from _removal(part, path, state, "removes")
    elif program == "git":
        yield from _git(part, args)
    elif (program.startswith("mkfs") or program in _FORMATTERS) and args:
        yield Danger("deny", f"`{program}` erases a file system", part.text)
    elif program in _PARTITIONERS and any(_DEVICE.fullmatch(word.text) for word in args):
        if not {"print", "-l", "--list", "-p", "--print", "-d", "--dump"} & {word.text for word in args}:
            yield Danger("ask", f"`{program}` changes the partitions of a device", part.text)
    elif program == "kill" and any(word.text == "-1" for word in args[1:]):
        yield Danger("ask", "it stops every process of the user", part.text)


def _device_writes(part: CommandPart) -> Iterator[Danger]:
    paths = [effect.path for effect in part.effects if isinstance(effect, Writes)]
    if not part.known and part.program in _DEVICE_WRITERS:
        paths += [word.text.removeprefix("of=") for word in part.argv[1:]]
    for path in paths:
        if _DEVICE.fullmatch(path):
            yield Danger("deny", f"it overwrites the device {path}", part.text)


def _rm(part: CommandPart, args: tuple[Word, ...], state: ShellState) -> Iterator[Danger]:
    flags = [word.text for word in args if word.prefix.startswith("-")]
    if any(flag.startswith("--no-p") for flag in flags):
        yield Danger("deny", "it disables the protection of the root folder", part.text)
    if not any(re.match(r"-\w*[rR]|--r", flag) for flag in flags):
        return
    for word in args:
        if word.prefix.startswith("-") and word.kind == "literal":
            continue
        if word.dynamic and word.prefix in ("", "/") and not word.scope and re.fullmatch(r"/+[*.]*", word.text):
            yield Danger("ask", f"if `{word.source}` is empty, it removes the root folder", part.text)
        if word.dynamic and ("xargs" in part.wrappers or _MANY_WORDS.search(word.source)):
            yield Danger("ask", "which folders it removes is known only when it runs", part.text)
        for path in _targets(word, state):
            yield from _removal(part, path, state, "removes")


def _targets(word: Word, state: ShellState) -> tuple[str, ...]:
    """The folders that a word wipes out: itself, or the one whose whole content it names."""
    if word.kind == "literal":
        text = word.text
    elif glob := word.glob or (word.kind == "glob" and word.text):
        text = glob.rstrip("/")
        while _ALL_FILES.fullmatch(os.path.basename(text)):
            text = os.path.dirname(text) or ("/" if text.startswith("/") else ".")
        if text == glob.rstrip("/"):
            return tuple(_matched_targets(text, state))
    elif word.dynamic:
        pattern = os.path.basename(word.pattern.rstrip("/"))
        if not _ALL_FILES.fullmatch(pattern) and glob_regex(pattern).fullmatch(".git"):
            return tuple(f"{cwd}/.git" for cwd in state.cwds or ("",))
        text = _PRINTED_NAMES.sub(".", word.source)
        text = _PRINTED_ROOT.sub(lambda match: state.root, _HOME.sub(lambda match: state.home, text.replace('"', "")))
        text = _HOME.sub(lambda match: state.home, _DEFAULT_VALUE.sub(r"\1", text))
        text = _PRINTED_CWD.sub(lambda match: state.cwds[0], text) if state.cwds else text
        text = _PRINTED_PATH.sub(
            lambda match: os.path.dirname(match[2]) or "." if match[1] == "dirname" else match[2], text
        )
        if not text or "$" in text or "`" in text:
            return ()
    else:
        return ()
    if not state.cwds and not text.startswith("/") and {*text.split("/")} <= {"", ".", ".."}:
        return (".",)
    return tuple(os.path.normpath(path).replace("//", "/") for path in state.absolute_paths(text))


def _matched_targets(pattern: str, state: ShellState) -> Iterator[str]:
    """The folders of which every system has some, the project and home, that a glob may expand to."""
    for path in state.absolute_paths(pattern) or ((pattern,) if pattern.startswith("/") else ()):
        names = os.path.normpath(path).split("/")
        for folder in (*_SYSTEM_FOLDERS, *_SHARED_FOLDERS, *_with_parents(state.home), *_with_parents(state.root)):
            own = folder.split("/")
            if len(own) == len(names) and all(map(_matches_name, names, own)):
                yield folder
    # With `dotglob` a wildcard stands for a leading dot, too.
    if _matches_name(os.path.basename(pattern), ".git"):
        yield os.path.join(os.path.dirname(pattern), ".git")


def _with_parents(path: str) -> Iterator[str]:
    while path != "/" and path:
        yield path
        path = os.path.dirname(path)


def _removal(part: CommandPart, path: str, state: ShellState, verb: str) -> Iterator[Danger]:
    if path in _SYSTEM_FOLDERS:
        yield Danger("deny", f"it {verb} {path}", part.text)
    elif path == ".":
        yield Danger("ask", f"which folder it {verb} is known only when it runs", part.text)
    elif _holds(path, state.home):
        yield Danger("ask", f"it {verb} the home folder", part.text)
    elif _holds(path, state.root):
        yield Danger("ask", f"it {verb} the whole workspace", part.text)
    elif path in _SHARED_FOLDERS:
        yield Danger("ask", f"it {verb} {path}", part.text)
    elif os.path.basename(path) == ".git":
        yield Danger("ask", f"it {verb} the history of a repository", part.text)


def _holds(folder: str, inner: str) -> bool:
    return inner == folder or inner.startswith(folder.rstrip("/") + "/")


# What lies in the folders that must not be emptied. If an expression of `find` may choose one of these, it empties them.
_SAMPLES = (
    (".git", "d"),
    (".git/HEAD", "f"),
    (".git/index", "f"),
    (".git/objects/pack/pack-1.pack", "f"),
    ("src", "d"),
    ("src/main.py", "f"),
    ("README.md", "f"),
    (".bashrc", "f"),
    (".ssh/id_rsa", "f"),
    ("etc/passwd", "f"),
)
# Enough of the samples to mean that a folder is emptied, and not that files of one kind are removed.
_MANY = 5


def _find(
    part: CommandPart,
    args: tuple[Word, ...],
    state: ShellState,
    *,
    removes: bool = False,
    executed: Collection[str] = (),
) -> Iterator[Danger]:
    """`removes`: what it finds is removed by another program. `executed`: the programs that it runs itself."""
    starts, expression = split_find_args(args)
    while expression and expression[0].kind == "glob":
        starts.append(expression.pop(0))
    try:
        primaries = [*primaries_of(expression)]
    except UnknownArguments:
        return
    found = [
        path
        for each in starts
        for path in (_targets(each, state) if each.kind == "glob" or not state.cwds else each.paths(state) or ())
    ]
    places = found if starts else list(state.cwds or (".",))
    remover = _REMOVER_WORD if any(map(_REMOVER_WORD.fullmatch, executed)) else None
    tops = tuple(f"{each.text.rstrip('/')}/" for each in starts)

    def chosen(samples: Sequence[tuple[str, str]]) -> list[str]:
        expressions = ((path, _FindExpression(primaries, path, kind, tops, remover)) for path, kind in samples)
        return [path for path, expression in expressions if expression.removes(all_found=removes)]

    removed = chosen(_SAMPLES)
    for place, inner in ((place, inner) for place in places for inner in (state.root, state.home)):
        if place != inner and _holds(place, inner):
            name = os.path.relpath(inner, place)
            below = chosen([(name, "d"), *((f"{name}/{path}", kind) for path, kind in _SAMPLES[:7])])
            if name in below or len(below) >= _MANY - 2:
                yield from _removal(part, inner, state, "empties")
    for place in places if len(removed) >= _MANY else ():
        yield from _removal(part, place, state, "empties")
    if len(removed) < _MANY and any(name.startswith(".git") for name in removed):
        for place in places:
            if _holds(place, state.root) or _holds(place, state.home):
                yield Danger("ask", f"it removes the history of the repositories in {place}", part.text)


def _fd(part: CommandPart, args: tuple[Word, ...], state: ShellState) -> Iterator[Danger]:
    """What `fd` removes by the program that it runs for all that it finds."""
    texts = [word.text for word in args]
    runs = next((at for at, text in enumerate(texts) if text in ("-x", "-X", "--exec", "--exec-batch")), len(texts))
    if not {os.path.basename(text) for text in texts[runs + 1 : runs + 2]} & _REMOVERS:
        return
    chosen = [text for text in texts[:runs] if not text.startswith("-") and text not in (".", "f", "d", "file")]
    if not chosen:
        for place in state.cwds or (".",):
            yield from _removal(part, place, state, "empties")


class _FindExpression:
    """Whether an expression of `find` may remove one entry: a test on more than name, path and type may hold or not."""

    def __init__(
        self,
        primaries: Sequence[tuple[str, list[Word]]],
        path: str,
        kind: str,
        tops: tuple[str, ...],
        remover: re.Pattern[str] | None,
    ) -> None:
        self._rest = list(primaries)
        self._path, self._kind = path, kind
        self._spellings = [f"{top}{path}" for top in (*tops, "./", "", "/", "~/")]
        self._remover = remover  # what the name of a program looks like that is run and removes something
        self._removed = False

    def removes(self, *, all_found: bool = False) -> bool:
        result = self._alternatives(may_run=True)
        return self._removed or (all_found and result is not False)

    def _peek(self) -> str:
        return self._rest[0][0] if self._rest else ""

    def _alternatives(self, may_run: bool) -> bool | None:
        result = self._all(may_run)
        while self._peek() in ("-o", "-or", ","):
            operator = self._rest.pop(0)[0]
            other = self._all(may_run and (operator == "," or result is not True))
            result = other if operator == "," else _either(result, other)
        return result

    def _all(self, may_run: bool) -> bool | None:
        result: bool | None = True
        while self._rest and self._peek() not in ("-o", "-or", ",", ")"):
            if self._peek() in ("-a", "-and"):
                self._rest.pop(0)
                continue
            one = self._one(may_run and result is not False)
            result = False if result is False or one is False else None if result is None or one is None else True
        return result

    def _one(self, may_run: bool) -> bool | None:
        name, values = self._rest.pop(0)
        if name in ("!", "-not"):
            result = self._one(may_run) if self._rest else True
            return None if result is None else not result
        if name == "(":
            result = self._alternatives(may_run)
            if self._rest:
                self._rest.pop(0)
            return result
        text = values[0].text if values and values[0].kind == "literal" else None
        base = os.path.basename(self._path)
        match name:
            case "-delete":
                self._removed = self._removed or may_run
                return True
            case "-exec" | "-execdir" | "-ok" | "-okdir":
                removes = os.path.basename(values[0].text) in _REMOVERS
                removes = removes or (
                    self._remover is not None and any(self._remover.search(each.text) for each in values)
                )
                self._removed = self._removed or (may_run and removes)
                return None
            case "-name" | "-iname":
                return text is not None and _matches_name(text, base)
            case "-path" | "-wholename" | "-ipath" | "-iwholename":
                return text is not None and any(_matches_name(text, spelling) for spelling in self._spellings)
            case "-regex" | "-iregex":
                return text is not None and any(_matches_regex(text, spelling) for spelling in self._spellings)
            case "-type" | "-xtype":
                return text is None or self._kind in text
            case "-empty" | "-false" | "-lname" | "-ilname" | "-nouser" | "-nogroup" | "-samefile" | "-inum":
                return False
            case "-perm" | "-executable" | "-size" | "-user" | "-group" | "-uid" | "-gid" | "-links":
                return None
        return None if name in _TIME_TESTS or name.startswith("-newer") else True


_TIME_TESTS = word_set("-amin -atime -cmin -ctime -mmin -mtime -anewer -cnewer -used")


def _either(one: bool | None, other: bool | None) -> bool | None:
    return True if one is True or other is True else None if one is None or other is None else False


def _matches_name(pattern: str, name: str) -> bool:
    """Whether a pattern of `find` matches a name; there a wildcard also stands for a leading dot and for a slash."""
    return glob_regex(pattern).fullmatch(name) is not None


def _matches_regex(pattern: str, path: str) -> bool:
    try:
        return re.fullmatch(pattern.replace("\\(", "(").replace("\\)", ")").replace("\\|", "|"), path) is not None
    except re.error:
        return True


def _chmod(part: CommandPart, args: tuple[Word, ...], state: ShellState) -> Iterator[Danger]:
    if not any(re.fullmatch(r"-\w*R\w*|--rec\w*", word.text) for word in args):
        return
    for word in args[1:]:
        for path in _targets(word, state):
            if path in _SYSTEM_FOLDERS:
                yield Danger("deny", f"it changes the rights of everything in {path}", part.text)
            elif _holds(path, state.home):
                yield Danger("ask", "it changes the rights of everything in the home folder", part.text)


def _mv(part: CommandPart, args: tuple[Word, ...], state: ShellState) -> Iterator[Danger]:
    operands: list[Word] = []
    names_target = False
    takes_value = False
    for word in args:
        if takes_value:
            takes_value = False
        elif re.match(r"-\w*t|--target-d", word.prefix) and not word.prefix.startswith("--no"):
            names_target = True
            takes_value = word.text.endswith("t") or word.text == "--target-directory"
        elif not word.prefix.startswith("-"):
            operands.append(word)
    for word in operands if names_target else operands[:-1]:
        for path in _targets(word, state):
            yield from _removal(part, path, state, "moves away")


def _git(part: CommandPart, args: tuple[Word, ...]) -> Iterator[Danger]:
    call = split_git_args(args)
    words = [word.text for word in call.args]
    flags = {word for word in words if word.startswith("-")}
    flags |= {f"-{letter}" for word in flags if not word.startswith("--") for letter in word[1:]}
    operands = [word for word in words if not word.startswith("-")]
    if call.command == "clean" and not _only_shows(call.args):
        yield Danger("ask", "it removes files that were never committed", part.text, only_if_dirty=True)
    elif _overwrites_files(call, words, operands, flags):
        yield Danger("ask", _DISCARDS_WORK, part.text, only_if_dirty=True)
    elif why := _lost_by_git(call.command, words, operands, flags):
        yield Danger("ask", why, part.text)


def _overwrites_files(call: GitCall, words: Sequence[str], operands: Sequence[str], flags: Collection[str]) -> bool:
    """Whether a git command replaces files of the work tree by others."""
    is_forced = not {"-f", "--force", "--discard-changes"}.isdisjoint(flags)
    match call.command:
        case "reset":
            return "--merge" in flags or any("--hard".startswith(flag) and len(flag) > 4 for flag in flags)
        case "checkout":
            makes_branch = not {"-b", "-B", "-t", "--orphan", "--track"}.isdisjoint(flags)
            names_files = "--" in words or "." in words or any(word.kind == "glob" for word in call.args)
            return is_forced or names_files or (len(operands) > 1 and not makes_branch)
        case "restore":
            return {"-S", "--staged"}.isdisjoint(flags) or not {"-W", "--worktree"}.isdisjoint(flags)
        case "switch" | "checkout-index":
            return is_forced
        case "read-tree":
            return "--reset" in flags
    return False


def _lost_by_git(command: str, words: Sequence[str], operands: Sequence[str], flags: Collection[str]) -> str:
    """What a git command loses for good, whatever the state of the work tree is; empty for nothing."""
    is_forced = not {"-f", "--force"}.isdisjoint(flags)
    match command:
        case "push":
            removes = not {"-d", "--delete"}.isdisjoint(flags) or any(word[:1] == ":" for word in words)
            lease = any(flag.startswith("--force-w") for flag in flags)
            to_main = any(word.rpartition(":")[2].lstrip("+") in _MAIN_BRANCHES for word in words)
            overwrites = (
                is_forced or not {"--mirror", "--prune"}.isdisjoint(flags) or any(word[:1] == "+" for word in words)
            )
            return "it overwrites what others may have pushed" if overwrites or ((lease or removes) and to_main) else ""
        case "stash":
            return "it throws away stashed work" if words[:1] in (["clear"], ["drop"]) else ""
        case "rm":
            all_files = not {".", "*", "./", ":/"}.isdisjoint(words) and "-r" in flags and "--cached" not in flags
            return "it removes every file of the repository" if all_files else ""
        case "submodule" | "worktree":
            return _DISCARDS_WORK if is_forced and operands[:1] in (["deinit"], ["remove"]) else ""
        case "filter-repo":
            return "it rewrites the history of the repository"
        case "prune" if {"-n", "--dry-run"}.isdisjoint(flags):
            return _FORGETS_HISTORY
        case "gc" | "reflog":
            at_once = any(re.match("--(prune|expire)[a-z-]*=", flag) for flag in flags)
            return _FORGETS_HISTORY if at_once or operands[:1] == ["delete"] else ""
    return ""


def _only_shows(args: tuple[Word, ...]) -> bool:
    """Whether a `git clean` is a dry run."""
    table = option_table("-dfinqxX -e: --force --interactive --dry-run --quiet --exclude=")
    try:
        return parse_args(args, table).has("-n", "--dry-run")
    except UnknownArguments:
        return False


def fork_bombs(script: ShellScript) -> list[Danger]:
    """The functions that call themselves in a pipe or in the background."""
    functions = [each for each in every_command(script) if isinstance(each, FunctionDefinition)]
    names = [each.name for each in functions if any(_forks(body, each.name) for body in bodies_of(each.body))]
    return [Danger("deny", f"the function `{name}` starts itself without end", f"{name}()") for name in names]


def _forks(script: ShellScript, name: str) -> bool:
    """Whether a script calls the function in a pipe or in the background."""
    for chain in script.and_or_lists:
        for _, pipeline in chain.links:
            if (chain.background or len(pipeline.stages) > 1) and _calls(pipeline, name):
                return True
            if any(_forks(body, name) for stage in pipeline.stages for body in bodies_of(stage)):
                return True
    return False


def _calls(pipeline: Pipeline, name: str) -> bool:
    commands = (command for stage in pipeline.stages for command in every_command(stage))
    return any(
        isinstance(each, SimpleCommand) and [word.source for word in each.words[:1]] == [name] for each in commands
    )
