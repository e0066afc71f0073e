"""One tool call for a person: its subject while it is being written, its progress, its result in short; and calls by hand."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeAlias

from msgspec import Struct, field

from wieldy.core.decision import Answer
from wieldy.core.errors import WieldyError
from wieldy.core.logs import log
from wieldy.core.outcome import Done, Image, Interrupted, Refused, ToolResult
from wieldy.core.text import did_you_mean, format_size, plural, truncate, without_reminders
from wieldy.core.tool import Tool
from wieldy.core.tool_decorator import FunctionTool
from wieldy.faces.terminal.text import make_printable, to_line

CallState: TypeAlias = Literal["writing", "waiting", "asking", "running", "done", "failed", "refused", "interrupted"]
FindTool: TypeAlias = Callable[[str], Tool | None]

MAX_RAW_CHARS = 8_000
HEAD_LINES, TAIL_LINES = 2, 4  # of a result
MAX_OWN_LINES = 400  # of a command of the person's own
# The field of an input that says what a call is about, by preference.
SUBJECTS = (
    "command",
    "file_path",
    "notebook_path",
    "pattern",
    "url",
    "query",
    "description",
    "prompt",
    "path",
    "name",
    "skill",
    "element",
    "text",
)
PATH_FIELDS = frozenset({"file_path", "notebook_path", "path"})


class Lane(Struct):
    """A subagent of a call: what it does at the moment."""

    agent_type: str
    activity: str = ""
    calls: int = 0
    refused: int = 0
    ended: bool = False


class Call(Struct):
    """A call as far as its events have come."""

    id: str
    name: str
    state: CallState = "writing"
    raw: str = ""
    input: Mapping[str, Any] | None = None
    progress: str = ""
    started: float = 0.0
    seconds: float = 0.0
    result: ToolResult | None = None
    answer: Answer | None = None
    by_person: bool = False
    lanes: dict[str, Lane] = field(default_factory=dict)


class Excerpt(Struct, frozen=True):
    """The first and last lines of a text, printable, and how many are between them."""

    first: tuple[str, ...] = ()
    hidden: int = 0
    last: tuple[str, ...] = ()


class CallSummary(Struct, frozen=True):
    """A finished call: its line, what it says below it, and the patch it made."""

    name: str
    subject: str
    state: CallState
    seconds: float = 0.0
    note: str = ""
    output: Excerpt = field(default_factory=Excerpt)
    hunks: tuple[Mapping[str, Any], ...] = ()
    lanes: tuple[str, ...] = ()
    by_person: bool = False


_STRING_FIELD = re.compile(r'"([A-Za-z_]\w*)"\s*:\s*"((?:[^"\\]|\\.)*)')


def partial_input(raw: str) -> dict[str, str]:
    """Read the texts of a JSON object that is still being written; the last one may be incomplete."""
    fields: dict[str, str] = {}
    for match in _STRING_FIELD.finditer(raw[:MAX_RAW_CHARS]):
        text = match[2]
        if text.endswith("\\") and not text.endswith("\\\\"):
            text = text[:-1]
        try:
            fields.setdefault(match[1], json.loads(f'"{text}"', strict=False))
        except ValueError:
            continue  # cut within an escape sequence
    return fields


class CallFormatter:
    """Names calls for a person. Paths are relative to `root`; `find` returns the tool of a name."""

    def __init__(self, find: FindTool, root: str | os.PathLike[str]) -> None:
        self._find = find
        self._root = os.path.abspath(root)

    def label(self, name: str) -> str:
        """The name of a tool; for that of an MCP server, `server: tool`."""
        if name.startswith("mcp__"):
            server, _, tool = name.removeprefix("mcp__").partition("__")
            return to_line(f"{server}: {tool}") if tool else to_line(name)
        return to_line(name, 80)

    def subject(self, call: Call) -> str:
        """What a call is about, in one line."""
        fields = call.input if call.input is not None else partial_input(call.raw)
        return self.describe(call.name, fields)

    def describe(self, name: str, fields: Mapping[str, Any]) -> str:
        tool = self._find(name)
        if name == "Agent":
            return _agent_subject(fields)
        if name == "TodoWrite":
            return ""
        if name == "AskUser":
            return plural(len(_mappings(fields.get("questions"))), "question")
        if tool is not None and fields and _has_own_show_use(tool) and name not in ("Bash", "ExitPlan", "Architect"):
            try:
                return to_line(tool.show_use(fields))
            except Exception as error:  # while the input is being written, fields are missing
                log.debug("show_use of %s failed: %s", name, error)
        return self._main_field(name, fields)

    def _main_field(self, name: str, fields: Mapping[str, Any]) -> str:
        main = next((key for key in SUBJECTS if isinstance(fields.get(key), str) and fields[key].strip()), None)
        if main is None:
            parts = [f"{key}={_short(value)}" for key, value in fields.items()]
            return to_line(" ".join(parts), 300)
        value = fields[main]
        if main in PATH_FIELDS:
            return to_line(self.relative(value)) + _line_range(fields)
        if main == "pattern":
            places = [self.relative(fields["path"])] if isinstance(fields.get("path"), str) else []
            places += [fields["glob"]] if isinstance(fields.get("glob"), str) else []
            return to_line(f"{value} in {' '.join(places)}" if places else value)
        return to_line(" ".join(value[:4_000].split()) if main != "command" else value.strip())

    def relative(self, path: str) -> str:
        """A path relative to the folder of the session, where it is below it."""
        if path == self._root:
            return "."
        prefix = self._root.rstrip("/") + "/"
        return path[len(prefix) :] if path.startswith(prefix) else path

    def shorten_paths(self, text: str) -> str:
        """Make the paths in a text relative to the folder of the session."""
        return text.replace(self._root.rstrip("/") + "/", "")

    def summarize(self, call: Call) -> CallSummary:
        note, output, hunks = self._result(call)
        lanes = tuple(
            f"{lane.agent_type}: {plural(lane.calls, 'call')}" + (f", {lane.refused} refused" if lane.refused else "")
            for lane in call.lanes.values()
        )
        return CallSummary(
            name=self.label(call.name),
            subject=self.subject(call),
            state=call.state,
            seconds=call.seconds,
            note=note,
            output=output,
            hunks=hunks,
            lanes=lanes,
            by_person=call.by_person,
        )

    def _result(self, call: Call) -> tuple[str, Excerpt, tuple[Mapping[str, Any], ...]]:
        """The note, the output and the patch of a call."""
        result = call.result
        if result is None:
            return "", Excerpt(), ()
        outcome = result.outcome
        if isinstance(outcome, Refused):
            return "", Excerpt(self.refusal_lines(call, outcome)), ()
        if isinstance(outcome, Interrupted):
            return "interrupted", excerpt(outcome.partial), ()
        if result.is_error:
            note = _exit_note(result)
            text = _output_text(result) if note else result.person_text
            return note, excerpt(self.shorten_paths(text), at_length=call.by_person), ()
        if hunks := _hunks(result):
            return _count_changes(hunks), Excerpt(), hunks
        tool = self._find(call.name)
        if tool is not None and tool.counted and not call.by_person:
            return _count_note(tool.counted, result), Excerpt(), ()
        if call.name == "Bash":
            output = excerpt(_output_text(result), at_length=call.by_person)
            return self._changed_files(result) or ("" if output.first else "no output"), output, ()
        if call.name == "AskUser" and isinstance(result.data, Mapping):
            answers = result.data.get("answers") or {}
            lines = [to_line(f"{question} → {answer or 'no answer'}") for question, answer in answers.items()]
            return "", Excerpt(tuple(lines)), ()
        if call.name == "Agent":
            report, _, last = result.person_text.rpartition("\n")
            return "", excerpt(report if last.startswith("[") else result.person_text), ()
        text = _shown_result(tool, result) if tool is not None and not call.by_person else result.person_text
        return _image_note(result), excerpt(self.shorten_paths(text), at_length=call.by_person), ()

    def _changed_files(self, result: ToolResult) -> str:
        changed = result.data.get("changedFiles") if isinstance(result.data, Mapping) else None
        if not changed:
            return ""
        names = ", ".join(self.relative(str(path)) for path in changed[:3])
        return to_line(f"changed {names}" + (f" and {len(changed) - 3} more" if len(changed) > 3 else ""), 200)

    def refusal_lines(self, call: Call, outcome: Refused) -> tuple[str, ...]:
        if call.answer is not None and not call.answer.allowed:
            return (f"you said no: {to_line(call.answer.words)}" if call.answer.words else "you said no",)
        tool, why = self._find(call.name), call.result.person_text if call.result else outcome.person
        if tool is not None and call.input is not None and _has_own_show_rejection(tool):
            try:
                why = tool.show_rejection(call.input, why)
            except Exception:
                log.exception("show_rejection of %s failed", call.name)
        return excerpt(self.shorten_paths(why), at_length=True).first


def _mappings(value: object) -> list[Mapping[str, Any]]:
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list | tuple) else []


def _shown_result(tool: Tool, result: ToolResult) -> str:
    try:
        return tool.show_result(result)
    except Exception:
        log.exception("show_result of %s failed", tool.name)
        return Tool.show_result(tool, result)


def _has_own_show_use(tool: Tool) -> bool:
    return type(tool.unwrapped).show_use not in (Tool.show_use, FunctionTool.show_use)


def _has_own_show_rejection(tool: Tool) -> bool:
    return type(tool.unwrapped).show_rejection is not Tool.show_rejection


def _agent_subject(fields: Mapping[str, Any]) -> str:
    if fields.get("agent_id"):
        action = "stop" if fields.get("stop") else "continue" if fields.get("prompt") else "wait"
        return to_line(f"{fields['agent_id']}: {action}")
    task = fields.get("description") or " ".join(str(fields.get("prompt", "")).split())
    agent_type = fields.get("agent_type")
    return to_line(f"{agent_type}: {task}" if agent_type else str(task))


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return truncate(text, 60)


def _line_range(fields: Mapping[str, Any]) -> str:
    offset, limit = fields.get("offset"), fields.get("limit")
    if not isinstance(offset, int) and not isinstance(limit, int):
        return ""
    start = offset if isinstance(offset, int) else 1
    return f":{start}-{start + limit - 1}" if isinstance(limit, int) else f":{start}-"


def excerpt(text: str, *, at_length: bool = False) -> Excerpt:
    """The beginning and the end of a text. Cheap for a text of any size."""
    head, tail = (MAX_OWN_LINES, 0) if at_length else (HEAD_LINES, TAIL_LINES)
    text = text.strip("\n")
    if not text.strip():
        return Excerpt()
    first = text.split("\n", head + tail + 1)
    if len(first) <= head + tail + 1:
        return Excerpt(tuple(map(_printable_line, first)))
    hidden = text.count("\n") + 1 - head - tail
    last = text.rsplit("\n", tail)[1:] if tail else []
    return Excerpt(tuple(map(_printable_line, first[:head])), hidden, tuple(map(_printable_line, last)))


def _printable_line(line: str) -> str:
    return make_printable(line[:2_000].rstrip("\r").rpartition("\r")[2]).replace("\n", "⏎")


def _output_text(result: ToolResult) -> str:
    if isinstance(result.data, Mapping) and isinstance(result.data.get("output"), str):
        return str(result.data["output"])
    return result.text


def _exit_note(result: ToolResult) -> str:
    data = result.data
    if not isinstance(data, Mapping) or "exitCode" not in data:
        return ""
    if data.get("timedOut"):
        return "timed out"
    return "interrupted" if data.get("interrupted") else f"exit {data['exitCode']}"


def _hunks(result: ToolResult) -> tuple[Mapping[str, Any], ...]:
    data = result.data
    hunks = data.get("structuredPatch") if isinstance(data, Mapping) else None
    return tuple(hunks) if isinstance(hunks, list | tuple) else ()


def _count_changes(hunks: Sequence[Mapping[str, Any]]) -> str:
    lines = [line[:1] for hunk in hunks for line in hunk["lines"]]
    return f"+{lines.count('+')} −{lines.count('-')}"


def _count_note(noun: str, result: ToolResult) -> str:
    if note := _image_note(result):
        return note
    data = result.data if isinstance(result.data, Mapping) else {}
    if isinstance(data.get("file"), Mapping) and "numLines" in data["file"]:
        count, total = data["file"]["numLines"], data["file"].get("totalLines")
        return plural(count, "line") + (f" of {total:,}" if isinstance(total, int) and total > count else "")
    if isinstance(data.get("numFiles"), int):
        return plural(data["numFiles"], "file")
    text = result.text.strip("\n")
    return plural(text.count("\n") + 1, noun) if text else "nothing found"


def _image_note(result: ToolResult) -> str:
    images = [block for block in result.content if isinstance(block, Image)]
    return ", ".join(f"{image.media_type}, {format_size(len(image.data) * 3 // 4)}" for image in images[:3])


class InvalidToolInput(WieldyError):
    """The words are no input for the tool; the message is one line."""


def split_words(line: str) -> list[str]:
    """Split a typed line: JSON and `command=…` stay whole, fields are split as a shell does."""
    if line.startswith(("{", "command=")):
        return [line]
    try:
        return shlex.split(line)
    except ValueError:
        raise InvalidToolInput("a quotation mark is not closed") from None


def parse_input(words: list[str], tool: Tool | None) -> Mapping[str, Any] | str:
    """Build a tool's input from one JSON object, `key=value` words, or its main field alone. Raises `InvalidToolInput`."""
    if len(words) == 1 and words[0].lstrip().startswith("{"):
        return words[0]
    properties = tool.schema.get("properties", {}) if tool else {}
    names = [*properties, *(tool.parameters.aliases if tool else ())]
    fields: dict[str, Any] = {}
    if tool is not None and len(words) == 1 and _is_main_value(words[0], names):
        return {tool.main_field or next(iter(properties), "input"): words[0]}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals:
            raise InvalidToolInput(f"`{word}` is not key=value; fields of this tool: {', '.join(properties) or 'none'}")
        if properties and key not in names and (hint := did_you_mean(key, names)):
            raise InvalidToolInput(f"{tool.name if tool else ''} takes no `{key}`{hint}")
        fields[key] = _parse_value(value, properties.get(key, {}))
    return fields


def _is_main_value(word: str, names: list[str]) -> bool:
    """Whether a word has no `name=` that is a field, or nearly one: `ls` and `FOO=1 make`, but not `comand=ls`."""
    name, equals, _ = word.partition("=")
    return not equals or (name not in names and not did_you_mean(name, names))


def _parse_value(text: str, schema: Any) -> Any:
    """Keep text where the schema accepts text; elsewhere parse JSON if possible."""
    if not isinstance(schema, dict) or _accepts_text(schema):
        return text
    try:
        return json.loads(text)
    except ValueError:
        return text


def _accepts_text(schema: Mapping[str, Any]) -> bool:
    kind = schema.get("type")
    if kind is None and "anyOf" in schema:
        return any(_accepts_text(option) for option in schema["anyOf"])
    return kind is None or kind == "string" or (isinstance(kind, list) and "string" in kind)


def format_result(result: ToolResult) -> str:
    """Return a result as text for a person: whole, images by their size."""
    outcome = result.outcome
    if not isinstance(outcome, Done):
        text = result.person_text
        is_named = not isinstance(outcome, Refused) or text.startswith(result.name)
        return text if is_named else f"{result.name}: {text}"
    text = "\n".join(
        f"[{block.media_type}, {len(block.data) * 3 // 4:,} bytes; --json prints it]"
        if isinstance(block, Image)
        else without_reminders(block.text)
        for block in outcome.content
    )
    return text if text.strip() else result.text
