"""Tasks: one JSON object a line. Everything wrong in a file is found before anything starts, with the number of its line."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import Struct

from wieldy.core.errors import WieldyError
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

SOURCE_KEYS = ("root", "git", "archive")
TASK_KEYS = (
    *("id", "prompt", *SOURCE_KEYS, "ref", "model", "mode", "tools", "settings", "limits", "setup", "check"),
    *("env", "tags"),
)
LIMIT_KEYS = ("max_turns", "max_cost", "seconds", "idle_seconds")
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

    max_turns: int | None = None
    max_cost: float | None = None
    seconds: float | None = None
    idle_seconds: float | None = None

    def over(self, defaults: TaskLimits) -> TaskLimits:
        """These limits, and the defaults where there is none."""
        values = {key: getattr(self, key) for key in LIMIT_KEYS}
        return TaskLimits(**{k: getattr(defaults, k) if v is None else v for k, v in values.items()})


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
        if "instance_id" in row:
            row = self._from_swe_bench(row)
        self.unknown += [key for key in row if key not in TASK_KEYS]
        defaults = self._defaults
        task = Task(
            id=self._text(row, "id", required=True),
            prompt=self._text(row, "prompt", required=True),
            source=self._source(row),
            model=self._model(row),
            mode=self._mode(row),
            tools=self._tools(row),
            settings={**defaults.settings, **self._settings(row)},
            limits=self._limits(row).over(defaults.limits),
            setup=self._text(row, "setup") or defaults.setup,
            check=self._text(row, "check") or defaults.check,
            env=self._env(row),
            tags=self._tags(row),
        )
        return None if self.problems else task

    def _from_swe_bench(self, row: dict[str, Any]) -> dict[str, Any]:
        """A row of SWE-bench as a task. What it says about the solution never reaches the model."""
        task = {key: value for key, value in row.items() if key not in SWE_BENCH_KEYS}
        repo = self._text(row, "repo", required=True)
        named = {"id": "instance_id", "prompt": "problem_statement", "ref": "base_commit"}
        for key, column in named.items():
            if key not in task:
                task[key] = self._text(row, column, required=True)
        if repo and not any(key in task for key in SOURCE_KEYS):
            task["git"] = find_clone(self._defaults.repos, repo) or (GITHUB + repo)
        return task

    def _source(self, row: Mapping[str, Any]) -> TaskSource:
        given = [key for key in SOURCE_KEYS if row.get(key) is not None]
        if len(given) > 1:
            self.problems.append(f"`{'` and `'.join(given)}` exclude one another: a task has one source")
        if not given:
            if self._defaults.root:
                return TaskSource("root", os.path.realpath(self._defaults.root))
            self.problems.append("there is no source: give `root`, `git` with `ref`, or `archive` (or --root for all)")
            return TaskSource("root", "")
        kind = given[0]
        location, ref = self._text(row, kind, required=True), self._text(row, "ref")
        if kind == "git":
            if not is_remote(location):
                location = self._existing(location, kind, folder=True)
            if not ref:
                self.problems.append("`git` needs `ref`, the commit to start from")
            return TaskSource("git", location, ref)
        if ref:
            self.problems.append(f"`ref` goes with `git`, not with `{kind}`")
        return TaskSource(
            "root" if kind == "root" else "archive", self._existing(location, kind, folder=kind == "root")
        )

    def _existing(self, path: str, key: str, *, folder: bool) -> str:
        if not path:
            return path
        absolute = os.path.realpath(os.path.join(self._folder, os.path.expanduser(path)))
        if not (os.path.isdir(absolute) if folder else os.path.isfile(absolute)):
            self.problems.append(f"`{key}`: there is no {'folder' if folder else 'file'} {absolute}")
        return absolute

    def _model(self, row: Mapping[str, Any]) -> str:
        model = self._text(row, "model")
        if not model:
            return self._defaults.model
        if not model.startswith("script:"):
            return model
        return f"script:{self._existing(model.removeprefix('script:'), 'model', folder=False)}"

    def _mode(self, row: Mapping[str, Any]) -> str:
        from wieldy.policy.permissions.modes import find_mode

        mode = self._text(row, "mode")
        if not mode:
            return self._defaults.mode
        try:
            return find_mode(mode).name
        except ValueError as error:
            self.problems.append(f"`mode`: {error}")
            return ""

    def _tools(self, row: Mapping[str, Any]) -> tuple[str, ...] | None:
        if row.get("tools") is None:
            return None
        from wieldy.tools import MODULES

        names = self._texts(row, "tools")
        for name in names:
            if name not in MODULES and not name.startswith("mcp__"):
                self.problems.append(f"`tools`: there is no tool `{name}`{did_you_mean(name, MODULES)}")
        return names

    def _settings(self, row: Mapping[str, Any]) -> dict[str, Any]:
        settings = self._object(row, "settings")
        self.problems += [f"`settings`: {problem}" for problem in check_settings(settings)]
        return settings

    def _limits(self, row: Mapping[str, Any]) -> TaskLimits:
        values: dict[str, Any] = {}
        for key, value in self._object(row, "limits").items():
            if key not in LIMIT_KEYS:
                self.unknown.append(f"limits.{key}")
            elif value is not None:
                values[key] = self._limit(key, value)
        return TaskLimits(**values)

    def _limit(self, key: str, value: Any) -> float | None:
        if key.endswith("seconds") and isinstance(value, str):
            try:
                return parse_duration(value)
            except ValueError as error:
                self.problems.append(f"`limits.{key}`: {error}")
                return None
        is_number = isinstance(value, int if key == "max_turns" else int | float) and not isinstance(value, bool)
        if not is_number or not value > 0:
            kind = "a whole number" if key == "max_turns" else "a number"
            self.problems.append(f"`limits.{key}` must be {kind} above 0, not {json.dumps(value)}")
            return None
        number: float = value
        return number

    def _env(self, row: Mapping[str, Any]) -> dict[str, str]:
        env = self._object(row, "env")
        for name, value in env.items():
            if not isinstance(value, str) or "\0" in value or not name or "=" in name or "\0" in name:
                self.problems.append(f"`env`: `{name}` must be a variable with a text")
        return env

    def _tags(self, row: Mapping[str, Any]) -> tuple[str, ...]:
        tags = row.get("tags")
        return (tags,) if isinstance(tags, str) else self._texts(row, "tags")

    def _object(self, row: Mapping[str, Any], key: str) -> dict[str, Any]:
        value = row.get(key)
        if value is None:
            return {}
        if not isinstance(value, dict):
            self.problems.append(f"`{key}` must be an object, not {json.dumps(value)[:60]}")
            return {}
        return value

    def _texts(self, row: Mapping[str, Any], key: str) -> tuple[str, ...]:
        value = row.get(key)
        if value is None:
            return ()
        if not isinstance(value, list) or not all(isinstance(item, str) and item for item in value):
            self.problems.append(f"`{key}` must be a list of texts, not {json.dumps(value)[:60]}")
            return ()
        return tuple(value)

    def _text(self, row: Mapping[str, Any], key: str, *, required: bool = False) -> str:
        value = row.get(key)
        if isinstance(value, str) and "\0" not in value and (value.strip() or not required):
            return value
        if value is None and not required:
            return ""
        problem = "is missing" if value is None else "is empty" if value == "" else "must be a text"
        self.problems.append(f"`{key}` {problem}")
        return ""


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
