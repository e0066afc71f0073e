"""A skill as it is handed to a model: its instructions, with the arguments in their places and where its files are."""

from __future__ import annotations

import os

from wieldy.skills.skill import Skill

ARGUMENTS = "$ARGUMENTS"
FOLDER = ("${WIELDY_SKILL_DIR}", "${CLAUDE_SKILL_DIR}")
MOST_FILES = 30


def told(skill: Skill, arguments: str) -> str:
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
