"""Programs whose arguments need more than an option table."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from itertools import pairwise

from msgspec.structs import replace

from wieldy.shell.effects.programs.spec import (
    NO_EFFECTS,
    CallEffects,
    ProgramCall,
    ProgramCheck,
    ProgramSpec,
    option_table,
    parse_args,
    unknown,
    word_set,
)
from wieldy.shell.effects.words import Word, literal

_XXD_FLAGS = word_set("-a -b -C -e -E -h -i -p -ps -postscript -plain -u -v -autoskip -bits -include")
_XXD_VALUED = word_set("-c -cols -g -groupsize -l -len -n -name -o -s -seek")
_TAR_LIST = (
    "-tvzjJ -f: --list --verbose --file= --gzip --bzip2 --xz --zstd --force-local --wildcards --no-wildcards "
    "--exclude= --full-time --numeric-owner !--to-command !--use-compress-program !--checkpoint-action !--rsh-command "
    "!--info-script !--files-from"
)
_FD = (
    "-HIusigFapL0q1hV -d: -t: -e: -E: -S: -c: -j: --hidden --no-ignore --no-ignore-vcs --unrestricted "
    "--case-sensitive --ignore-case --glob --regex --fixed-strings --absolute-path --follow --full-path --print0 "
    "--max-depth= --min-depth= --exact-depth= --exclude= --prune --type= --extension= --size= --changed-within= "
    "--changed-before= --owner= --max-results= --quiet --color= --threads= --strip-cwd-prefix --one-file-system "
    "--help --version"
)
_PS = (
    "-AaedfFHjlLmNTVyMcwxrhZ -o: -O: -p: -q: -C: -u: -U: -g: -G: -t: -s: --sort= --forest --no-headers --headers "
    "--pid= --ppid= --user= --format= --cols= --columns= --width= --lines= --rows= --version"
)
_ADDRESS = re.compile(r"(\d{1,3}(\.\d{1,3}){3}|\[[\da-fA-F:]+\])(:[\w,-]+)?")
_PS_OPERAND = re.compile(r"[aufxjlrwhHTmSvc]+|\d+(,\d+)*")
_PS_SELECTIONS = word_set("-O -p -q -C -u -U -g -G -t -s --pid --ppid --user")
_NETSTAT = "-tulnpaersicgWvo46 --tcp --udp --listening --numeric --programs --all --route --interfaces"
_SS = "-tulnpaxoemiswH46 --tcp --udp --listening --numeric --processes --all --summary --unix --no-header"
_SS_WORDS = word_set(
    "state exclude src dst sport dport and or not & | ! = == != eq ne neq < <= > >= lt le gt ge leq geq all connected "
    "synchronized bucket big established syn-sent syn-recv fin-wait-1 fin-wait-2 time-wait closed close-wait last-ack "
    "listening listen closing"
)
_SS_ENDPOINT = re.compile(r"[<>=!]{0,2}(\d{1,3}(\.\d{1,3}){3}(/\d+)?|\[[\da-fA-F:]+\](/\d+)?|\*)?(:(\d+|\*))?")
_JQ = ProgramSpec(
    "-cnrjaSsCMe --arg=2 --argjson=2 --slurpfile=2r --rawfile=2r --compact-output --null-input --raw-output "
    "--raw-output0 --join-output --ascii-output --slurp --sort-keys --color-output --monochrome-output --exit-status "
    "--raw-input -R --tab --indent= --stream --seq --args --jsonargs --help --version -h -V",
    "pattern then files",
    exact=True,
)
_GO_SETTINGS = word_set(
    "GOPATH GOROOT GOMOD GOVERSION GOOS GOARCH GOCACHE GOMODCACHE GOBIN GOPROXY GOFLAGS GOWORK GOPRIVATE"
)
_YQ = ProgramSpec("-rePCMN --raw-output --exit-status --prettyPrint", "pattern then files", exact=True)
# What gzip and unzip append to a name that does not exist.
_GZIP_SUFFIXES = (".gz", "-gz", ".z", "-z", "_z", ".Z", ".taz", ".tgz")
_ZIP_SUFFIXES = (".zip", ".ZIP")
_STRINGS = ProgramSpec(
    "-afow -n: -t: -e: -# --all --print-file-name --bytes= --radix= --encoding= --include-all-whitespace", "files"
)
_YQ_READS_OTHERS = re.compile(r"load|system|eval|env|import|include|input|split_doc")


def _jq(call: ProgramCall) -> CallEffects:
    """A filter can name modules, which are files."""
    if any(re.search(r"\b(import|include|modulemeta)\b", word.text) for word in call.args):
        return unknown("the jq filter loads modules")
    return _JQ(call)


def _date(call: ProgramCall) -> CallEffects:
    parsed = parse_args(
        call.args,
        option_table(
            "-uR -d: -I? -r:r --date= --utc --universal --iso-8601=? --rfc-3339= --rfc-email --reference=r "
            "--debug --resolution --help --version !--set !--file"
        ),
    )
    if any(not word.prefix.startswith("+") for word in parsed.operands):
        return unknown("`date` with an operand can set the clock")
    return CallEffects(reads=tuple(parsed.reads))


def _xxd(call: ProgramCall) -> CallEffects:
    words = iter(call.args)
    texts = [word.text for word in call.args]
    texts = [*texts, *map(" ".join, pairwise(texts))]
    files = []
    for word in words:
        if word.kind != "literal" and word.may_be_option:
            return unknown(f"`{word.source}` could become an option")
        if word.text in _XXD_VALUED:
            if (value := next(words, literal(""))).kind != "literal" or value.text.startswith("-r"):
                return unknown(f"the value of `{word.text}` is not known in advance")
        elif re.fullmatch(r"-[cglos]-?\d+", word.text) or word.text in _XXD_FLAGS:
            continue
        elif word.text.startswith("-") and word.text != "-":
            return unknown(f"the option `{word.text}` may do more than read")
        else:
            files.append(word)
    if any(word.kind in ("multiple", "glob") for word in files) or len(files) > 2:
        return unknown("which file is read and which is written is not known in advance")
    bounded = any(re.fullmatch(r"-l\d{1,9}|-l(en)? \d{1,9}", pair) for pair in texts)
    return CallEffects(reads=tuple(files[:1]), writes=tuple(files[1:]), bounded=bounded)


def _tar(call: ProgramCall) -> CallEffects:
    args = call.args
    if args and args[0].kind == "literal" and re.fullmatch(r"[tvzjJ]*f?[tvzjJ]*", args[0].text):
        # Without a dash the value of `f` is the next word, wherever the letter stands.
        letters = args[0].text.replace("f", "")
        args = (literal(f"-{letters}{'f' if 'f' in args[0].text else ''}"), *args[1:])
    parsed = parse_args(args, option_table(_TAR_LIST))
    if not parsed.has("-t", "--list"):
        return unknown("`tar` does more than list")
    archives = parsed.values("-f", "--file")
    # `host:file` makes tar log in to another machine.
    if not archives or any(word.kind != "literal" or ":" in word.text for word in archives):
        return unknown("the archive is not known in advance")
    return CallEffects(reads=tuple(word for word in archives if word.text != "-"))


def _gzip(call: ProgramCall) -> CallEffects:
    parsed = parse_args(
        call.args,
        option_table("-cdlqtv123456789 --stdout --to-stdout --decompress --list --quiet --test --verbose --version"),
    )
    if not parsed.has("-l", "-t", "-c", "--list", "--test", "--stdout", "--to-stdout", "--version"):
        unpacked = [literal(os.path.splitext(word.text)[0]) for word in parsed.operands if word.kind == "literal"]
        written = (*_with_suffixes(parsed.operands, (".gz",)), *unpacked)
        return CallEffects(writes=written, changes=True) if written else NO_EFFECTS
    return CallEffects(reads=_with_suffixes(parsed.operands, _GZIP_SUFFIXES))


def _zcat(call: ProgramCall) -> CallEffects:
    parsed = parse_args(call.args, option_table("-fq --force --quiet"))
    return CallEffects(reads=_with_suffixes(parsed.operands, _GZIP_SUFFIXES))


def _zipinfo(call: ProgramCall) -> CallEffects:
    parsed = parse_args(call.args, option_table("-12smlvhzt", exact=True))
    return CallEffects(reads=_with_suffixes(parsed.operands[:1], _ZIP_SUFFIXES))


def _with_suffixes(words: Sequence[Word], suffixes: tuple[str, ...]) -> tuple[Word, ...]:
    """The files that these names may mean: each as it stands, and as the program completes it."""
    completed = [literal(word.text + suffix) for word in words if word.kind == "literal" for suffix in suffixes]
    return (*words, *completed)


def _unzip(call: ProgramCall) -> CallEffects:
    parsed = parse_args(call.args, option_table("-lvtzqZ1"))
    if not parsed.has("-l", "-v", "-t", "-z", "-Z"):
        return unknown("`unzip` does more than list")
    return CallEffects(reads=_with_suffixes(parsed.operands[:1], _ZIP_SUFFIXES))


def _fd(call: ProgramCall) -> CallEffects:
    parsed = parse_args(call.args, option_table(_FD, exact=True))
    return CallEffects(reads=tuple(parsed.operands[1:]) or (literal("."),), follows_links=parsed.has("-L", "--follow"))


def _ps(call: ProgramCall) -> CallEffects:
    """`e` without a dash shows the environment of processes; after an error ps reads `-e` in that way, too."""
    parsed = parse_args(call.args, option_table(_PS))
    if any(word.kind != "literal" or not _PS_OPERAND.fullmatch(word.text) for word in parsed.operands):
        return unknown("this operand of `ps` may show the environment of other processes")
    if any(word.kind != "literal" or "env" in word.text.lower() for word in parsed.values("-o", "-O", "--format")):
        return unknown("this format of `ps` may show the environment of other processes")
    clusters = [set(word.text) for word in call.args if word.text.startswith("-") and word.text[1:2] != "-"]
    if any("e" in cluster for cluster in clusters) and parsed.has(*_PS_SELECTIONS):
        return unknown("`ps -e` with a selection, which can mean the environment of processes")
    return NO_EFFECTS


def _netstat(call: ProgramCall) -> CallEffects:
    parsed = parse_args(call.args, option_table(_NETSTAT))
    if parsed.operands:
        return unknown(f"what it does with the operand `{parsed.operands[0].source}` is not known")
    return NO_EFFECTS if parsed.has("-n", "--numeric") else unknown("`netstat` without `-n` asks a name server")


def _pidof(call: ProgramCall) -> CallEffects:
    """`pidof`; what it does not understand it reports to the system log."""
    parsed = parse_args(call.args, option_table("-cqsx -o:", exact=True))
    if any(not re.fullmatch(r"\d+(,\d+)*|%PPID", word.text) for word in parsed.values("-o")):
        return unknown("`pidof -o` needs the number of a process")
    return NO_EFFECTS


def _ss(call: ProgramCall) -> CallEffects:
    """`ss` with a filter of states, ports and addresses in digits: any other word it looks up as the name of a host."""
    parsed = parse_args(call.args, option_table(_SS))
    if not parsed.has("-n", "--numeric"):
        return unknown("`ss` without `-n` asks another program for the names of ports")
    for word in parsed.operands:
        tokens = word.text.replace("(", " ").replace(")", " ").split()
        if word.kind != "literal" or not all(token in _SS_WORDS or _SS_ENDPOINT.fullmatch(token) for token in tokens):
            return unknown(f"`ss` asks a name server about what it does not know in `{word.source}`")
    return NO_EFFECTS


def _pip(call: ProgramCall) -> CallEffects:
    word = call.args[0].text if call.args and call.args[0].kind == "literal" else ""
    if word not in ("list", "show", "freeze"):
        return unknown(f"`pip {word}` is not known to only read")
    options = "-leqvf --local --editable --user --all --files --verbose --format= --not-required"
    parse_args(call.args[1:], option_table(options, exact=True))
    return NO_EFFECTS


def _go(call: ProgramCall) -> CallEffects:
    """`go version` and plain settings; the launcher sets GOTOOLCHAIN=local, so that no other version is fetched and run."""
    words = [word.text for word in call.args if word.kind == "literal"]
    if words == ["version"]:
        return NO_EFFECTS
    # Other settings make go try out the C compiler.
    if words[:1] == ["env"] and len(words) == len(call.args) > 1 and _GO_SETTINGS.issuperset(words[1:]):
        return NO_EFFECTS
    return unknown("`go` is known to only read where it prints its version or plain settings")


def _python(call: ProgramCall) -> CallEffects:
    """`python3 -m json.tool FILE`; without `-I` the launcher keeps a file json.py of the folder from running."""
    args = (
        call.args[1:] if call.args[:1] and call.args[0].kind == "literal" and call.args[0].text == "-I" else call.args
    )
    if [word.text for word in args[:2] if word.kind == "literal"] != ["-m", "json.tool"]:
        return unknown("Python runs whatever it is given")
    options = "--sort-keys --no-ensure-ascii --json-lines --indent= --tab --no-indent --compact"
    files = parse_args(args[2:], option_table(options, exact=True)).operands
    if len(files) > 1:
        return unknown("`json.tool` with two files writes the second")
    return CallEffects(reads=tuple(word for word in files if word.text != "-"))


def _lsof(call: ProgramCall) -> CallEffects:
    """`lsof -n`; a host that `-i` names is looked up in spite of `-n`, unless it is an address."""
    parsed = parse_args(call.args, option_table("-nPltUa -i? -s? -p: -u: -c:", exact=True))
    if not parsed.has("-n"):
        return unknown("`lsof` without `-n` asks a name server")
    words = [*parsed.operands, *parsed.values("-i", "-s")]
    if any(word.kind != "literal" or word.text.startswith("+") for word in words):
        return unknown("an operand of `lsof` is not known in advance")
    if any(host and not _ADDRESS.fullmatch(host) for host in (word.text.partition("@")[2] for word in words)):
        return unknown("`lsof` asks a name server about a host")
    return NO_EFFECTS


def _yq(call: ProgramCall) -> CallEffects:
    if any(_YQ_READS_OTHERS.search(word.text) for word in call.args):
        return unknown("the yq expression loads files or runs programs")
    # Instead of an expression the first operand may be a file.
    first = next((word for word in call.args if not word.prefix.startswith("-") and word.text not in (".", "..")), None)
    effects = _YQ(call)
    return replace(effects, reads=(first, *effects.reads)) if first is not None and effects.known else effects


def _strings(call: ProgramCall) -> CallEffects:
    """`strings @file` takes the names of files, and options, from a file."""
    if any(word.text.startswith("@") or (word.kind == "glob" and word.source[:1] in "*?[") for word in call.args):
        return unknown("`strings` takes arguments from a file whose name follows `@`")
    return _STRINGS(call)


def _env(call: ProgramCall) -> CallEffects:
    """`env` that prints the environment; with a command it is a wrapper."""
    parsed = parse_args(call.args, option_table("-0 --null --help --version", exact=True))
    return unknown("`env` runs a command") if parsed.operands else NO_EFFECTS


def _command(call: ProgramCall) -> CallEffects:
    """`command -v`; with a command it is a wrapper."""
    if call.args and call.args[0].kind == "literal" and call.args[0].text in ("-v", "-V"):
        return NO_EFFECTS
    return unknown("`command` runs a command")


SPECIAL_PROGRAMS: Mapping[str, ProgramCheck] = {
    "jq": _jq,
    "date": _date,
    "xxd": _xxd,
    "tar": _tar,
    "gzip": _gzip,
    "gunzip": _gzip,
    "zcat": _zcat,
    "unzip": _unzip,
    "zipinfo": _zipinfo,
    "strings": _strings,
    "fd": _fd,
    "fdfind": _fd,
    "ps": _ps,
    "netstat": _netstat,
    "ss": _ss,
    "pidof": _pidof,
    "pip": _pip,
    "pip3": _pip,
    "go": _go,
    "shfmt": ProgramSpec(
        "-ldps -i: -ci/ -bn/ -sr/ -kp/ -fn/ -mn/ -ln/: --list --diff --posix --simplify --indent= --case-indent "
        "--binary-next-line --space-redirects --keep-padding --func-next-line --minify --language-dialect= --to-json",
        "files",
        exact=True,
        recursive=True,
    ),
    "gofmt": ProgramSpec("-ldes", "files", exact=True, recursive=True),
    "python3": _python,
    "python": _python,
    "lsof": _lsof,
    "yq": _yq,
    "uuidgen": ProgramSpec("-r --random", "none", exact=True),
    "env": _env,
    "command": _command,
}
