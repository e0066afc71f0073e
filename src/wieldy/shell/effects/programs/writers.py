"""Programs that write files or use the network, with the files and addresses they touch."""

from __future__ import annotations

import re
from collections.abc import Mapping

from msgspec import Struct

from wieldy.shell.effects.programs.spec import (
    CallEffects,
    ProgramCall,
    ProgramCheck,
    ProgramSpec,
    option_table,
    parse_args,
    unknown,
)
from wieldy.shell.effects.words import Word, literal

_COPY_OPTIONS = (
    "-abdfiHlLnPprRsTuvxZ -S: -t:w --archive --attributes-only --backup=? --copy-contents --force --interactive "
    "--dereference --link --no-clobber --no-dereference --preserve=? --no-preserve= --parents --recursive --reflink=? "
    "--remove-destination --sparse= --strip-trailing-slashes --symbolic-link --suffix= --target-directory=w "
    "--no-target-directory --update=? --verbose --one-file-system"
)
_CURL_OPTIONS = (
    "-sSfLkvigI#N46Gajnl -o:w -O -H: -X: -d: -A: -e: -m: -u: -w: -b: -r: -T:r -D:w -c:w -Y: -y: -z: -C: -F: -x: --silent "
    "--show-error --fail --location --insecure --verbose --include --head --output=w --remote-name --header= --request= "
    "--data= --data-raw= --data-binary= --data-ascii= --data-urlencode= --user-agent= --max-time= --connect-timeout= --retry= "
    "--retry-delay= --retry-max-time= --retry-all-errors --retry-connrefused --compressed --write-out= --progress-bar "
    "--no-progress-meter --http1.0 --http1.1 --http2 --http3 --tlsv1.2 --tlsv1.3 --ipv4 --ipv6 --json= --fail-with-body "
    "--fail-early --get --globoff --no-buffer --referer= --user= --cookie= --cookie-jar=w --dump-header=w --upload-file=r "
    "--form= --form-string= --url= --range= --limit-rate= --max-redirs= --max-filesize= --speed-limit= --speed-time= "
    "--cacert=r --cert=r --key=r --no-keepalive --tcp-nodelay --path-as-is --create-dirs --output-dir=w "
    "--remote-header-name -J --remote-time -R"
)
_WGET_OPTIONS = (
    "-qvncS -O:w -P:w -T: -t: -U: --quiet --verbose --output-document=w --directory-prefix=w --timeout= "
    "--tries= --user-agent= --spider"
)


_DATA_OPTIONS = (
    *("-d", "-H", "-w", "-F", "--data", "--data-binary", "--data-ascii", "--data-urlencode", "--json"),
    *("--header", "--write-out", "--form"),
)
_DATA_FILE = re.compile(r"([\w-]*=)?[@<](?P<file>[^;]*)")
_FILE_URL = re.compile(r"file:(//[^/]*)?(?=/)", re.IGNORECASE)


class CopyCommand(Struct, frozen=True):
    """`cp`, `mv`, `ln` and `install`: the last operand is written, the others are read (or, when moved, written too)."""

    options: str
    moves: bool = False

    def __call__(self, call: ProgramCall) -> CallEffects:
        parsed = parse_args(call.args, option_table(self.options))
        sources, targets = parsed.operands, parsed.writes
        if not targets:
            if len(sources) < 2:
                return CallEffects(writes=(*sources, literal(".")), changes=True)
            sources, targets = sources[:-1], [sources[-1]]
        if self.moves:
            return CallEffects(reads=tuple(sources), writes=(*sources, *targets), changes=True, recursive=True)
        return CallEffects(reads=tuple(sources), writes=tuple(targets), changes=True, recursive=True)


class AttributeCommand(Struct, frozen=True):
    """`chmod`, `chown` and `chgrp`: a first operand that is not a file, then files whose properties change."""

    options: str

    def __call__(self, call: ProgramCall) -> CallEffects:
        args = call.args
        # `chmod -w file`: a mode that looks like an option.
        modes = ("-r", "-w", "-x", "-X", "-s", "-t")
        has_mode = call.name == "chmod" and bool(args) and args[0].kind == "literal" and args[0].text[:2] in modes
        parsed = parse_args(args[1:] if has_mode else args, option_table(self.options))
        skip = 0 if has_mode or parsed.has("--reference") else 1
        return CallEffects(reads=tuple(parsed.reads), writes=tuple(parsed.operands[skip:]), changes=True)


def _dd(call: ProgramCall) -> CallEffects:
    reads: list[Word] = []
    writes: list[Word] = []
    for word in call.args:
        name, equals, value = word.text.partition("=")
        if word.kind != "literal" or not equals:
            return unknown("an operand of `dd` is not known in advance")
        if name == "if":
            reads.append(literal(value))
        elif name == "of":
            writes.append(literal(value))
    return CallEffects(tuple(reads), tuple(writes), changes=True)


def _fetch(call: ProgramCall, options: str, cwd_options: tuple[str, ...]) -> CallEffects:
    """A download; with `cwd_options` the program names the file itself, in the working directory."""
    parsed = parse_args(call.args, option_table(options))
    addresses = [*parsed.operands, *parsed.values("--url")]
    if any(word.kind != "literal" for word in addresses):
        return unknown("the address is not known in advance")
    data = parsed.values(*_DATA_OPTIONS)
    cookies = parsed.values("-b", "--cookie")
    if any(word.kind != "literal" for word in (*data, *cookies)):
        return unknown("the data may be the name of a file")
    files = [literal(match["file"]) for word in data if (match := _DATA_FILE.match(word.text))]
    # A cookie without `=` is the name of a file.
    files += [word for word in cookies if "=" not in word.text]
    local = [match for word in addresses if (match := _FILE_URL.match(word.text))]
    # curl expands braces and brackets in an address.
    if any(set(match.string) & set("{[%") for match in local):
        return unknown("the local address has patterns")
    files += [literal(match.string[match.end() :].partition("?")[0]) for match in local]
    if any("#" in word.text for word in parsed.writes):
        return unknown("curl completes the file name from the address")
    named = [literal(word.text.partition("?")[0].rpartition("/")[2]) for word in addresses]
    cwd = [literal("."), *named] if parsed.has(*cwd_options) and not parsed.writes else []
    writes = tuple(word for word in (*parsed.writes, *cwd) if word.text not in ("-", "/dev/null"))
    # What is sent through a proxy goes there, too.
    addresses += parsed.values("-x")
    urls = tuple(word.text for word in addresses if not _FILE_URL.match(word.text))
    return CallEffects(tuple(files), writes, urls, changes=True)


def _curl(call: ProgramCall) -> CallEffects:
    return _fetch(call, _CURL_OPTIONS, ("-O", "--remote-name"))


def _wget(call: ProgramCall) -> CallEffects:
    effects = _fetch(call, _WGET_OPTIONS, ())
    if not effects.known or effects.writes:
        return effects
    named = [literal(url.partition("?")[0].rpartition("/")[2]) for url in effects.fetches]
    return CallEffects(effects.reads, (literal("."), *named), effects.fetches, changes=True)


WRITERS: Mapping[str, ProgramCheck] = {
    "rm": ProgramSpec(
        "-fiIrRdv --force --interactive=? --one-file-system --no-preserve-root --preserve-root=? --recursive "
        "--dir --verbose",
        "written",
    ),
    "rmdir": ProgramSpec("-pv --ignore-fail-on-non-empty --parents --verbose", "written"),
    "unlink": ProgramSpec("", "written"),
    "mkdir": ProgramSpec("-pv -m: -Z --mode= --parents --verbose", "written"),
    "touch": ProgramSpec("-acfhm -d: -r:r -t: --date= --no-create --no-dereference --reference=r --time=", "written"),
    "tee": ProgramSpec("-aip --append --ignore-interrupts --output-error=?", "written"),
    "truncate": ProgramSpec("-co -s: -r:r --no-create --io-blocks --reference=r --size=", "written"),
    "shred": ProgramSpec("-fuvxz -n: -s: --force --iterations= --size= --remove=? --verbose --exact --zero", "written"),
    "mkfifo": ProgramSpec("-m: --mode=", "written"),
    "cp": CopyCommand(_COPY_OPTIONS),
    "mv": CopyCommand(
        "-bfinTuvZ -S: -t:w --backup=? --force --interactive --no-clobber --suffix= --target-directory=w "
        "--update=? --verbose",
        moves=True,
    ),
    "ln": CopyCommand(
        "-bdFfiLnPrsTv -S: -t:w --backup=? --force --symbolic --relative --no-dereference --suffix= "
        "--target-directory=w --verbose"
    ),
    "install": CopyCommand(
        "-bcCdDpsTv -g: -m: -o: -S: -t:w --directory --mode= --owner= --group= --target-directory=w --verbose --compare"
    ),
    "chmod": AttributeCommand(
        "-cfvR --changes --silent --quiet --verbose --recursive --no-preserve-root --preserve-root --reference=r"
    ),
    "chown": AttributeCommand(
        "-cfvhRHLP --changes --silent --quiet --verbose --recursive --no-dereference --no-preserve-root "
        "--reference=r --from="
    ),
    "chgrp": AttributeCommand(
        "-cfvhRHLP --changes --silent --quiet --verbose --recursive --no-dereference --no-preserve-root --reference=r"
    ),
    "dd": _dd,
    "curl": _curl,
    "wget": _wget,
}
