"""The engine used where there is no `rg`: a program that takes the options we give `rg` and answers in its format.

It is a process of its own, because a regular expression that runs wild in Python can only be stopped by killing it.
"""

from __future__ import annotations

import codecs
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import BinaryIO

from msgspec import Struct

from wieldy.search.dialect import BadPattern, LineBreakInPattern, translate
from wieldy.search.ignore import compile_any, rules_above, walk_files
from wieldy.search.occurrences import Occurrences
from wieldy.search.ripgrep import file_types, name_test

BINARY_PROBE = 65_536
_MARKS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))


def main(argv: list[str]) -> int:
    """Search as told; 0 when something was found, 1 when nothing was, 2 when something could not be read."""
    options = read_options(argv)
    wanted = options.last("type")
    if wanted and not options.has("type-add") and wanted not in file_types():
        sys.stderr.write(f"rg: unrecognized file type: {wanted}\n")
        return 2
    try:
        return BuiltinSearch(options, sys.stdout.buffer).run()
    except LineBreakInPattern as error:
        sys.stderr.write(f"rg: {error}\n")
        return 2
    except (BadPattern, re.error, OverflowError, RecursionError) as error:
        sys.stderr.write(f"rg: regex parse error:\nerror: {error}\n")
        return 2
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 2
    except Exception as error:
        # Left alone it would end with 1, which says that nothing matches.
        sys.stderr.write(f"rg: {type(error).__name__}: {error}\n")
        return 2


class Options(Struct, frozen=True):
    """What a command line asks for."""

    given: Mapping[str, Sequence[str]]
    paths: Sequence[str]

    def has(self, name: str) -> bool:
        """Whether the option is there."""
        return name in self.given

    def all(self, name: str) -> Sequence[str]:
        """Every value given."""
        return self.given.get(name, ())

    def last(self, name: str, default: str = "") -> str:
        """The value that counts."""
        return self.given[name][-1] if name in self.given else default


class BuiltinSearch:
    """One run over the paths given."""

    def __init__(self, options: Options, out: BinaryIO) -> None:
        self.options = options
        self.out = out
        self.found = False
        self.unread = False
        if not options.has("files"):
            self.without_returns = self._compiled(returns=False)
            self.with_returns = self._compiled(returns=True)

    def run(self) -> int:
        """Search everything; the exit code."""
        for name in self._names():
            if self.options.has("files"):
                self.found = True
                self.out.write(os.fsencode(name) + b"\0")
            else:
                self._search(name)
                # What was found must have been said before a later file takes too long.
                self.out.flush()
        self.out.flush()
        return 2 if self.unread else int(not self.found)

    def _compiled(self, *, returns: bool) -> re.Pattern[str]:
        options = self.options
        pattern = translate(
            options.last("regexp"),
            ignore_case=options.has("ignore-case"),
            multiline=options.has("multiline"),
            returns=returns,
        )
        return re.compile(pattern, re.MULTILINE)

    def _names(self) -> Iterator[str]:
        for path in self.options.paths:
            if os.path.isdir(path):
                yield from self._below(path.rstrip("/"))
            else:
                yield path

    def _below(self, folder: str) -> Iterator[str]:
        excluded = compile_any(glob[1:] for glob in self.options.all("glob"))
        added = [definition.partition(":")[2] for definition in self.options.all("type-add")]
        wanted = compile_any(added) or name_test(self.options.last("type"))
        root = os.path.realpath(folder)
        in_repository = not self.options.has("no-require-git")
        rules = None if self.options.has("no-ignore") else rules_above(root, in_repository)
        for entry in walk_files(root, rules, excluded, self._complain):
            if wanted is None or wanted(entry.name):
                yield folder + entry.path[len(root.rstrip("/")) :]

    def _complain(self, error: OSError) -> None:
        self.unread = True
        named = os.fsencode(os.path.relpath(error.filename)) if error.filename else b"?"
        said = f": {error.strerror} (os error {error.errno})\n".encode(errors="replace")
        sys.stderr.buffer.write(b"rg: ./" + named + said)

    def _search(self, name: str) -> None:
        try:
            with open(name, "rb") as file:
                data = file.read()
        except OSError as error:
            self._complain(error)
            return
        text = decoded(data)
        regex = self.with_returns if "\r" in text else self.without_returns
        found = Occurrences(text, regex)
        if self.options.has("files-with-matches"):
            first = next(iter(found), None)
            seen = max(BINARY_PROBE, first.end() if first else 0)
            if first is not None and not self._is_binary(text[:seen]):
                self._report(name, b"")
        elif not self._is_binary(text):
            self._write_found(name, found)

    def _is_binary(self, text: str) -> bool:
        return not self.options.has("text") and "\0" in text

    def _write_found(self, name: str, found: Occurrences) -> None:
        options = self.options
        if options.has("count") or options.has("count-matches"):
            number = len(found.lines()) if options.has("count") else sum(1 for _ in found)
            if number:
                self._report(name, b"%d\n" % number)
            return
        around = (int(options.last(f"{side}-context", "0")) for side in ("before", "after"))
        written = found.parts() if options.has("only-matching") else found.in_context(*around)
        for line, column, text in written:
            place = b"%d\0%d\0" % (line, column) if column else b"%d\1" % line
            self._report(name, place + text.encode("utf-8", "surrogateescape") + b"\n")

    def _report(self, name: str, rest: bytes) -> None:
        self.found = True
        self.out.write(os.fsencode(name) + b"\0" + rest)


def decoded(data: bytes) -> str:
    """A file's text: UTF-16 where its first bytes say so, else UTF-8; what is neither is kept as lone surrogates."""
    for mark, encoding in _MARKS:
        if data.startswith(mark):
            return data[len(mark) :].decode(encoding, "surrogateescape" if encoding == "utf-8" else "replace")
    return data.decode("utf-8", "surrogateescape")


def read_options(argv: Iterable[str]) -> Options:
    """The options of a command line; each has the form `--name` or `--name=value`, paths come after `--`."""
    given: dict[str, list[str]] = {}
    rest = iter(argv)
    for word in rest:
        if word == "--":
            break
        name, _, value = word.removeprefix("--").partition("=")
        given.setdefault(name, []).append(value)
    return Options(given, list(rest))
