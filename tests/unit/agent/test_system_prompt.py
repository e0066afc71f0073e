"""What the model is told first: bounded, stable in front, the nearest instructions last."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from wieldy import Script, Session
from wieldy.agent.system_prompt import MAX_INSTRUCTION_CHARS, environment, instructions, system_prompt


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "home" / ".claude").mkdir(parents=True)
    return tmp_path / "home"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    (tmp_path / "repo" / ".git").mkdir(parents=True)
    (tmp_path / "repo" / "part").mkdir()
    return tmp_path / "repo"


def told(root: Path, home: Path) -> str:
    return instructions(str(root), {"HOME": str(home)})


def test_the_users_come_first_and_the_nearest_last(repository, home):
    (home / ".claude" / "CLAUDE.md").write_text("the user's")
    (repository / "AGENTS.md").write_text("the repository's")
    (repository / "part" / "CLAUDE.md").write_text("the part's")
    (repository / "part" / "CLAUDE.local.md").write_text("mine alone")
    text = told(repository / "part", home)
    places = [text.index(words) for words in ("the user's", "the repository's", "the part's", "mine alone")]
    assert places == sorted(places)


def test_a_file_that_is_linked_to_twice_is_read_once(repository, home):
    (repository / "AGENTS.md").write_text("only once")
    (repository / "CLAUDE.md").symlink_to("AGENTS.md")
    assert told(repository, home).count("only once") == 1


def test_a_file_that_another_one_imports_is_included_once(repository, home):
    (repository / "AGENTS.md").write_text("only once")
    (repository / "CLAUDE.md").write_text("@AGENTS.md\n")
    (repository / "part" / "CLAUDE.md").write_text("the part's, and @../AGENTS.md")
    text = told(repository / "part", home)
    assert text.count("only once") == 1
    assert "CLAUDE.md" in text
    assert str(repository / "CLAUDE.md") not in text
    (repository / "AGENTS.md").write_text("@CLAUDE.md")
    (repository / "CLAUDE.md").write_text("imported first")
    assert told(repository / "part", home).count("imported first") == 1


def test_outside_a_repository_only_the_folder_itself_counts(tmp_path, home):
    (tmp_path / "AGENTS.md").write_text("from above")
    (tmp_path / "plain").mkdir()
    assert told(tmp_path / "plain", home) == ""


def test_imports_are_followed_but_not_in_code_not_in_circles_and_not_out_of_the_repository(repository, home, tmp_path):
    (tmp_path / "secret.md").write_text("the secret")
    (repository / "more.md").write_text("more words, @AGENTS.md")
    (repository / "AGENTS.md").write_text("See @more.md and `@more.md` and @../secret.md and me@more.md and @none.md")
    text = told(repository, home)
    assert text.count("more words") == 1
    assert "`@more.md`" in text
    assert "the secret" not in text
    assert "@none.md" in text


def test_the_users_own_are_found_where_the_settings_are(repository, home, tmp_path):
    for folder, env in (
        (home / ".config/wieldy", {}),
        (tmp_path / "xdg/wieldy", {"XDG_CONFIG_HOME": str(tmp_path / "xdg")}),
        (tmp_path / "elsewhere", {"WIELDY_HOME": str(tmp_path / "elsewhere")}),
    ):
        folder.mkdir(parents=True)
        (folder / "AGENTS.md").write_text(f"from {folder.name} and @more.md")
        (folder / "more.md").write_text("more words")
        text = instructions(str(repository), {"HOME": str(home), **env})
        assert f"from {folder.name} and more words" in text


def test_names_and_homes_that_no_file_can_have_are_no_obstacle(repository):
    (repository / "AGENTS.md").write_text(f"See @{'x' * 300} and this.")
    assert "and this." in instructions(str(repository), {"HOME": f"/{'x' * 300}"})


def test_a_link_out_of_the_repository_is_not_followed_either(repository, home, tmp_path):
    (tmp_path / "secret.md").write_text("the secret")
    os.symlink(tmp_path / "secret.md", repository / "inside.md")
    (repository / "AGENTS.md").write_text("@inside.md")
    assert "the secret" not in told(repository, home)


def test_all_instructions_together_are_bounded(repository, home):
    (repository / "AGENTS.md").write_text("a" * (MAX_INSTRUCTION_CHARS + 5_000))
    (repository / "part" / "AGENTS.md").write_text("nearest")
    text = told(repository / "part", home)
    assert len(text) < MAX_INSTRUCTION_CHARS + 500
    assert "too long" in text
    assert text.endswith("nearest")


@pytest.mark.parametrize("text", ["@huge.md", " ".join(f"@huge{number}.md" for number in range(50))])
def test_what_is_imported_is_read_no_further_than_it_can_be_told(repository, home, text):
    (repository / "CLAUDE.md").write_text(f"before {text} after")
    names = ["huge.md", *(f"huge{number}.md" for number in range(50))]
    for name in names:
        with open(repository / name, "w") as file:
            file.write("start of it ")
            file.truncate(1 << 34)  # a sparse file that no memory could hold
    text = told(repository, home)
    assert "before start of it " in text
    assert len(text) < MAX_INSTRUCTION_CHARS + 1_000


def test_bytes_that_are_no_text_are_no_obstacle(repository, home):
    (repository / "AGENTS.md").write_bytes(b"caf\xe9 \xff")
    assert "caf" in told(repository, home)


def test_the_mode_is_said_where_it_matters():
    assert "plan mode" in system_prompt((), mode="plan")
    assert "plan mode" not in system_prompt((), mode="default")
    assert system_prompt((), mode="default", extra="and this").endswith("and this")


def test_what_changes_from_day_to_day_comes_last(tmp_path):
    here = environment(str(tmp_path), str(tmp_path), model="m", today="2030-01-02")
    assert "2030-01-02" in here
    assert "git: no" in here


@pytest.mark.asyncio
@pytest.mark.parametrize("mode", ["default", "dontAsk", "bypassPermissions"])
@pytest.mark.parametrize("behavior", ["deny", "ask"])
async def test_imports_pass_the_permission_policy(repository, home, monkeypatch, mode, behavior):
    monkeypatch.setenv("HOME", str(home))
    (repository / ".env").write_text("PASSWORD=hunter2")
    (repository / "plain.md").write_text("plain words")
    os.symlink(".env", repository / "link.md")
    os.symlink(".env", repository / "CLAUDE.md")
    (repository / "AGENTS.md").write_text("Start. @.env and @link.md and @plain.md")
    model = Script([[{"text": "x"}]])
    settings = {"permissions": {behavior: ["Read(.env)"]}}
    async with Session(repository, model=model, settings=settings, mode=mode) as session:
        await session.ask("go")
    prompt = "\n".join(model.requests[0].system)
    assert "hunter2" not in prompt
    assert "plain words" in prompt
    assert "Read(.env)" in prompt


@pytest.mark.asyncio
@pytest.mark.parametrize("mode", ["default", "dontAsk"])
async def test_the_users_own_file_imports_what_is_beside_it_but_no_key_from_elsewhere(
    repository, home, monkeypatch, mode
):
    monkeypatch.setenv("HOME", str(home))
    for name, text in ((".ssh/id_rsa", "the key"), (".claude/more.md", "more words"), (".claude/CLAUDE.md", "")):
        (home / name).parent.mkdir(exist_ok=True, parents=True)
        (home / name).write_text(text)
    (home / ".claude/CLAUDE.md").write_text(f"@more.md and @{home}/.ssh/id_rsa and @../.ssh/id_rsa")
    (repository / "AGENTS.md").write_text(f"@~/.ssh/id_rsa and @{home}/.ssh/id_rsa")
    model = Script([[{"text": "x"}]])
    async with Session(repository, model=model, settings={}, load_settings=True, mode=mode) as session:
        await session.ask("go")
    prompt = "\n".join(model.requests[0].system)
    assert "the key" not in prompt
    assert "more words" in prompt
    assert "id_rsa is not included here" in prompt


@pytest.mark.asyncio
async def test_prompt_and_tools_are_small_and_the_same_from_request_to_request(tmp_path, monkeypatch):
    monkeypatch.setenv("WIELDY_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("HOME", str(tmp_path))
    model = Script([[{"call": "LS", "input": {"path": "."}}], [{"text": "x"}]])
    async with Session(tmp_path, model=model, settings={}) as session:
        await session.ask("go")
    first, second = model.requests
    assert first.system == second.system
    assert first.tools == second.tools
    assert sum(map(len, first.system)) <= 6_000
    tools = [{"name": t.name, "description": t.description, "input_schema": t.input_schema} for t in first.tools]
    assert len(json.dumps(tools, ensure_ascii=False)) <= 14_000
