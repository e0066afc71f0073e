from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from wieldy.core.events import Event, Notice
from wieldy.core.workspace import Workspace
from wieldy.tools.skills.discovery import format_listing
from wieldy.tools.skills.skill import MAX_ENTRY_CHARS, MAX_LISTING_CHARS, Skill, Skills, parse_skill, render_skill


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "root").mkdir()
    return tmp_path


@pytest.fixture
def notices() -> list[Event]:
    return []


@pytest.fixture
def skills(home: Path, notices: list[Event]) -> Skills:
    env = {"HOME": str(home), "WIELDY_HOME": str(home / "config")}
    return Skills(Workspace(home / "root", session_dir=home / "session", env=env, emit=notices.append))


def make(folder: Path, head: str = "description: does things", body: str = "Do it.") -> Path:
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text(f"---\n{head}\n---\n{body}\n")
    return folder


def test_skills_are_found_in_all_places(home: Path, skills: Skills) -> None:
    places = ["root/.wieldy/skills", "root/.claude/skills", "root/.agents/skills"]
    places += ["config/skills", ".claude/skills", ".agents/skills"]
    for number, place in enumerate(places):
        make(home / place / f"skill-{number}")
    assert list(skills.refresh()) == [f"skill-{number}" for number in range(6)]
    assert [skill.origin for skill in skills.definitions.values()] == ["project"] * 3 + ["user"] * 3
    assert skills.problems == ()


def test_the_users_skill_wins_over_the_projects_of_the_same_name(home: Path, skills: Skills) -> None:
    make(home / "root/.claude/skills/deploy", "description: theirs")
    make(home / ".claude/skills/deploy", "description: mine")
    assert skills.refresh()["deploy"].description == "mine"
    assert "there is another skill `deploy`" in skills.problems[0]


def test_a_project_cannot_lay_out_links_to_other_files(home: Path, skills: Skills) -> None:
    secret = make(home / "secret")
    (home / "root/.claude/skills/stolen").mkdir(parents=True)
    (home / "root/.claude/skills/stolen/SKILL.md").symlink_to(secret / "SKILL.md")
    (home / "root/.claude/skills/whole").symlink_to(secret)
    assert skills.refresh() == {}
    mine = make(home / ".claude/skills/mine")
    (home / "root/.claude/skills/shared").symlink_to(mine)
    assert list(skills.refresh()) == ["mine"]


def test_broken_ones_are_reported_once_and_the_others_work(home: Path, skills: Skills, notices: list[Event]) -> None:
    make(home / "root/.claude/skills/good")
    make(home / "root/.claude/skills/bad", "description: 'open")
    make(home / "root/.claude/skills/odd", "name: a b c\ndescription: x")
    make(home / "root/.claude/skills/empty", "license: MIT", body="")
    (home / "root/.claude/skills/bytes").mkdir()
    (home / "root/.claude/skills/bytes/SKILL.md").write_bytes(b"\xff\xfe")
    (home / "root/.claude/skills/no-skill").mkdir()
    assert list(skills.refresh()) == ["good"]
    skills.report_problems()
    skills.report_problems()
    texts = [event.text for event in notices if isinstance(event, Notice)]
    assert len(texts) == 4
    assert any(
        "bad/SKILL.md: line 2: found unexpected end of stream while scanning a quoted scalar" in text for text in texts
    )


def test_a_skill_has_a_name_a_purpose_and_tools() -> None:
    head = "allowed-tools: Read, Bash(git log *)\nwhen_to_use: when asked"
    found = parse_skill(f"---\n{head}\n---\n# T\n\nFirst.", "/s/pdf/SKILL.md", "user")
    assert (found.name, found.description, found.folder) == ("pdf", "when asked", "/s/pdf")
    assert found.tools == ("Read", "Bash(git log *)")
    assert parse_skill("---\nallowed-tools: Read Bash(a, b)\n---\nx", "/s/a/SKILL.md", "user").tools == (
        "Read",
        "Bash(a, b)",
    )
    parse_skill(f"---\nallowed-tools: {'a( ' * 80_000}\n---\nx", "/s/a/SKILL.md", "user")
    assert parse_skill("# T\n\nFirst\nparagraph.", "/s/pdf/SKILL.md", "user").description == "First paragraph."


def skill(name: str, description: str, *, hidden: bool = False) -> Skill:
    return Skill(name, description, f"/s/{name}/SKILL.md", "user", "", hidden)


def listing(skills: list[Skill]) -> str:
    return format_listing(skills, max_chars=MAX_LISTING_CHARS, max_entry_chars=MAX_ENTRY_CHARS)


def test_the_listing_stays_within_its_bounds(skills: Skills) -> None:
    assert listing([]) == ""
    skills.definitions = {"a": skill("a", "x"), "b": skill("b", "y", hidden=True)}
    assert skills.listing() == "- a: x"
    assert len(listing([skill("a", "x" * 5000)])) == len("- a: ") + MAX_ENTRY_CHARS
    many = [skill(f"skill-{n}", "word " * 100) for n in range(50)]
    assert len(listing(many)) <= 8_000
    assert all(f"- {one.name}: word" in listing(many) for one in many)
    crowd = [skill(f"skill-{n}", "word") for n in range(2_000)]
    assert len(listing(crowd)) <= 8_000
    assert listing(crowd).splitlines()[-1].startswith("… and ")


def test_arguments_and_folder_go_to_their_places(tmp_path: Path) -> None:
    folder = make(tmp_path / "s", body="Fix $ARGUMENTS with ${CLAUDE_SKILL_DIR}/run.py")
    (folder / "run.py").touch()
    (folder / "refs").mkdir()
    found = parse_skill((folder / "SKILL.md").read_text(), str(folder / "SKILL.md"), "user")
    text = render_skill(found, "the login")
    assert text.endswith(f"Fix the login with {folder}/run.py")
    assert "Beside it: refs/, run.py\n" in text
    plain = parse_skill("---\ndescription: x\n---\nDo it.", str(folder / "SKILL.md"), "user")
    assert render_skill(plain, "now").endswith("Do it.\n\nArguments: now")
    Path(found.path).unlink()
    assert render_skill(found, "the login") == text  # its file was removed after it was read


@pytest.mark.asyncio
async def test_another_look_sees_skills_come_and_go(home: Path, skills: Skills) -> None:
    await skills.refresh_in_thread()
    assert (skills.definitions, skills.problems, skills.prompt_section()) == ({}, (), "")
    folder = make(home / "root/.claude/skills/deploy")
    make(home / "root/.claude/skills/broken", "description: [")
    await skills.refresh_in_thread()
    assert list(skills.definitions) == ["deploy"]
    assert len(skills.problems) == 1
    shutil.rmtree(folder.parent)
    await skills.refresh_in_thread()
    assert not skills.definitions
    assert not skills.problems
