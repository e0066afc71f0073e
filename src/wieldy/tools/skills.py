"""Skills: folders with a `SKILL.md`, found, parsed and rendered; and the search for Markdown files that agents share."""

from __future__ import annotations

import os
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, Protocol, TypeAlias, TypeVar

from msgspec import Struct

from wieldy.core.events import Notice
from wieldy.core.realpath import open_resolved
from wieldy.core.state_dirs import skill_homes
from wieldy.core.text import format_size, truncate
from wieldy.core.threads import in_thread
from wieldy.core.workspace import Workspace

if TYPE_CHECKING:
    from yaml import Event

MAX_DEPTH = 20
MAX_NAMES_CHARS = 4_000
_FENCE = "---"
# `description: Use this: always` is not YAML, but what many authors write.
_UNQUOTED = re.compile(r"^([A-Za-z_][\w.-]*:[ \t]+)([^\s\"'\[{|>&*!%@`#][^\n]*)$", re.MULTILINE)
_LISTED_NAME = re.compile(r"[^\s,(]+(?:\([^)]*\))?")


class FrontMatterError(ValueError):
    """The front matter cannot be used; the message has the line."""

    def __init__(self, line: int, problem: str) -> None:
        super().__init__(f"line {line}: {problem}")


class MarkdownFile(Struct, frozen=True):
    """A Markdown file: the fields of its front matter and the text below."""

    fields: dict[str, Any]
    body: str


def parse_markdown(text: str) -> MarkdownFile:
    """Split a file into front matter and body; one without front matter is all body. Raises `FrontMatterError`."""
    lines = text.removeprefix("\ufeff").replace("\r\n", "\n").split("\n")
    if lines[0].rstrip() != _FENCE:
        return MarkdownFile({}, "\n".join(lines))
    end = next((number for number, line in enumerate(lines) if number and line.rstrip() in (_FENCE, "...")), None)
    if end is None:
        raise FrontMatterError(1, "the front matter is never closed: a line `---` is missing")
    head = "\n".join(lines[1:end])
    try:
        fields = _parse_fields(head)
    except FrontMatterError:
        quoted = _UNQUOTED.sub(_quote_colons, head)
        if quoted == head:
            raise
        fields = _parse_fields(quoted)
    return MarkdownFile(fields, "\n".join(lines[end + 1 :]).strip("\n"))


def _quote_colons(line: re.Match[str]) -> str:
    value, comment, _ = line[2].partition(" #")
    if ": " not in value and not value.rstrip().endswith(":"):
        return line[0]
    return line[1] + "'" + value.rstrip().replace("'", "''") + "'" + (" #" if comment else "")


def parse_names(value: Any, field: str) -> tuple[str, ...]:
    """Read a list of names, or a text with names separated by commas or blanks outside parentheses."""
    if isinstance(value, str):
        return tuple(_LISTED_NAME.findall(value[:MAX_NAMES_CHARS]))
    if value is None or (isinstance(value, list) and all(isinstance(item, str) for item in value)):
        return tuple(item.strip() for item in value or ())
    raise FrontMatterError(2, f"`{field}` must be a list of names")


def _parse_fields(head: str) -> dict[str, Any]:
    import yaml

    # Events instead of `yaml.load`: they have lines, show duplicate keys, and cannot nest or expand without end.
    events = (
        event
        for event in yaml.parse(head, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        if not isinstance(event, (yaml.StreamStartEvent, yaml.DocumentStartEvent))
    )
    try:
        first = next(events)
        if isinstance(first, yaml.StreamEndEvent):
            return {}
        if not isinstance(first, yaml.MappingStartEvent):
            raise _error(first, "`name: value` was expected")
        fields: dict[str, Any] = _build(first, events, 0)
        for event in events:
            if not isinstance(event, (yaml.DocumentEndEvent, yaml.StreamEndEvent)):
                raise _error(event, "the front matter is one document")
        return fields
    except yaml.MarkedYAMLError as error:
        # What is never closed is reported where it begins.
        is_unclosed = error.context is not None and ("quoted" in error.context or "flow" in error.context)
        mark = error.context_mark if is_unclosed else error.problem_mark
        problem = " ".join(filter(None, (error.problem, error.context)))
        raise FrontMatterError(mark.line + 2 if mark else 2, problem) from None
    except yaml.YAMLError as error:
        raise FrontMatterError(2, str(error).splitlines()[0]) from None


def _build(event: Event, events: Iterator[Event], depth: int) -> Any:
    """Build the value that begins with this event."""
    import yaml

    if depth > MAX_DEPTH:
        raise _error(event, f"nested more than {MAX_DEPTH} deep")
    if isinstance(event, yaml.ScalarEvent):
        return event.value == "true" if not event.style and event.value in ("true", "false") else event.value
    if isinstance(event, yaml.SequenceStartEvent):
        items = []
        while not isinstance(item := next(events), yaml.SequenceEndEvent):
            items.append(_build(item, events, depth + 1))
        return items
    if isinstance(event, yaml.MappingStartEvent):
        members: dict[str, Any] = {}
        while not isinstance(key := next(events), yaml.MappingEndEvent):
            if not isinstance(key, yaml.ScalarEvent):
                raise _error(key, "a name must be a text")
            if key.value in members:
                raise _error(key, f"`{key.value}` is there twice")
            members[key.value] = _build(next(events), events, depth + 1)
        return members
    raise _error(event, "aliases are not supported: write the value again")


def _error(event: Event, problem: str) -> FrontMatterError:
    return FrontMatterError(event.start_mark.line + 2 if event.start_mark else 2, problem)


Origin: TypeAlias = Literal["user", "project"]

MAX_BYTES = 256 << 10
MAX_FILES = 500


class Named(Protocol):
    """A definition read from a file."""

    @property
    def name(self) -> str: ...

    @property
    def description(self) -> str: ...

    @property
    def path(self) -> str: ...


T = TypeVar("T", bound=Named)


class MarkdownCatalog(ABC, Generic[T]):
    """The definitions of one workspace, read from the user's folders and the project's on request.

    A file of the project must lie in the project or in the user's folders: a symlink elsewhere is left out.
    """

    what: ClassVar[str]
    project_folders: ClassVar[tuple[str, ...]]
    # Which of two definitions with one name counts; the other is reported where the user's does.
    project_wins: ClassVar[bool] = False

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._reported: set[str] = set()
        self.definitions: dict[str, T] = self._built_in()
        self.problems: tuple[str, ...] = ()

    @property
    @abstractmethod
    def user_folders(self) -> tuple[Path, ...]: ...

    @abstractmethod
    def file_in(self, folder: Path, name: str) -> str | None:
        """Return the path of the definition that an entry of a folder stands for, if it may be one."""

    @abstractmethod
    def parse(self, text: str, path: str, origin: Origin) -> T:
        """Parse a file. Raises `FrontMatterError` for one that cannot be used."""

    def _built_in(self) -> dict[str, T]:
        return {}

    @property
    def folders(self) -> tuple[Path, ...]:
        own = tuple(Path(self._workspace.root, folder) for folder in self.project_folders)
        return (*own, *self.user_folders) if self.project_wins else (*self.user_folders, *own)

    async def refresh_in_thread(self) -> None:
        """Read the files again in a thread; where there are no folders, do nothing."""
        if any(map(os.path.isdir, self.folders)):
            await in_thread(self.refresh)
        else:
            self.definitions, self.problems = self._built_in(), ()

    def refresh(self) -> dict[str, T]:
        """Read the files again. Blocks on the disk."""
        definitions: dict[str, T] = {}
        problems: list[str] = []
        for path, origin in self._files():
            try:
                definition = self.parse(_read(path), path, origin)
            except FrontMatterError as error:
                problems.append(f"{path}: {error}")
            except (OSError, ValueError) as error:
                problems.append(f"{path}: {getattr(error, 'strerror', None) or error}")
            else:
                first = definitions.setdefault(definition.name, definition)
                if first is not definition and not self.project_wins:
                    problems.append(
                        f"{definition.path}: there is another {self.what} `{definition.name}`, which is used: {first.path}"
                    )
            if len(definitions) + len(problems) == MAX_FILES:
                problems.append(f"there are more than {MAX_FILES} {self.what}s; the rest are left out")
                break
        self.definitions = {**self._built_in(), **dict(sorted(definitions.items()))}
        self.problems = tuple(problems)
        return self.definitions

    def report_problems(self) -> None:
        """Show the person what is wrong, each problem once."""
        for problem in self.problems:
            if problem not in self._reported:
                self._reported.add(problem)
                article = "An" if self.what[0] in "aeiou" else "A"
                self._workspace.emit(Notice(text=f"{article} {self.what} is left out: {problem}"))

    def _files(self) -> Iterator[tuple[str, Origin]]:
        """Yield the real path of every file, the strongest first."""
        user_folders = self.user_folders
        trusted = (self._workspace.root, *map(os.path.realpath, user_folders))
        for folder in self.folders:
            origin: Origin = "user" if folder in user_folders else "project"
            for path in self._list(folder):
                if origin == "user" or any(path.startswith(place + os.sep) for place in trusted):
                    yield path, origin

    def _list(self, folder: Path) -> Iterator[str]:
        try:
            names = sorted(os.listdir(folder))
        except OSError:
            return
        for name in names:
            path = None if name.startswith(".") else self.file_in(folder, name)
            if path is not None and os.path.isfile(path):
                yield os.path.realpath(path)


def format_listing(entries: Iterable[Named], *, max_chars: int, max_entry_chars: int) -> str:
    """List names and descriptions, a line each, within `max_chars`.

    Long lists get descriptions cut evenly, then none, and then only the number of the rest.
    """
    listed = list(entries)
    left = max_chars - len("… and 100000 more")
    room = (left - sum(len(entry.name) + 5 for entry in listed)) // len(listed) if listed else 0
    lines: list[str] = []
    for count, entry in enumerate(listed):
        description = f": {truncate(entry.description, min(room, max_entry_chars))}" if room >= 20 else ""
        line = f"- {entry.name}{description}"
        left -= len(line) + 1
        if left < 0:
            lines.append(f"… and {len(listed) - count} more")
            break
        lines.append(line)
    return "\n".join(lines)


def _read(path: str) -> str:
    descriptor = open_resolved(path, os.O_RDONLY | os.O_NONBLOCK)
    with open(descriptor, "rb") as file:
        data = file.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise FrontMatterError(1, f"the file is larger than {format_size(MAX_BYTES)}")
    return data.decode("utf-8")


FILE_NAME = "SKILL.md"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,63}")
MAX_ENTRY_CHARS = 1536
MAX_LISTING_CHARS = 8_000
MAX_LISTED_FILES = 30
ARGUMENTS_PLACEHOLDER = "$ARGUMENTS"
FOLDER_PLACEHOLDERS = ("${WIELDY_SKILL_DIR}", "${CLAUDE_SKILL_DIR}")


class Skill(Struct, frozen=True):
    """A skill that can be loaded. `path` is its SKILL.md; `hidden` ones only a person may call for."""

    name: str
    description: str
    path: str
    origin: Origin
    body: str
    hidden: bool = False
    tools: tuple[str, ...] = ()

    @property
    def folder(self) -> str:
        return os.path.dirname(self.path)


class Skills(MarkdownCatalog[Skill]):
    """The skills of one workspace. The user's win, so that a project cannot replace their instructions."""

    what = "skill"
    project_folders = (".wieldy/skills", ".claude/skills", ".agents/skills")

    @property
    def user_folders(self) -> tuple[Path, ...]:
        return skill_homes(self._workspace.env)

    def file_in(self, folder: Path, name: str) -> str:
        return os.path.join(folder, name, FILE_NAME)

    def parse(self, text: str, path: str, origin: Origin) -> Skill:
        return parse_skill(text, path, origin)

    def listing(self) -> str:
        """List the skills a model may load, a line each; empty where there are none."""
        visible = [skill for skill in self.definitions.values() if not skill.hidden]
        return format_listing(visible, max_chars=MAX_LISTING_CHARS, max_entry_chars=MAX_ENTRY_CHARS)

    def prompt_section(self) -> str:
        """The section of the system prompt about skills; empty where there are none."""
        lines = self.listing()
        heading = "# Skills\nWhen a task matches one of these, load it with the tool Skill first."
        return f"{heading}\n{lines}" if lines else ""


def parse_skill(text: str, path: str, origin: Origin) -> Skill:
    """Parse a SKILL.md. Raises `FrontMatterError` for one that cannot be used."""
    file = parse_markdown(text)
    fields = file.fields
    name = str(fields.get("name") or os.path.basename(os.path.dirname(path)))
    if not NAME.fullmatch(name):
        raise FrontMatterError(2, f"`{name}` is no name: use up to 64 letters, digits and dashes")
    texts = [fields[key] for key in ("description", "when_to_use") if isinstance(fields.get(key), str)]
    description = " ".join(" ".join(texts).split()) or _first_paragraph(file.body)
    if not description:
        raise FrontMatterError(2, "there is neither a description nor any text")
    return Skill(
        name,
        description,
        path,
        origin,
        file.body,
        hidden=fields.get("disable-model-invocation") is True,
        tools=parse_names(fields.get("allowed-tools"), "allowed-tools"),
    )


def _first_paragraph(body: str) -> str:
    for paragraph in re.split(r"\n\s*\n", body):
        if (text := " ".join(paragraph.split())) and not text.startswith("#"):
            return text
    return ""


def render_skill(skill: Skill, arguments: str) -> str:
    """Render the instructions of a skill, with its folder and arguments filled in."""
    body = skill.body
    for placeholder in FOLDER_PLACEHOLDERS:
        body = body.replace(placeholder, skill.folder)
    if ARGUMENTS_PLACEHOLDER in body:
        body = body.replace(ARGUMENTS_PLACEHOLDER, arguments)
    elif arguments:
        body = f"{body}\n\nArguments: {arguments}"
    files = _list_other_files(skill)
    listed = f"\nBeside it: {', '.join(files)}" if files else ""
    return f"Skill `{skill.name}`. Its folder is {skill.folder}; paths below are relative to it.{listed}\n\n{body}"


def _list_other_files(skill: Skill) -> list[str]:
    try:
        with os.scandir(skill.folder) as entries:
            names = sorted(entry.name + "/" * entry.is_dir() for entry in entries if not entry.name.startswith("."))
    except OSError:
        return []
    names = [name for name in names if name != os.path.basename(skill.path)]
    return names[:MAX_LISTED_FILES] + [f"… {len(names) - MAX_LISTED_FILES} more"] * (len(names) > MAX_LISTED_FILES)
