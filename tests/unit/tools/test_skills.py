"""Skills: front matter, how files are found, and in a session."""

from __future__ import annotations

import json
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wieldy import Toolbox
from wieldy.agent.system_prompt import RequestPrefix
from wieldy.core.events import Event, Notice
from wieldy.core.workspace import Workspace
from wieldy.models.script import Script
from wieldy.tools.skills import (
    MAX_ENTRY_CHARS,
    MAX_LISTING_CHARS,
    FrontMatterError,
    Skill,
    Skills,
    format_listing,
    parse_markdown,
    parse_skill,
    render_skill,
)


def fields(*lines: str) -> dict[str, Any]:
    return dict(parse_markdown("\n".join(["---", *lines, "---", "body"])).fields)


def test_a_file_is_its_head_and_its_body() -> None:
    page = parse_markdown("\ufeff---\r\nname: x\r\n---\r\n\r\n# Title\r\n---\r\n")
    assert page.fields == {"name": "x"}
    assert page.body == "# Title\n---"


def test_a_file_without_a_head_is_all_body() -> None:
    assert parse_markdown("# Title\n--- \n").fields == {}
    assert parse_markdown("").body == ""


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("plain text", "plain text"),
        ("plain # comment", "plain"),
        ("a#b", "a#b"),
        ("Use this: always", "Use this: always"),
        ('"a \\"quoted\\" # text\\n"', 'a "quoted" # text\n'),
        ('"a" # comment', "a"),
        ("'it''s'", "it's"),
        ("true", True),
        ("false", False),
        ("'true'", "true"),
        ("1.5", "1.5"),
        ("", ""),
        ("[a, 'b, c', \"d\"]", ["a", "b, c", "d"]),
        ("[]", []),
        ("no", "no"),
        ("2026-01-01", "2026-01-01"),
        ("{a: {b: c}}", {"a": {"b": "c"}}),
        ("&anchor x", "x"),
    ],
)
def test_values_on_one_line(line: str, value: Any) -> None:
    assert fields(f"key: {line}") == {"key": value}


@pytest.mark.parametrize("key", ["key:", "key: "])
def test_lists_and_mappings_on_lines_of_their_own(key: str) -> None:
    assert fields(key, "  - a", "", "  # comment", "  - 'b'", "other: c") == {"key": ["a", "b"], "other": "c"}
    assert fields(key, "- a", "- b: c") == {"key": ["a", {"b": "c"}]}
    assert fields(key, "  a: 1", "  b: 'x'") == {"key": {"a": "1", "b": "x"}}
    assert fields(key, "other: x") == {"key": "", "other": "x"}


def test_long_texts() -> None:
    assert fields("key: |", "  one", "    two", "", "  three", "last: x") == {
        "key": "one\n  two\n\nthree\n",
        "last": "x",
    }
    assert fields("key: >-", "  one", "  two", "", "  three") == {"key": "one two\nthree"}
    assert fields("key: one", "  two", "  three # comment", "last: x") == {"key": "one two three", "last": "x"}


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["name: a", "name: b"], "line 3: `name` is there twice"),
        (["a:", "  b: 1", "  b: 2"], "line 4: `b` is there twice"),
        (["- a"], "line 2: `name: value` was expected"),
        (["name:a"], "line 2: `name: value` was expected"),
        (["b: c", 'a: "open'], "line 3: found unexpected end of stream while scanning a quoted scalar"),
        (["a: 'open"], "line 2: found unexpected end of stream"),
        (["a: [b"], "line 2: did not find expected"),
        (["a: *b"], "line 2: aliases are not supported"),
        (["a:", "\tb: c"], "line 3: found character that cannot start any token"),
        (["? [a]", ": b"], "line 2: a name must be a text"),
        (["a: " + "[" * 30], "line 2: nested more than 20 deep"),
        (["a: &x [b, *x]"], "line 2: aliases are not supported"),
    ],
)
def test_faults_have_their_line(lines: list[str], message: str) -> None:
    with pytest.raises(FrontMatterError) as caught:
        fields(*lines)
    assert str(caught.value).startswith(message)


def test_a_head_that_is_never_closed_is_a_fault() -> None:
    with pytest.raises(FrontMatterError, match="never closed"):
        parse_markdown("---\nname: x\n")


def test_a_colon_in_an_unquoted_text_is_tolerated() -> None:
    lines = ["name: x", "description: Use when: it's late: # yes", "tools: Read"]
    assert fields(*lines) == {"name": "x", "description": "Use when: it's late:", "tools": "Read"}
    with pytest.raises(FrontMatterError, match="line 4"):
        fields("a: b: c", "d: e", "f: [g")


HOSTILE = ["'" * 100_000, '["' + "\\" * 100_000, "[" + "'" * 99_999, "[" + "a'" * 50_001, " #" * 50_000]
HOSTILE += ["[" * 100_000, "{" * 100_000, "[a, " * 1_000 + "&x"]


@pytest.mark.parametrize("hostile", HOSTILE)
def test_a_head_made_to_be_slow_is_read_at_once(hostile: str) -> None:
    with suppress(FrontMatterError):
        fields(f"key: {hostile}")


PRINTABLE = st.text(st.characters(max_codepoint=0xFFFF).filter(str.isprintable), max_size=30)
LINES = st.text(st.sampled_from("ab:- #'\"[]|>,\t\\&é{}"), max_size=12)


@given(st.lists(LINES, max_size=8), st.sampled_from(["\n", "\r\n"]))
@settings(max_examples=400, deadline=None)
def test_any_head_is_read_or_refused(lines: list[str], end: str) -> None:
    with suppress(FrontMatterError):
        parse_markdown(end.join(["---", *lines, "---", "body"]))


@given(st.dictionaries(st.text("abc-", min_size=1).filter(lambda key: key[0] != "-"), PRINTABLE, max_size=5))
@settings(max_examples=200, deadline=None)
def test_quoted_texts_come_back_as_they_went_in(fields: dict[str, str]) -> None:
    head = [f"{name}: {json.dumps(value)}" for name, value in fields.items()]
    assert parse_markdown("\n".join(["---", *head, "---", "b"])).fields == fields
    head = ["{}: '{}'".format(name, value.replace("'", "''")) for name, value in fields.items()]
    assert parse_markdown("\n".join(["---", *head, "---", "b"])).fields == fields


@given(st.lists(st.text(st.sampled_from("ab '#:"), min_size=1, max_size=8).map(str.strip).filter(bool), max_size=5))
@settings(max_examples=200, deadline=None)
def test_lists_come_back_in_both_spellings(items: list[str]) -> None:
    quoted = list(map(json.dumps, items))
    assert parse_markdown(f"---\nkey: [{', '.join(quoted)}]\n---").fields == {"key": items}
    if items:
        block = "\n".join(f"  - {item}" for item in quoted)
        assert parse_markdown(f"---\nkey:\n{block}\n---").fields == {"key": items}


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


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WIELDY_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "root/.claude/skills/deploy").mkdir(parents=True)
    (tmp_path / "root/.claude/skills/deploy/SKILL.md").write_text("---\ndescription: how we deploy\n---\nPush.\n")
    return tmp_path / "root"


@pytest.mark.asyncio
async def test_a_model_is_told_of_the_skills_before_it_begins(root: Path) -> None:
    async with Toolbox(root, settings={}) as box:
        outset = RequestPrefix(box)
        await outset.prepare(Script())
    (skills,) = [part for part in outset.system if part.startswith("# Skills")]
    assert skills.endswith("\n- deploy: how we deploy")
    assert "Skill" in {offer.name for offer in outset.offers}


@pytest.mark.asyncio
async def test_where_the_tool_is_denied_nothing_is_said(root: Path) -> None:
    async with Toolbox(root, settings={"permissions": {"deny": ["Skill"]}}) as box:
        outset = RequestPrefix(box)
        await outset.prepare(Script())
    assert not [part for part in outset.system if "# Skills" in part]
