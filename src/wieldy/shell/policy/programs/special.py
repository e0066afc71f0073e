"""Programs whose arguments need more than a table."""

from __future__ import annotations

import re
from collections.abc import Mapping

from wieldy.shell.policy.programs.options import names, read, table
from wieldy.shell.policy.programs.tables import NOTHING, Call, Judge, Judgement, Row, unknown
from wieldy.shell.policy.words import plain

_XXD_FLAGS = names("-a -b -C -e -E -h -i -p -ps -postscript -plain -u -v -autoskip -bits -include")
_XXD_VALUED = names("-c -cols -g -groupsize -l -len -n -name -o -s -seek")
_TAR_LIST = (
    "-tvzjJ -f: --list --verbose --file= --gzip --bzip2 --xz --zstd --force-local --wildcards --no-wildcards "
    "--exclude= --full-time --numeric-owner !--to-command !--use-compress-program !--checkpoint-action "
    "!--rsh-command !--info-script !--files-from"
)
_FD = (
    "-HIusigFapL0q1hV -d: -t: -e: -E: -S: -c: -j: --hidden --no-ignore --no-ignore-vcs --unrestricted "
    "--case-sensitive --ignore-case --glob --regex --fixed-strings --absolute-path --follow --full-path --print0 "
    "--max-depth= --min-depth= --exact-depth= --exclude= --prune --type= --extension= --size= --changed-within= "
    "--changed-before= --owner= --max-results= --quiet --color= --threads= --strip-cwd-prefix --one-file-system "
    "--help --version"
)
_JQ = Row(
    "-cnrjaSsCMe --arg=2 --argjson=2 --slurpfile=2r --rawfile=2r --compact-output --null-input "
    "--raw-output --raw-output0 --join-output --ascii-output --slurp --sort-keys --color-output "
    "--monochrome-output --exit-status --raw-input -R --tab --indent= --stream --seq --args --jsonargs "
    "--help --version -h -V",
    "pattern then files",
    exact=True,
)
_DOCKER = {
    "ps": "-aqsn: -l --all --quiet --size --last= --latest --no-trunc --filter= -f: --format=",
    "images": "-aq --all --quiet --digests --no-trunc --filter= -f: --format=",
    "logs": "-t -n: --tail= --since= --until= --timestamps --details",
    "version": "-f: --format=",
    "info": "-f: --format=",
}


def _jq(call: Call) -> Judgement:
    """Judge by the table; modules are files that the filter names, and one in a file is not seen."""
    judged = _JQ(call)
    if any(re.search(r"\b(import|include|modulemeta)\b", word.text) for word in call.args):
        return unknown("a jq filter that loads modules")
    return judged


def _date(call: Call) -> Judgement:
    parsed = read(
        call.args,
        table(
            "-uR -d: -I? -r:r --date= --utc --universal --iso-8601=? --rfc-3339= --rfc-email --reference=r "
            "--debug --resolution --help --version !--set !--file"
        ),
    )
    if parsed.problem:
        return unknown(parsed.problem)
    if any(not word.prefix.startswith("+") for word in parsed.operands):
        return unknown("`date` with an operand can set the clock")
    return Judgement(reads=tuple(parsed.reads))


def _xxd(call: Call) -> Judgement:
    words = iter(call.args)
    files = []
    for word in words:
        if not word.static and word.may_be_option:
            return unknown(f"`{word.source}` could become an option")
        if word.text in _XXD_VALUED:
            if not (value := next(words, plain(""))).static or value.text.startswith("-r"):
                return unknown(f"the value of `{word.text}` cannot be told")
        elif re.fullmatch(r"-[cglos]-?\d+", word.text) or word.text in _XXD_FLAGS:
            continue
        elif word.text.startswith("-") and word.text != "-":
            return unknown(f"the option `{word.text}` is not known to be harmless")
        else:
            files.append(word)
    if any(word.kind in ("multiple", "glob") for word in files) or len(files) > 2:
        return unknown("which file is read and which is written cannot be told")
    return Judgement(reads=tuple(files[:1]), writes=tuple(files[1:]))


def _tar(call: Call) -> Judgement:
    args = call.args
    if args and args[0].static and re.fullmatch(r"[tvzjJf]+", args[0].text):
        args = (plain("-" + args[0].text), *args[1:])
    parsed = read(args, table(_TAR_LIST))
    if parsed.problem:
        return unknown(parsed.problem)
    if not parsed.has("-t", "--list"):
        return unknown("`tar` that does not only list")
    archives = [word for word in (*parsed.found.get("-f", []), *parsed.found.get("--file", [])) if word is not None]
    # `host:file` makes tar log in to another machine.
    if not archives or any(not word.static or ":" in word.text for word in archives):
        return unknown("the archive cannot be told")
    return Judgement(reads=tuple(word for word in archives if word.text != "-"))


def _gzip(call: Call) -> Judgement:
    parsed = read(
        call.args, table("-cdlqtv123456789 --stdout --to-stdout --decompress --list --quiet --test --verbose --version")
    )
    if parsed.problem:
        return unknown(parsed.problem)
    if not parsed.has("-l", "-t", "-c", "--list", "--test", "--stdout", "--to-stdout", "--version"):
        return Judgement(writes=tuple(parsed.operands), changes=True) if parsed.operands else NOTHING
    return Judgement(reads=tuple(parsed.operands))


def _unzip(call: Call) -> Judgement:
    parsed = read(call.args, table("-lvtzqZ1"))
    if parsed.problem or not parsed.has("-l", "-v", "-t", "-z", "-Z"):
        return unknown(parsed.problem or "`unzip` that does not only list")
    return Judgement(reads=tuple(parsed.operands[:1]))


def _fd(call: Call) -> Judgement:
    parsed = read(call.args, table(_FD, exact=True))
    if parsed.problem:
        return unknown(parsed.problem)
    return Judgement(reads=tuple(parsed.operands[1:]) or (plain("."),))


def _docker(call: Call) -> Judgement:
    word = call.args[0] if call.args else plain("")
    if not word.static or word.text not in _DOCKER:
        return unknown(f"`docker {word.source}` is not known to be read-only")
    parsed = read(call.args[1:], table(_DOCKER[word.text], exact=True))
    return unknown(parsed.problem) if parsed.problem else NOTHING


def _pip(call: Call) -> Judgement:
    word = call.args[0].text if call.args and call.args[0].static else ""
    if word not in ("list", "show", "freeze"):
        return unknown(f"`pip {word}` is not known to be read-only")
    parsed = read(
        call.args[1:],
        table("-leqvf --local --editable --user --all --files --verbose --format= --not-required", exact=True),
    )
    return unknown(parsed.problem) if parsed.problem else NOTHING


def _env(call: Call) -> Judgement:
    """`env` that prints; with a command it is a wrapper and never comes here."""
    parsed = read(call.args, table("-0 --null --help --version", exact=True))
    if parsed.problem or parsed.operands:
        return unknown(parsed.problem or "`env` with a command")
    return NOTHING


def _command(call: Call) -> Judgement:
    """`command -v`; with a command it is a wrapper and never comes here."""
    if call.args and call.args[0].static and call.args[0].text in ("-v", "-V"):
        return NOTHING
    return unknown("`command` without a name")


SPECIAL: Mapping[str, Judge] = {
    "jq": _jq,
    "date": _date,
    "xxd": _xxd,
    "tar": _tar,
    "gzip": _gzip,
    "gunzip": _gzip,
    "unzip": _unzip,
    "fd": _fd,
    "fdfind": _fd,
    "docker": _docker,
    "pip": _pip,
    "pip3": _pip,
    "env": _env,
    "command": _command,
}
