"""One skill: what it is called, what it is for, and how it is told to a model."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from typing import Literal, TypeAlias

from msgspec import Struct

from wieldy.core.truncate import truncate
from wieldy.skills.frontmatter import FrontMatterError, Value, parse_markdown

Origin: TypeAlias = Literal["user", "project"]

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,63}")
ENTRY_CHARS = 1536
LISTING_CHARS = 8_000
TOOLS_CHARS = 4_000


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
        """The folder its scripts and references are in."""
        return os.path.dirname(self.path)


def read_skill(text: str, path: str, origin: Origin) -> Skill:
    """The skill in a SKILL.md. Raises `BadHead` for one that cannot be used."""
    page = parse_markdown(text)
    fields = page.fields
    name = str(fields.get("name") or os.path.basename(os.path.dirname(path)))
    if not NAME.fullmatch(name):
        raise FrontMatterError(2, f"`{name}` is no name: use up to 64 letters, digits and dashes")
    about = [str(fields[key]) for key in ("description", "when_to_use") if isinstance(fields.get(key), str)]
    description = " ".join(" ".join(about).split()) or _first_paragraph(page.body)
    if not description:
        raise FrontMatterError(2, "there is neither a description nor any text")
    return Skill(
        name,
        description,
        path,
        origin,
        page.body,
        hidden=fields.get("disable-model-invocation") is True,
        tools=tuple(_words(fields.get("allowed-tools"))),
    )


def listing(skills: Sequence[Skill], most: int = LISTING_CHARS) -> str:
    """The skills a model may load, a line each. However many there are, no longer than `most`: descriptions are cut
    evenly, then left out, then skills are only counted."""
    shown = [skill for skill in skills if not skill.hidden]
    names = sum(len(skill.name) + 5 for skill in shown)
    left = most - len("… and 100000 more")
    room = (left - names) // len(shown) if shown else 0
    lines: list[str] = []
    for count, skill in enumerate(shown):
        line = (
            f"- {skill.name}: {truncate(skill.description, min(room, ENTRY_CHARS))}"
            if room >= 20
            else f"- {skill.name}"
        )
        left -= len(line) + 1
        if left < 0:
            lines.append(f"… and {len(shown) - count} more")
            break
        lines.append(line)
    return "\n".join(lines)


def _first_paragraph(body: str) -> str:
    for paragraph in re.split(r"\n\s*\n", body):
        if (text := " ".join(paragraph.split())) and not text.startswith("#"):
            return text
    return ""


def _words(value: Value | None) -> Iterator[str]:
    if isinstance(value, list):
        yield from map(str, value)
    elif isinstance(value, str):
        yield from re.findall(r"[^\s,(]+(?:\([^)]*\))?", value[:TOOLS_CHARS])


ARGUMENTS = "$ARGUMENTS"
FOLDER = ("${WIELDY_SKILL_DIR}", "${CLAUDE_SKILL_DIR}")
MOST_FILES = 30


def render_skill(skill: Skill, arguments: str) -> str:
    """The instructions of a skill."""
    body = skill.body
    for name in FOLDER:
        body = body.replace(name, skill.folder)
    if ARGUMENTS in body:
        body = body.replace(ARGUMENTS, arguments)
    elif arguments:
        body = f"{body}\n\nArguments: {arguments}"
    files = _beside(skill)
    beside = f"\nBeside it: {', '.join(files)}" if files else ""
    return f"Skill `{skill.name}`. Its folder is {skill.folder}; paths below are relative to it.{beside}\n\n{body}"


def _beside(skill: Skill) -> list[str]:
    try:
        with os.scandir(skill.folder) as entries:
            names = sorted(e.name + "/" * e.is_dir() for e in entries if not e.name.startswith("."))
    except OSError:
        return []
    names.remove(os.path.basename(skill.path))
    return names if len(names) <= MOST_FILES else [*names[:MOST_FILES], f"… {len(names) - MOST_FILES} more"]
