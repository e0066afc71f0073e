"""Commands that no mode may run unasked, and those that no mode may run at all."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from wieldy.core.effects import Writes
from wieldy.shell.parsing.syntax import Branches, Command, Function, Group, Loop, Pipeline, Script, Simple
from wieldy.shell.policy.command_part import CommandPart
from wieldy.shell.policy.programs.options import names, read, table
from wieldy.shell.policy.script_walk import simple_commands
from wieldy.shell.policy.words import ShellState, Word

_DEVICE = re.compile(r"/dev/(sd|hd|vd|xvd|nvme|mmcblk|md|dm-|loop|sr|mapper/|disk/|mem$|kmem$|port$).*")
_SYSTEM = names("/ /bin /boot /dev /etc /lib /lib32 /lib64 /proc /sbin /sys /usr /var")
_FORMATTERS = names("mke2fs mkswap wipefs blkdiscard")
_WRITERS = names("dd shred cp tee mv install truncate badblocks")
_PLACED = names("rm find chmod chown chgrp mv")
_ALL_FILES = names("* .* ** .[!.]* ?* .??*")
_NARROWING = names("-maxdepth -mindepth -type -xdev -mount -depth -delete -print -d")
_RM = "-fiIrRdv --force --interactive=? --one-file-system --no-preserve-root --preserve-root=? --recursive --dir --verbose"
_DIRTY = "it throws away uncommitted work"


class Danger(Struct, frozen=True):
    """One catastrophe in the making. `ask`: a person must agree in every mode; `deny`: nothing lifts it.

    `only_if_dirty`: it is one only where the work tree holds changes that are not committed.
    """

    behavior: Literal["ask", "deny"]
    why: str
    text: str
    only_if_dirty: bool = False


def dangers(parts: tuple[CommandPart, ...], scene: ShellState) -> tuple[Danger, ...]:
    """The catastrophes among the parts of a command."""
    found = [danger for part in parts for danger in _of_part(part, scene)]
    return tuple(dict.fromkeys(found))


def _of_part(part: CommandPart, scene: ShellState) -> Iterator[Danger]:
    yield from _devices(part)
    program = (part.program or "").rsplit("/", 1)[-1]
    args = part.argv[1:]
    if program in _PLACED and part.cwds != scene.cwds:
        scene = replace(scene, cwds=part.cwds)
    if program == "rm":
        yield from _rm(part, args, scene)
    elif program == "find":
        yield from _find(part, args, scene)
    elif program in ("chmod", "chown", "chgrp"):
        yield from _chmod(part, args, scene)
    elif program == "mv":
        yield from _mv(part, args, scene)
    elif program == "git":
        yield from _git(part, args)
    elif (program.startswith("mkfs") or program in _FORMATTERS) and args:
        yield Danger("deny", f"`{program}` erases a file system", part.text)
    elif program == "kill" and any(word.text == "-1" for word in args[1:]):
        yield Danger("ask", "it stops every process of the user", part.text)


def _devices(part: CommandPart) -> Iterator[Danger]:
    written = [effect.path for effect in part.effects if isinstance(effect, Writes)]
    if not part.known and part.program in _WRITERS:
        written += [word.text.removeprefix("of=") for word in part.argv[1:]]
    for path in written:
        if _DEVICE.fullmatch(path):
            yield Danger("deny", f"it overwrites the device {path}", part.text)


def _rm(part: CommandPart, args: tuple[Word, ...], scene: ShellState) -> Iterator[Danger]:
    parsed = read(args, table(_RM))
    flags = [word.text for word in args if word.prefix.startswith("-")]
    recursive = parsed.has("-r", "-R", "--recursive") or any(re.match(r"-\w*[rR]|--r", flag) for flag in flags)
    if any("--no-p".startswith(flag[:6]) and flag.startswith("--no-p") for flag in flags):
        yield Danger("deny", "it lifts the guard of the root folder", part.text)
    if not recursive:
        return
    for word in args:
        if word.prefix.startswith("-") and word.static:
            continue
        if word.dynamic and not word.prefix and not word.scope and re.fullmatch(r"/+[*.]*", word.text):
            yield Danger("ask", f"if `{word.source}` begins with nothing, it removes the root folder", part.text)
        for path in _targets(word, scene):
            yield from _removal(part, path, scene, "removes")


def _targets(word: Word, scene: ShellState) -> tuple[str, ...]:
    """The folders that a word wipes out: itself, or the one whose whole content it names."""
    if word.static:
        text = word.text
    elif word.kind == "glob" and os.path.basename(word.text) in _ALL_FILES:
        text = os.path.dirname(word.text) or "."
        text = "/" if not text.strip("/") and word.text.startswith("/") else text
    else:
        return ()
    return tuple(os.path.normpath(path).replace("//", "/") for path in scene.absolute(text))


def _removal(part: CommandPart, path: str, scene: ShellState, verb: str) -> Iterator[Danger]:
    if path in _SYSTEM:
        yield Danger("deny", f"it {verb} {path}", part.text)
    elif _holds(path, scene.home):
        yield Danger("ask", f"it {verb} the home folder", part.text)
    elif _holds(path, scene.root):
        yield Danger("ask", f"it {verb} the whole workspace", part.text)
    elif os.path.basename(path) == ".git":
        yield Danger("ask", f"it {verb} the history of a repository", part.text)


def _holds(folder: str, inner: str) -> bool:
    return inner == folder or inner.startswith(folder.rstrip("/") + "/")


def _find(part: CommandPart, args: tuple[Word, ...], scene: ShellState) -> Iterator[Danger]:
    from wieldy.shell.policy.programs.find import split

    if not any(word.text == "-delete" for word in args):
        return
    starts, expression = split(args)
    tests = [word.text for word in expression if word.text.startswith("-") and word.text not in _NARROWING]
    if tests or not any(word.text == "-delete" for word in expression):
        return
    places = [path for word in starts for path in word.paths(scene) or ()] if starts else list(scene.cwds)
    for path in places:
        yield from _removal(part, path, scene, "empties")


def _chmod(part: CommandPart, args: tuple[Word, ...], scene: ShellState) -> Iterator[Danger]:
    if not any(re.fullmatch(r"-\w*R\w*|--rec\w*", word.text) for word in args):
        return
    for word in args[1:]:
        for path in _targets(word, scene):
            if path in _SYSTEM:
                yield Danger("deny", f"it changes the rights of everything in {path}", part.text)
            elif _holds(path, scene.home):
                yield Danger("ask", "it changes the rights of everything in the home folder", part.text)


def _mv(part: CommandPart, args: tuple[Word, ...], scene: ShellState) -> Iterator[Danger]:
    for word in [word for word in args if not word.prefix.startswith("-")][:-1]:
        for path in _targets(word, scene):
            yield from _removal(part, path, scene, "moves away")


def _git(part: CommandPart, args: tuple[Word, ...]) -> Iterator[Danger]:
    from wieldy.shell.policy.programs.git import split

    call = split(args)
    words = [word.text for word in call.args]
    flags = {word for word in words if word.startswith("-")}
    short = {flag for word in flags if not word.startswith("--") for flag in word[1:]}
    if call.command == "reset" and any("--hard".startswith(flag) and len(flag) > 4 for flag in flags):
        yield Danger("ask", _DIRTY, part.text, only_if_dirty=True)
    elif call.command == "clean":
        if ("f" in short or "--force" in flags or not flags) and "n" not in short and "--dry-run" not in flags:
            yield Danger("ask", "it removes files that were never committed", part.text, only_if_dirty=True)
    elif call.command == "checkout":
        if "--" in words or "." in words or "f" in short or "--force" in flags:
            yield Danger("ask", _DIRTY, part.text, only_if_dirty=True)
    elif call.command == "restore":
        if not ({"--staged"} & flags or "S" in short) or "--worktree" in flags or "W" in short:
            yield Danger("ask", _DIRTY, part.text, only_if_dirty=True)
    elif call.command == "switch" and ({"--force", "--discard-changes"} & flags or "f" in short):
        yield Danger("ask", _DIRTY, part.text, only_if_dirty=True)
    elif call.command == "rm" and "r" in short and {".", "*", "./", ":/"} & set(words) and "--cached" not in flags:
        yield Danger("ask", "it removes every file of the repository", part.text)


def fork_bombs(script: Script) -> list[str]:
    """The names of functions that call themselves in a pipe or in the background."""
    return [function.name for function in _functions(script) if _multiplies(function)]


def _functions(script: Script) -> list[Function]:
    found: list[Function] = []
    for chain in script.chains:
        for _, pipeline in chain.links:
            for stage in pipeline.stages:
                if isinstance(stage, Function):
                    found.append(stage)
                else:
                    found.extend(function for body in _bodies(stage) for function in _functions(body))
    return found


def _bodies(command: Command) -> tuple[Script, ...]:
    match command:
        case Group(body=body) | Loop(body=body):
            return (body,)
        case Branches(bodies=bodies):
            return bodies
    return ()


def _multiplies(function: Function) -> bool:
    return any(_splits(body, function.name) for body in _bodies(function.body))


def _splits(script: Script, name: str) -> bool:
    for chain in script.chains:
        for _, pipeline in chain.links:
            if _calls(pipeline, name) and (chain.background or len(pipeline.stages) > 1):
                return True
            if any(_splits(body, name) for stage in pipeline.stages for body in _bodies(stage)):
                return True
    return False


def _calls(pipeline: Pipeline, name: str) -> bool:
    for stage in pipeline.stages:
        commands = (
            [stage] if isinstance(stage, Simple) else [s for body in _bodies(stage) for s in simple_commands(body)]
        )
        if any(simple.words and simple.words[0].source == name for simple in commands):
            return True
    return False
