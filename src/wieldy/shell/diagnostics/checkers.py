"""The linters and type checkers: which files each handles, how to run it on unsaved content, how to parse its output.

None runs code of the project unless it is confined: a program of the project is taken only then, and so are its plugins.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from msgspec import Struct

from wieldy.core.programs import find_program
from wieldy.shell.running.program_output import run_for_output


async def run_program(argv: Sequence[str], *, stdin: bytes = b"", cwd: str, env: Mapping[str, str]) -> str | None:
    """Run a program and return stdout and stderr; None if it cannot be started. Cancellation ends the program."""
    output = await run_for_output(argv, stdin, cwd=cwd, env=env, tag="WIELDY_CHECKER", merged=True)
    return output.stdout if output.exit_code is not None else None


class Diagnostic(Struct, frozen=True):
    """One error in a file."""

    line: int
    message: str
    rule: str
    checker: str

    @property
    def identity(self) -> tuple[str, str, str]:
        """What identifies it apart from its line, which an edit above it changes."""
        return self.checker, self.rule, self.message

    def __str__(self) -> str:
        rule = f" [{self.rule}]" if self.rule else ""
        return f"line {self.line}: {' '.join(self.message.split())}{rule} ({self.checker})"


def new_diagnostics(before: Sequence[Diagnostic], after: Sequence[Diagnostic]) -> list[Diagnostic]:
    """Those in `after` that are not in `before`, counting equal ones; of equal ones the last."""
    known = Counter(diagnostic.identity for diagnostic in before)
    new: list[Diagnostic] = []
    for diagnostic in after:
        if known[diagnostic.identity] > 0:
            known[diagnostic.identity] -= 1
        else:
            new.append(diagnostic)
    return new


# How much of the output is parsed for a compiler that stops at the first error.
MAX_PARSED_CHARS = 20_000

Parse: TypeAlias = Callable[[str, "CheckedFile"], Iterator[Diagnostic]]


class CheckedFile(Struct, frozen=True):
    """The content to check. `path` is where it belongs, `copy` a file with it in its own folder `scratch`.

    `cache` is a folder that outlives the check.
    """

    path: str
    root: str
    copy: str
    scratch: str
    cache: str


class Checker(Struct, frozen=True):
    """How to run a checker. `arguments` follow its name; with `reads_stdin` the content is piped to it.

    `without_plugins` are further arguments that keep a checker, which would load plugins of the project, from that.
    `in_scratch`: it starts programs that would import from the folder it runs in.
    """

    name: str
    arguments: Callable[[CheckedFile], tuple[str, ...]]
    parse: Parse
    program: str = ""
    reads_stdin: bool = False
    without_plugins: tuple[str, ...] = ()
    env: Mapping[str, str] = {}
    in_scratch: bool = False

    def find_program(self, env: Mapping[str, str], roots: Sequence[str]) -> str | None:
        """The path of its program, if it is installed outside the roots."""
        return self.program or find_program(self.name, env, roots)


def checkers_for(path: str, env: Mapping[str, str], roots: Sequence[str] = ()) -> list[tuple[Checker, str]]:
    """The checkers for a file that are installed outside the roots, one of each kind, with their programs."""
    kinds, fallback = BY_SUFFIX.get(os.path.splitext(path)[1], ((), None))
    checkers: list[tuple[Checker, str]] = []
    for alternatives in kinds:
        installed = ((checker, program) for checker in alternatives if (program := checker.find_program(env, roots)))
        checkers += [first] if (first := next(installed, None)) else []
    if not checkers and fallback is not None and (program := fallback.find_program(env, roots)):
        checkers.append((fallback, program))
    return checkers


def _ruff(file: CheckedFile) -> tuple[str, ...]:
    options = ("--output-format=json", "--no-cache", "--no-fix", "--quiet", "--exit-zero", "--force-exclude")
    return ("check", *options, "--stdin-filename", file.path, "-")


def _parse_ruff(output: str, file: CheckedFile) -> Iterator[Diagnostic]:
    for item in _json(output, list):
        line = (item.get("location") or {}).get("row", 1)
        yield Diagnostic(line, str(item.get("message")), str(item.get("code") or ""), "ruff")


def _mypy(file: CheckedFile) -> tuple[str, ...]:
    options = ("--no-error-summary", "--no-color-output", "--no-pretty", "--hide-error-context", "--show-error-codes")
    quiet = ("--follow-imports=silent", "--show-absolute-path", f"--cache-dir={file.cache}")
    return (*options, *quiet, "--shadow-file", file.path, file.copy, file.path)


_MYPY = re.compile(r"(?P<file>.+?):(?P<line>\d+)(?::\d+)?: error: (?P<message>.*?)(?:  \[(?P<rule>[\w-]+)\])?$", re.M)


def _parse_mypy(output: str, file: CheckedFile) -> Iterator[Diagnostic]:
    for match in _MYPY.finditer(output):
        if os.path.realpath(os.path.join(file.root, match["file"])) in (
            os.path.realpath(file.path),
            os.path.realpath(file.copy),
        ):
            yield Diagnostic(int(match["line"]), match["message"], match["rule"] or "", "mypy")


def _pyright(file: CheckedFile) -> tuple[str, ...]:
    settings = {"extraPaths": [os.path.dirname(file.path), file.root], "reportMissingImports": "none"}
    with open(os.path.join(file.scratch, "pyrightconfig.json"), "w", encoding="utf-8") as stream:
        json.dump(settings, stream)
    return ("--outputjson", "--project", file.scratch)


def _parse_pyright(output: str, file: CheckedFile) -> Iterator[Diagnostic]:
    for item in _json(output, dict).get("generalDiagnostics", ()):
        if item.get("severity") == "error":
            line = ((item.get("range") or {}).get("start") or {}).get("line", 0) + 1
            yield Diagnostic(line, str(item.get("message")), str(item.get("rule") or ""), "pyright")


def _tsc(file: CheckedFile) -> tuple[str, ...]:
    options = ("--noEmit", "--pretty", "false", "--skipLibCheck", "--target", "esnext", "--module", "esnext")
    return (*options, "--moduleResolution", "bundler", "--jsx", "preserve", "--strict", file.copy)


_TSC = re.compile(r"^[^\s(][^(\n]*\((?P<line>\d+),\d+\): error (?P<rule>TS\d+): (?P<message>.*)$", re.M)
# The copy is not beside the modules that it imports.
_UNRESOLVED = frozenset({"TS2307", "TS2792", "TS7016", "TS2688", "TS2580", "TS2875", "TS7026"})


def _parse_tsc(output: str, file: CheckedFile) -> Iterator[Diagnostic]:
    for match in _TSC.finditer(output):
        if match["rule"] not in _UNRESOLVED:
            yield Diagnostic(int(match["line"]), match["message"], match["rule"], "tsc")


def _vet(file: CheckedFile) -> tuple[str, ...]:
    overlay = os.path.join(file.scratch, "overlay.json")
    with open(overlay, "w", encoding="utf-8") as stream:
        json.dump({"Replace": {file.path: file.copy}}, stream)
    return ("vet", "-C", os.path.dirname(file.path), "-overlay", overlay, ".")


_VET = re.compile(r"^(?:vet: )?(?P<file>[^\s:][^:\n]*\.go):(?P<line>\d+)(?::\d+)?: (?P<message>.*)$", re.M)


def _parse_vet(output: str, file: CheckedFile) -> Iterator[Diagnostic]:
    names = {os.path.basename(file.path), os.path.basename(file.copy)}
    for match in _VET.finditer(output):
        if os.path.basename(match["file"]) in names:
            yield Diagnostic(int(match["line"]), match["message"], "", "go vet")


_NODE = re.compile(r"^[^\n]*?:(?P<line>\d+)\n(?:.*\n)*?(?P<message>SyntaxError: .*)$", re.M)


def _parse_node(output: str, file: CheckedFile) -> Iterator[Diagnostic]:
    if match := _NODE.search(output[:MAX_PARSED_CHARS]):
        yield Diagnostic(int(match["line"]), match["message"], "", "node")


_PYTHON = re.compile(r'^\s*File "[^"\n]*", line (?P<line>\d+)\n(?:.*\n)*?(?P<message>\w*Error: .*)$', re.M)


def _parse_python(output: str, file: CheckedFile) -> Iterator[Diagnostic]:
    if match := _PYTHON.search(output[:MAX_PARSED_CHARS]):
        yield Diagnostic(int(match["line"]), match["message"], "", "python")


def _json(output: str, kind: type) -> Any:
    """The JSON in an output; empty if there is none."""
    start = output.find("[" if kind is list else "{")
    try:
        value = json.loads(output[start:]) if start >= 0 else kind()
    except ValueError:
        return kind()
    return value if isinstance(value, kind) else kind()


RUFF = Checker("ruff", _ruff, _parse_ruff, reads_stdin=True)
MYPY = Checker("mypy", _mypy, _parse_mypy, without_plugins=("--config-file=",))
PYRIGHT = Checker("pyright", _pyright, _parse_pyright, in_scratch=True)
TSC = Checker("tsc", _tsc, _parse_tsc)
# A module may name another toolchain, which go would fetch and run; cgo runs compilers, version stamps run git.
_GO = {"GOTOOLCHAIN": "local", "CGO_ENABLED": "0", "GOFLAGS": "-buildvcs=false", "GOPROXY": "off"}
VET = Checker("go", _vet, _parse_vet, env=_GO)
NODE = Checker("node", lambda file: ("--check", file.copy), _parse_node)
PYTHON = Checker("python", lambda file: ("-I", "-m", "py_compile", file.copy), _parse_python, sys.executable)

CheckerKinds: TypeAlias = tuple[tuple[tuple[Checker, ...], ...], Checker | None]
_PY: CheckerKinds = (((RUFF,), (PYRIGHT, MYPY)), PYTHON)
_TS: CheckerKinds = (((TSC,),), None)
_JS: CheckerKinds = (((NODE,),), None)
# For each kind of checker its alternatives, and the fallback if none is installed.
BY_SUFFIX: Mapping[str, CheckerKinds] = {
    **dict.fromkeys((".py", ".pyi"), _PY),
    **dict.fromkeys((".ts", ".tsx", ".mts", ".cts"), _TS),
    **dict.fromkeys((".js", ".mjs", ".cjs"), _JS),
    ".go": (((VET,),), None),
}
