"""The checkers there are: for which files, how each is called on a content that need not be on disk, how it is read."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import secrets
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from msgspec import Struct

from wieldy.core.threads import in_thread
from wieldy.shell.running.reaper import ProcessTree, end_tree

MOST_OUTPUT = 4 << 20


async def output_of(argv: Sequence[str], *, stdin: bytes = b"", cwd: str, env: Mapping[str, str]) -> str | None:
    """What a program printed, both streams, or None if it could not be started. Cancelling ends the program."""
    name, value = "WIELDY_CHECKER", secrets.token_hex(8)
    try:
        process = await asyncio.create_subprocess_exec(
            *argv,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            cwd=cwd,
            env={**env, name: value},
            start_new_session=True,
        )
    except (OSError, ValueError):
        return None
    try:
        assert process.stdin is not None
        assert process.stdout is not None
        _, printed = await asyncio.gather(_fed(process.stdin, stdin), _read(process.stdout))
        await process.wait()
        return printed
    finally:
        if process.returncode is None:
            await in_thread(end_tree, ProcessTree(f"{name}={value}", frozenset({process.pid})), grace=0.0)
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()


async def _fed(pipe: asyncio.StreamWriter, data: bytes) -> None:
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        pipe.write(data)
        await pipe.drain()
        pipe.close()


async def _read(pipe: asyncio.StreamReader) -> str:
    """The first megabytes; the rest is read and forgotten, so that the program does not block."""
    kept = bytearray()
    while piece := await pipe.read(1 << 16):
        if len(kept) < MOST_OUTPUT:
            kept += piece
    return kept.decode("utf-8", "replace")


class Problem(Struct, frozen=True):
    """One error in one file."""

    line: int
    message: str
    rule: str
    checker: str

    @property
    def kind(self) -> tuple[str, str, str]:
        """What it is, wherever it stands: an edit above moves errors that it did not make."""
        return self.checker, self.rule, self.message

    def __str__(self) -> str:
        rule = f" [{self.rule}]" if self.rule else ""
        return f"line {self.line}: {' '.join(self.message.split())}{rule} ({self.checker})"


def new_problems(before: Sequence[Problem], after: Sequence[Problem]) -> list[Problem]:
    """Those that there were fewer of before; of several alike the last ones."""
    known = Counter(problem.kind for problem in before)
    found: list[Problem] = []
    for problem in after:
        if known[problem.kind] > 0:
            known[problem.kind] -= 1
        else:
            found.append(problem)
    return found


# Of a compiler that stops at the first error, this much is looked through.
COMPLAINT_CHARS = 20_000

Parse: TypeAlias = Callable[[str, "Subject"], Iterator[Problem]]


class Subject(Struct, frozen=True):
    """What is checked: a content that stands, or stood, at `path`. `copy` is a file that holds it, in the folder `scratch`
    of its own; `cache` is a folder that outlives the check."""

    path: str
    root: str
    copy: str
    scratch: str
    cache: str


class Checker(Struct, frozen=True):
    """One checker. `arguments` are those after its own name; with `reads_stdin` the content is piped to it."""

    name: str
    arguments: Callable[[Subject], tuple[str, ...]]
    parse: Parse
    program: str = ""
    reads_stdin: bool = False

    def located(self, env: Mapping[str, str]) -> str | None:
        """Where its program is, if it is installed."""
        if self.program:
            return self.program
        found = shutil.which(self.name, path=env.get("PATH", os.defpath))
        return found if found and os.path.isabs(found) else None


def checkers_for(path: str, env: Mapping[str, str]) -> list[tuple[Checker, str]]:
    """The checkers of a file's language that are installed, one of each kind, with their programs."""
    kinds, resort = BY_SUFFIX.get(os.path.splitext(path)[1], ((), None))
    found: list[tuple[Checker, str]] = []
    for alternatives in kinds:
        located = ((checker, program) for checker in alternatives if (program := checker.located(env)))
        found += [first] if (first := next(located, None)) else []
    if not found and resort is not None and (program := resort.located(env)):
        found.append((resort, program))
    return found


def _ruff(subject: Subject) -> tuple[str, ...]:
    options = ("--output-format=json", "--no-cache", "--no-fix", "--quiet", "--exit-zero", "--force-exclude")
    return ("check", *options, "--stdin-filename", subject.path, "-")


def _parse_ruff(output: str, subject: Subject) -> Iterator[Problem]:
    for found in _json(output, list):
        line = (found.get("location") or {}).get("row", 1)
        yield Problem(line, str(found.get("message")), str(found.get("code") or ""), "ruff")


def _mypy(subject: Subject) -> tuple[str, ...]:
    options = ("--no-error-summary", "--no-color-output", "--no-pretty", "--hide-error-context", "--show-error-codes")
    quiet = ("--follow-imports=silent", "--show-absolute-path", f"--cache-dir={subject.cache}")
    return (*options, *quiet, "--shadow-file", subject.path, subject.copy, subject.path)


_MYPY = re.compile(r"(?P<file>.+?):(?P<line>\d+)(?::\d+)?: error: (?P<message>.*?)(?:  \[(?P<rule>[\w-]+)\])?$", re.M)


def _parse_mypy(output: str, subject: Subject) -> Iterator[Problem]:
    for found in _MYPY.finditer(output):
        if os.path.realpath(os.path.join(subject.root, found["file"])) in (
            os.path.realpath(subject.path),
            os.path.realpath(subject.copy),
        ):
            yield Problem(int(found["line"]), found["message"], found["rule"] or "", "mypy")


def _pyright(subject: Subject) -> tuple[str, ...]:
    settings = {"extraPaths": [os.path.dirname(subject.path), subject.root], "reportMissingImports": "none"}
    with open(os.path.join(subject.scratch, "pyrightconfig.json"), "w", encoding="utf-8") as file:
        json.dump(settings, file)
    return ("--outputjson", "--project", subject.scratch)


def _parse_pyright(output: str, subject: Subject) -> Iterator[Problem]:
    for found in _json(output, dict).get("generalDiagnostics", ()):
        if found.get("severity") == "error":
            line = ((found.get("range") or {}).get("start") or {}).get("line", 0) + 1
            yield Problem(line, str(found.get("message")), str(found.get("rule") or ""), "pyright")


def _tsc(subject: Subject) -> tuple[str, ...]:
    options = ("--noEmit", "--pretty", "false", "--skipLibCheck", "--target", "esnext", "--module", "esnext")
    return (*options, "--moduleResolution", "bundler", "--jsx", "preserve", "--strict", subject.copy)


_TSC = re.compile(r"^[^\s(][^(\n]*\((?P<line>\d+),\d+\): error (?P<rule>TS\d+): (?P<message>.*)$", re.M)
# The copy does not stand beside the modules it imports and the types it uses.
_UNRESOLVED = frozenset({"TS2307", "TS2792", "TS7016", "TS2688", "TS2580", "TS2875", "TS7026"})


def _parse_tsc(output: str, subject: Subject) -> Iterator[Problem]:
    for found in _TSC.finditer(output):
        if found["rule"] not in _UNRESOLVED:
            yield Problem(int(found["line"]), found["message"], found["rule"], "tsc")


def _vet(subject: Subject) -> tuple[str, ...]:
    overlay = os.path.join(subject.scratch, "overlay.json")
    with open(overlay, "w", encoding="utf-8") as file:
        json.dump({"Replace": {subject.path: subject.copy}}, file)
    return ("vet", "-C", os.path.dirname(subject.path), "-overlay", overlay, ".")


_VET = re.compile(r"^(?:vet: )?(?P<file>[^\s:][^:\n]*\.go):(?P<line>\d+)(?::\d+)?: (?P<message>.*)$", re.M)


def _parse_vet(output: str, subject: Subject) -> Iterator[Problem]:
    names = {os.path.basename(subject.path), os.path.basename(subject.copy)}
    for found in _VET.finditer(output):
        if os.path.basename(found["file"]) in names:
            yield Problem(int(found["line"]), found["message"], "", "go vet")


_NODE = re.compile(r"^[^\n]*?:(?P<line>\d+)\n(?:.*\n)*?(?P<message>SyntaxError: .*)$", re.M)


def _parse_node(output: str, subject: Subject) -> Iterator[Problem]:
    if found := _NODE.search(output[:COMPLAINT_CHARS]):
        yield Problem(int(found["line"]), found["message"], "", "node")


_PYTHON = re.compile(r'^\s*File "[^"\n]*", line (?P<line>\d+)\n(?:.*\n)*?(?P<message>\w*Error: .*)$', re.M)


def _parse_python(output: str, subject: Subject) -> Iterator[Problem]:
    if found := _PYTHON.search(output[:COMPLAINT_CHARS]):
        yield Problem(int(found["line"]), found["message"], "", "python")


def _json(output: str, kind: type) -> Any:
    """The JSON in an output; nothing where a program said something else."""
    start = output.find("[" if kind is list else "{")
    try:
        found = json.loads(output[start:]) if start >= 0 else kind()
    except ValueError:
        return kind()
    return found if isinstance(found, kind) else kind()


RUFF = Checker("ruff", _ruff, _parse_ruff, reads_stdin=True)
MYPY = Checker("mypy", _mypy, _parse_mypy)
PYRIGHT = Checker("pyright", _pyright, _parse_pyright)
TSC = Checker("tsc", _tsc, _parse_tsc)
VET = Checker("go", _vet, _parse_vet)
NODE = Checker("node", lambda subject: ("--check", subject.copy), _parse_node)
PYTHON = Checker("python", lambda subject: ("-I", "-m", "py_compile", subject.copy), _parse_python, sys.executable)

Kinds: TypeAlias = tuple[tuple[tuple[Checker, ...], ...], Checker | None]
_PY: Kinds = (((RUFF,), (PYRIGHT, MYPY)), PYTHON)
_TS: Kinds = (((TSC,),), None)
_JS: Kinds = (((NODE,),), None)
# Each kind of checker with its alternatives, and the last resort where none is installed.
BY_SUFFIX: Mapping[str, Kinds] = {
    **dict.fromkeys((".py", ".pyi"), _PY),
    **dict.fromkeys((".ts", ".tsx", ".mts", ".cts"), _TS),
    **dict.fromkeys((".js", ".mjs", ".cjs"), _JS),
    ".go": (((VET,),), None),
}
