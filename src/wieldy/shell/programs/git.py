"""`git`: which subcommand with which options only looks, and which writes into the repository."""

from __future__ import annotations

import os
from functools import cache

from wieldy.core.record import record
from wieldy.shell.programs.git_config import running
from wieldy.shell.programs.git_content import names_files, shows_content
from wieldy.shell.programs.git_tables import CONFIG_READS, LISTING, READING, WRITING
from wieldy.shell.programs.judgement import Call, Judgement, unknown
from wieldy.shell.programs.options import Parsed, Table, names, read, table
from wieldy.shell.words import Word, plain

_QUIET_GLOBALS = names(
    "--no-pager -P --no-replace-objects --no-optional-locks --literal-pathspecs --glob-pathspecs "
    "--noglob-pathspecs --icase-pathspecs --no-lazy-fetch"
)


@record
class GitCall:
    """A subcommand, its arguments, and the folder given with `-C`."""

    command: str
    args: tuple[Word, ...]
    folder: Word | None
    problem: str = ""


def split(args: tuple[Word, ...]) -> GitCall:
    """Read past the global options; `-c`, `--paginate`, `--exec-path` and the like can run programs and are a problem."""
    folder: Word | None = None
    index, problem = 0, ""
    while index < len(args):
        word = args[index]
        if not word.static:
            return GitCall("", (), folder, f"`{word.source}` in place of a git subcommand")
        if word.text == "-C" and index + 1 < len(args):
            folder = args[index + 1]
            index += 2
        elif word.text in _QUIET_GLOBALS:
            index += 1
        elif word.text in ("-c", "--git-dir", "--work-tree", "--namespace", "--config-env", "--super-prefix"):
            problem = f"`git {word.text}` changes what git runs or where it looks"
            index += 2
        elif word.text.startswith("-") and word.text not in ("--version", "--help", "-h", "-v"):
            problem = f"`git {word.text}` before the subcommand is not known to be harmless"
            index += 1
        else:
            return GitCall(word.text, args[index + 1 :], folder, problem)
    return GitCall("", (), folder, problem)


def judge(call: Call) -> Judgement:
    """Judge one call of git."""
    found = split(call.args)
    runs = running(found.args, found.folder, call.scene.home) if found.command == "config" else None
    if runs is not None:
        return runs
    if found.problem:
        return unknown(found.problem)
    here = found.folder or plain(".")
    if not found.command or found.command in ("--version", "version", "-v"):
        return Judgement() if not found.args else unknown("`git version` with arguments")
    if found.command in WRITING:
        if problem := read(found.args, _table(WRITING[found.command])).problem:
            return unknown(problem)
        return Judgement(
            reads=(here,), writes=(here,), changes=True, why=f"`git {found.command}` writes to the repository"
        )
    judged = _reading(found)
    if not judged.known:
        return judged
    reads = [place for word in judged.reads for place in _places(word, found.folder, call.scene.root)]
    sweeps = shows_content(found.command, found.args)
    spared = (here,) if sweeps and names_files(found.command, found.args) else ()
    return Judgement(reads=(here, *reads), sweeps=sweeps, spared=spared)


def _reading(found: GitCall) -> Judgement:
    if found.command in READING:
        parsed = read(found.args, _table(READING[found.command]))
        return _with_formats(found.command, parsed)
    if found.command in LISTING:
        return _listing(found)
    if found.command == "config":
        return _config(found)
    return unknown(f"`git {found.command}` is not known to be read-only")


@cache
def _table(spec: str) -> Table:
    return table(spec, exact=True)


def _with_formats(command: str, parsed: Parsed) -> Judgement:
    if parsed.problem:
        return unknown(parsed.problem)
    for name in ("--format", "--pretty"):
        for value in parsed.found.get(name, []):
            # %G… asks the configured signature program.
            if value is not None and (not value.static or "%G" in value.text or "signature" in value.text):
                return unknown(f"`git {command} {name}` with a format that can run a program")
    if any(word.kind in ("many", "one") for word in parsed.operands):
        return unknown("an argument that cannot be told")
    if command == "symbolic-ref" and len(parsed.operands) > 1:
        return unknown("`git symbolic-ref` with two names writes")
    return Judgement(reads=(*parsed.reads, *parsed.operands))


def _places(word: Word, folder: Word | None, root: str) -> list[Word]:
    """What an operand may name: a file here or in the folder given, and for `rev:path` one of the repository's top, too."""
    if not word.static:
        return [word]
    names = [word.text, *([word.text.partition(":")[2]] if ":" in word.text[:-1] else [])]
    found = [plain(os.path.join(folder.text, name)) if folder else plain(name) for name in names]
    return [*found, *(plain(os.path.join(root, name)) for name in names[1:])]


def _listing(found: GitCall) -> Judgement:
    """Commands that list or write, depending on the word or the options that follow."""
    rule = LISTING[found.command]
    args = found.args
    word = args[0].text if args and args[0].static and not args[0].text.startswith("-") else ""
    spec = rule.get(word)
    if spec is None:
        return _plain_listing(found, rule)
    parsed = read(args[1:] if word else args, _table(spec))
    if not word and parsed.operands:
        # Behind an option the word may still be one that writes, as in `git remote -v update`.
        return unknown(f"`git {found.command}` with `{parsed.operands[0].source}` behind its options")
    return _with_formats(found.command, parsed)


def _plain_listing(found: GitCall, rule: dict[str, str]) -> Judgement:
    spec = rule.get("*")
    if spec is None:
        return unknown(
            f"`git {found.command} {found.args[0].source if found.args else ''}` is not known to be read-only"
        )
    parsed = read(found.args, _table(spec))
    judged = _with_formats(found.command, parsed)
    listing = parsed.has(*rule["needs"].split()) or not parsed.operands
    return judged if listing else unknown(f"`git {found.command}` with a name creates it")


def _config(found: GitCall) -> Judgement:
    parsed = read(found.args, _table(CONFIG_READS))
    if parsed.problem:
        return unknown(parsed.problem)
    word = parsed.operands[0].text if parsed.operands and parsed.operands[0].static else ""
    asks = parsed.has("--get", "--get-all", "--get-regexp", "--list", "-l", "--get-urlmatch")
    asks = (
        asks or (word in ("get", "list") and len(parsed.operands) <= 2) or (len(parsed.operands) == 1 and "." in word)
    )
    if not asks:
        return unknown("`git config` that is not a question writes")
    if any(not operand.static for operand in parsed.operands):
        return unknown("an argument that cannot be told")
    return Judgement(reads=tuple(parsed.reads))
