"""Skills: instructions in SKILL.md files that a model loads when a task calls for them."""

from __future__ import annotations

import os
import re
from pathlib import Path

from msgspec import Struct

from wieldy.core.state_dirs import skill_homes
from wieldy.tools.skills.discovery import MarkdownCatalog, Origin, format_listing
from wieldy.tools.skills.frontmatter import FrontMatterError, parse_markdown, parse_names

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
