"""Tasks: one JSON object a line. Everything wrong in a file is found before anything starts, with the number of its line."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import asdict

from wieldy.core.errors import WieldyError
from wieldy.core.schema.check import InvalidInput
from wieldy.core.schema.parameters import Parameters
from wieldy.core.text import did_you_mean, plural

UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([smhd]?)")


def parse_duration(text: str) -> float:
    """Return seconds. Raises `ValueError` with one line for a person."""
    match = _DURATION.fullmatch(text.strip())
    seconds = float(match[1]) * UNITS[match[2]] if match else 0.0
    if not seconds > 0:
        raise ValueError(f"`{text}` is not a duration above 0, such as 90, 90s, 30m or 2h")
    return seconds


SourceKind: TypeAlias = Literal["root", "git", "archive"]

SWE_BENCH_KEYS = frozenset(
    {
        *("instance_id", "problem_statement", "repo", "base_commit", "patch", "test_patch", "hints_text", "created_at"),
        *("version", "FAIL_TO_PASS", "PASS_TO_PASS", "environment_setup_commit", "difficulty", "image_assets"),
    }
)
GITHUB = "https://github.com/"
MAX_PROBLEMS_SHOWN = 20


class TaskFileError(WieldyError):
    """A file of tasks cannot be used; the message has a line for each problem."""


class TaskLimits(Struct, frozen=True, omit_defaults=True):
    """What one attempt may not exceed. `seconds` is working time: waiting for rate limits does not count."""

    max_turns: Annotated[int, Meta(gt=0)] | None = None
    max_cost: Annotated[float, Meta(gt=0)] | None = None
    seconds: Annotated[float, Meta(gt=0)] | None = None
    idle_seconds: Annotated[float, Meta(gt=0)] | None = None

    def over(self, defaults: TaskLimits) -> TaskLimits:
        """These limits, and the defaults where there is none."""
        return TaskLimits(**{**asdict(defaults), **{k: v for k, v in asdict(self).items() if v is not None}})


class TaskSource(Struct, frozen=True, omit_defaults=True):
    """Where the files of a task come from: a folder, a commit of a repository, or an archive."""

    kind: SourceKind
    location: str
    ref: str = ""


class Task(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One task, with the defaults of the run filled in."""

    id: str
    prompt: str
    source: TaskSource
    model: str = ""
    mode: str = ""
    tools: tuple[str, ...] | None = None
    settings: dict[str, Any] = {}
    limits: TaskLimits = TaskLimits()
    setup: str = ""
    check: str = ""
    env: dict[str, str] = {}
    tags: tuple[str, ...] = ()


class TaskRow(Struct, kw_only=True):
    """A line of a file of tasks, as it is written."""

    id: str = ""
    prompt: str = ""
    root: str = ""
    git: str = ""
    archive: str = ""
    ref: str = ""
    model: str = ""
    mode: str = ""
    tools: tuple[str, ...] | None = None
    settings: dict[str, Any] = {}
    limits: TaskLimits = TaskLimits()
    setup: str = ""
    check: str = ""
    env: dict[str, str] = {}
    tags: str | tuple[str, ...] = ()


SOURCE_KEYS: tuple[SourceKind, ...] = ("root", "git", "archive")
TASK_KEYS = TaskRow.__struct_fields__
LIMIT_KEYS = TaskLimits.__struct_fields__


class TaskDefaults(Struct, frozen=True, kw_only=True):
    """What a task gets where it says nothing itself. `repos` is a folder of clones, searched before GitHub."""

    model: str = ""
    mode: str = ""
    root: str = ""
    check: str = ""
    setup: str = ""
    settings: dict[str, Any] = {}
    limits: TaskLimits = TaskLimits()
    repos: str = ""


class TaskFile(Struct, frozen=True):
    """The tasks of a file, and what a person should know about it."""

    tasks: tuple[Task, ...]
    warnings: tuple[str, ...] = ()


def read_tasks(path: str, defaults: TaskDefaults) -> TaskFile:
    """Read a file of tasks. Relative paths in it are relative to its folder. Raises `TaskFileError`."""
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise TaskFileError(f"{path}: {error.strerror}") from None
    return parse_tasks(data, defaults, name=path, folder=os.path.dirname(os.path.abspath(path)))


def parse_tasks(data: bytes, defaults: TaskDefaults, *, name: str = "tasks", folder: str = ".") -> TaskFile:
    """Parse lines of tasks. Raises `TaskFileError` with every problem and the number of its line."""
    tasks: list[Task] = []
    problems: list[str] = []
    unknown: dict[str, list[int]] = {}
    lines_by_id: dict[str, int] = {}
    for number, line in enumerate(data.removeprefix(b"\xef\xbb\xbf").split(b"\n"), 1):
        if not line.strip():
            continue
        reader = _TaskReader(folder, defaults)
        task = reader.read(line)
        problems += [f"{name}:{number}: {problem}" for problem in reader.problems]
        for key in reader.unknown:
            unknown.setdefault(key, []).append(number)
        if task is None:
            continue
        if (first := lines_by_id.setdefault(task.id, number)) != number:
            problems.append(f"{name}:{number}: the id `{task.id}` is already used in line {first}")
        tasks.append(task)
    if problems:
        rest = len(problems) - MAX_PROBLEMS_SHOWN
        more = [f"and {rest} more"] if rest > 0 else []
        raise TaskFileError("\n".join([*problems[:MAX_PROBLEMS_SHOWN], *more]))
    if not tasks:
        raise TaskFileError(f"{name}: there are no tasks; a task is one JSON object a line")
    return TaskFile(tuple(tasks), tuple(_describe_unknown(name, key, lines) for key, lines in unknown.items()))


def _describe_unknown(name: str, key: str, lines: list[int]) -> str:
    hint = did_you_mean(key, (*TASK_KEYS, *LIMIT_KEYS))
    more = f" and {plural(len(lines) - 1, 'more line')}" if len(lines) > 1 else ""
    return f"{name}:{lines[0]}{more}: the key `{key}` is unknown and ignored{hint}"


class _TaskReader:
    """Reads one line, and collects what is wrong with it."""

    def __init__(self, folder: str, defaults: TaskDefaults) -> None:
        self._folder = folder
        self._defaults = defaults
        self.problems: list[str] = []
        self.unknown: list[str] = []

    def read(self, line: bytes) -> Task | None:
        try:
            row = msgspec.json.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            self.problems.append(f"not JSON: {error}")
            return None
        if not isinstance(row, dict):
            self.problems.append('a task is a JSON object, such as {"id": …, "prompt": …, "root": …}')
            return None
        if b"\\u0000" in line:
            self.problems.append("a text holds a NUL character")
        fields = self._fields(self._from_swe_bench(row) if "instance_id" in row else row)
        self.problems += [f"`{key}` is missing" for key in ("id", "prompt") if not getattr(fields, key).strip()]
        self.problems += [f"`env`: `{name}` cannot be a variable" for name in fields.env if not name or "=" in name]
        self.problems += [f"`settings`: {problem}" for problem in check_settings(fields.settings)]
        defaults = self._defaults
        task = Task(
            id=fields.id,
            prompt=fields.prompt,
            source=self._source(fields),
            model=self._model(fields.model),
            mode=self._mode(fields.mode),
            tools=self._tools(fields.tools),
            settings={**defaults.settings, **fields.settings},
            limits=fields.limits.over(defaults.limits),
            setup=fields.setup or defaults.setup,
            check=fields.check or defaults.check,
            env=fields.env,
            tags=(fields.tags,) if isinstance(fields.tags, str) else fields.tags,
        )
        return None if self.problems else task

    def _fields(self, row: Mapping[str, Any]) -> TaskRow:
        """The fields that are of the right types; the others are problems."""
        self.unknown += [key for key in row if key not in TASK_KEYS]
        row = {key: value for key, value in row.items() if key in TASK_KEYS and value is not None}
        if isinstance(limits := row.get("limits"), dict):
            self.unknown += [f"limits.{key}" for key in limits if key not in LIMIT_KEYS]
            row["limits"] = {key: self._limit(key, limits[key]) for key in LIMIT_KEYS if key in limits}
        try:
            return _row_parameters().accept(row)  # type: ignore[no-any-return]
        except InvalidInput as error:
            self.problems += map(str, error.problems)
            wrong = {re.split(r"[.\[]", problem.path)[0] for problem in error.problems}
            rest = {key: value for key, value in row.items() if key not in wrong}
            return self._fields(rest) if len(rest) < len(row) else TaskRow()

    def _limit(self, key: str, value: Any) -> Any:
        if not (key.endswith("seconds") and isinstance(value, str)):
            return value
        try:
            return parse_duration(value)
        except ValueError as error:
            self.problems.append(f"`limits.{key}`: {error}")
            return None

    def _from_swe_bench(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """A row of SWE-bench as a task. What it says about the solution never reaches the model."""
        named = {"id": "instance_id", "prompt": "problem_statement", "ref": "base_commit"}
        task = {key: row.get(column) for key, column in named.items()}
        task |= {key: value for key, value in row.items() if key not in SWE_BENCH_KEYS}
        repo = row.get("repo")
        if isinstance(repo, str) and repo and not any(key in task for key in SOURCE_KEYS):
            task["git"] = find_clone(self._defaults.repos, repo) or (GITHUB + repo)
        return task

    def _source(self, fields: TaskRow) -> TaskSource:
        given: list[SourceKind] = [key for key in SOURCE_KEYS if getattr(fields, key)]
        if len(given) > 1:
            self.problems.append(f"`{'` and `'.join(given)}` exclude one another: a task has one source")
        if not given:
            if self._defaults.root:
                return TaskSource("root", os.path.realpath(self._defaults.root))
            self.problems.append("there is no source: give `root`, `git` with `ref`, or `archive` (or --root for all)")
            return TaskSource("root", "")
        kind = given[0]
        location: str = getattr(fields, kind)
        if kind == "git" and not fields.ref:
            self.problems.append("`git` needs `ref`, the commit to start from")
        elif kind != "git" and fields.ref:
            self.problems.append(f"`ref` goes with `git`, not with `{kind}`")
        if kind != "git" or not is_remote(location):
            location = self._existing(location, kind, folder=kind != "archive")
        return TaskSource(kind, location, fields.ref)

    def _existing(self, path: str, key: str, *, folder: bool) -> str:
        absolute = os.path.realpath(os.path.join(self._folder, os.path.expanduser(path)))
        if not (os.path.isdir(absolute) if folder else os.path.isfile(absolute)):
            self.problems.append(f"`{key}`: there is no {'folder' if folder else 'file'} {absolute}")
        return absolute

    def _model(self, model: str) -> str:
        if not model.startswith("script:"):
            return model or self._defaults.model
        return f"script:{self._existing(model.removeprefix('script:'), 'model', folder=False)}"

    def _mode(self, mode: str) -> str:
        from wieldy.policy.permissions.modes import find_mode

        try:
            return find_mode(mode).name if mode else self._defaults.mode
        except ValueError as error:
            self.problems.append(f"`mode`: {error}")
            return ""

    def _tools(self, names: tuple[str, ...] | None) -> tuple[str, ...] | None:
        from wieldy.tools import MODULES

        for name in names or ():
            if name not in MODULES and not name.startswith("mcp__"):
                self.problems.append(f"`tools`: there is no tool `{name}`{did_you_mean(name, MODULES)}")
        return names


@cache
def _row_parameters() -> Parameters:
    return Parameters.from_type(TaskRow)


def check_settings(settings: Mapping[str, Any]) -> tuple[str, ...]:
    """What is wrong with settings."""
    if not settings:
        return ()
    from wieldy.policy.settings.load import load_settings

    loaded = load_settings(os.sep, explicit=settings, files=False)
    return tuple(str(problem).removeprefix("settings: ") for problem in (*loaded.errors, *loaded.warnings))


def is_remote(location: str) -> bool:
    """Whether a repository is named by a URL or `host:path`, not by a folder."""
    head, colon, _ = location.partition(":")
    return "://" in location or (bool(colon) and "/" not in head)


def find_clone(folder: str, repo: str) -> str:
    """The clone of `owner/name` in a folder of clones; empty if there is none."""
    if not folder:
        return ""
    name = repo.rpartition("/")[2]
    for candidate in (repo, repo.replace("/", "__"), repo.replace("/", "-"), name):
        for suffix in ("", ".git"):
            path = os.path.join(folder, candidate + suffix)
            if os.path.isdir(path):
                return os.path.realpath(path)
    return ""


def shard(tasks: Iterable[Task], index: int, count: int) -> Iterator[Task]:
    """Every `count`-th task, from the `index`-th on, counted from 1."""
    for position, task in enumerate(tasks):
        if position % count == index - 1:
            yield task


def digest(value: Any) -> str:
    """A short hash of a JSON value, whatever the order of its keys."""
    return blake2b(msgspec.json.encode(value, order="sorted"), digest_size=12).hexdigest()
