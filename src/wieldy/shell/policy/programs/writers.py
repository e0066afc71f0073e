"""Programs that change files or talk to the network, and exactly what they touch where that can be told."""

from __future__ import annotations

import re
from collections.abc import Mapping

from msgspec import Struct

from wieldy.shell.policy.programs.options import Parsed, read, table
from wieldy.shell.policy.programs.tables import Call, Judge, Judgement, Row, unknown
from wieldy.shell.policy.words import Word, plain

_COPY = (
    "-abdfiHlLnPprRsTuvxZ -S: -t:w --archive --attributes-only --backup=? --copy-contents --force --interactive "
    "--dereference --link --no-clobber --no-dereference --preserve=? --no-preserve= --parents --recursive "
    "--reflink=? --remove-destination --sparse= --strip-trailing-slashes --symbolic-link --suffix= "
    "--target-directory=w --no-target-directory --update=? --verbose --one-file-system"
)
_CURL = (
    "-sSfLkvigI#N46 -o:w -O -H: -X: -d: -A: -e: -m: -u: -w: -b: -r: --silent --show-error --fail --location "
    "--insecure --verbose --include --head --output=w --remote-name --header= --request= --data= --data-raw= "
    "--user-agent= --max-time= --connect-timeout= --retry= --compressed --write-out= --progress-bar --http1.1 "
    "--http2 --json= --fail-with-body"
)
_WGET = (
    "-qvncS -O:w -P:w -T: -t: -U: --quiet --verbose --output-document=w --directory-prefix=w --timeout= "
    "--tries= --user-agent= --spider"
)


_LOCAL = re.compile(r"file:(//[^/]*)?(?=/)", re.IGNORECASE)


class Copier(Struct, frozen=True):
    """`cp`, `mv`, `ln` and `install`: the last operand is written, the others are read (or, when moved, written too)."""

    spec: str
    moves: bool = False

    def __call__(self, call: Call) -> Judgement:
        """Judge one call of the program."""
        parsed = read(call.args, table(self.spec))
        if parsed.problem:
            return unknown(parsed.problem)
        sources, targets = parsed.operands, parsed.writes
        if not targets:
            if len(sources) < 2:
                return Judgement(writes=(*sources, plain(".")), changes=True)
            sources, targets = sources[:-1], [sources[-1]]
        if self.moves:
            return Judgement(reads=tuple(sources), writes=(*sources, *targets), changes=True)
        return Judgement(reads=tuple(sources), writes=tuple(targets), changes=True)


class Changer(Struct, frozen=True):
    """`chmod`, `chown` and `chgrp`: a first operand that is not a file, then files whose properties change."""

    spec: str

    def __call__(self, call: Call) -> Judgement:
        """Judge one call of the program."""
        args = call.args
        if (
            call.name == "chmod"
            and args
            and args[0].static
            and args[0].text[:2] in ("-r", "-w", "-x", "-X", "-s", "-t")
        ):
            args = args[1:]
            return _changed(read(args, table(self.spec)), skip=0)
        parsed = read(args, table(self.spec))
        return _changed(parsed, skip=0 if parsed.has("--reference") else 1)


def _changed(parsed: Parsed, skip: int) -> Judgement:
    if parsed.problem:
        return unknown(parsed.problem)
    return Judgement(reads=tuple(parsed.reads), writes=tuple(parsed.operands[skip:]), changes=True)


def _dd(call: Call) -> Judgement:
    reads: list[Word] = []
    writes: list[Word] = []
    for word in call.args:
        name, equals, value = word.text.partition("=")
        if not word.static or not equals:
            return unknown("an operand of `dd` that cannot be told")
        if name == "if":
            reads.append(plain(value))
        elif name == "of":
            writes.append(plain(value))
    return Judgement(tuple(reads), tuple(writes), changes=True)


def _fetch(spec: str, own_file: tuple[str, ...]) -> Judge:
    def judge(call: Call) -> Judgement:
        parsed = read(call.args, table(spec))
        if parsed.problem:
            return unknown(parsed.problem)
        if any(not word.static for word in parsed.operands):
            return unknown("an address that cannot be told")
        sent = [word for name in ("-d", "--data", "--json") for word in parsed.found.get(name, []) if word is not None]
        files = [plain(word.text[1:]) for word in sent if word.text.startswith("@")]
        local = [_LOCAL.match(word.text) for word in parsed.operands]
        # Braces and brackets in an address make several of it.
        if any(one and set(one.string) & set("{[%") for one in local):
            return unknown("an address that names files in a way of its own")
        files += [plain(one.string[one.end() :].partition("?")[0]) for one in local if one]
        here = [plain(".")] if parsed.has(*own_file) and not parsed.writes else []
        writes = tuple(word for word in (*parsed.writes, *here) if word.text not in ("-", "/dev/null"))
        return Judgement(
            tuple(files),
            writes,
            tuple(word.text for word in parsed.operands if not _LOCAL.match(word.text)),
            changes=True,
        )

    return judge


def _wget(call: Call) -> Judgement:
    judged = _fetch(_WGET, ())(call)
    if not judged.known or judged.writes:
        return judged
    return Judgement(judged.reads, (plain("."),), judged.fetches, changes=True)


WRITERS: Mapping[str, Judge] = {
    "rm": Row(
        "-fiIrRdv --force --interactive=? --one-file-system --no-preserve-root --preserve-root=? --recursive "
        "--dir --verbose",
        "written",
    ),
    "rmdir": Row("-pv --ignore-fail-on-non-empty --parents --verbose", "written"),
    "unlink": Row("", "written"),
    "mkdir": Row("-pv -m: -Z --mode= --parents --verbose", "written"),
    "touch": Row("-acfhm -d: -r:r -t: --date= --no-create --no-dereference --reference=r --time=", "written"),
    "tee": Row("-aip --append --ignore-interrupts --output-error=?", "written"),
    "truncate": Row("-co -s: -r:r --no-create --io-blocks --reference=r --size=", "written"),
    "shred": Row("-fuvxz -n: -s: --force --iterations= --size= --remove=? --verbose --exact --zero", "written"),
    "mkfifo": Row("-m: --mode=", "written"),
    "cp": Copier(_COPY),
    "mv": Copier(
        "-bfinTuvZ -S: -t:w --backup=? --force --interactive --no-clobber --suffix= --target-directory=w "
        "--update=? --verbose",
        moves=True,
    ),
    "ln": Copier(
        "-bdFfiLnPrsTv -S: -t:w --backup=? --force --symbolic --relative --no-dereference --suffix= "
        "--target-directory=w --verbose"
    ),
    "install": Copier(
        "-bcCdDpsTv -g: -m: -o: -S: -t:w --directory --mode= --owner= --group= --target-directory=w --verbose --compare"
    ),
    "chmod": Changer(
        "-cfvR --changes --silent --quiet --verbose --recursive --no-preserve-root --preserve-root --reference=r"
    ),
    "chown": Changer(
        "-cfvhRHLP --changes --silent --quiet --verbose --recursive --no-dereference --no-preserve-root "
        "--reference=r --from="
    ),
    "chgrp": Changer(
        "-cfvhRHLP --changes --silent --quiet --verbose --recursive --no-dereference --no-preserve-root --reference=r"
    ),
    "dd": _dd,
    "curl": _fetch(_CURL, ("-O", "--remote-name")),
    "wget": _wget,
}
