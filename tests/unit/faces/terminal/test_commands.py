"""Slash commands, shell commands and notes, with a person who answers and a recorded model."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from tests.needs import skip_untested

from wieldy import Script, Session
from wieldy.faces.terminal.chat import Chat
from wieldy.faces.terminal.commands import COMMANDS, ExitChat, run_line
from wieldy.faces.terminal.questions import Inquiry, Reply
from wieldy.faces.terminal.text import row_text
from wieldy.faces.terminal.view_model import rows

pytestmark = pytest.mark.asyncio


class Person:
    """A surface whose choices are given; it notes what was asked."""

    def __init__(self) -> None:
        self.choices: list[int | None] = []
        self.asked: list[tuple[str, tuple[str, ...], tuple[str, ...]]] = []
        self.draft = ""
        self.allows = True

    def refresh(self, *, at_once: bool = False) -> None:
        return

    async def ask(self, inquiry: Inquiry) -> Reply | None:
        lines = tuple(row_text(tuple(line)) for line in inquiry.body)
        self.asked.append((inquiry.title, lines, tuple(choice.label for choice in inquiry.choices)))
        choice = self.choices.pop(0) if self.choices else None
        return None if choice is None else (inquiry.choices[choice], "")

    async def page(self, text: str) -> None:
        return

    def set_draft(self, text: str) -> None:
        self.draft = text

    def exit(self) -> None:
        return


@pytest_asyncio.fixture
async def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("WIELDY_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HOME", str(tmp_path / "person"))
    for name in ("WIELDY_MODEL", "ANTHROPIC_API_KEY", "OPENAI_API_KEY", "DEEPSEEK_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    root = tmp_path / "project"
    root.mkdir()
    (root / "a.txt").write_text("one\n")
    opened: list[Chat] = []

    async def open_chat(model: Any = None, **options: Any) -> tuple[Chat, Person]:
        settings = options.pop("settings", {"sandbox": {"autoAllow": False}})  # the choice is made
        chat = Chat(partial(Session, root, model=model, settings=settings, load_settings=True, **options))
        chat.surface = person = Person()
        await chat.__aenter__()
        opened.append(chat)
        return chat, person

    yield open_chat
    for chat in opened:
        await chat.__aexit__()


def shown(chat: Chat, since: int = 0) -> str:
    lines = []
    for block in chat.view.blocks[since:]:
        lines += ["".join(span.text for span in row) for row in rows(block, 120)]
    return "\n".join(lines)


async def said(chat: Chat, line: str) -> str:
    before = len(chat.view.blocks)
    await run_line(chat, line)
    await asyncio.sleep(0)
    return shown(chat, before)


async def test_help_lists_every_command_and_explains_one(start: Callable[..., Any]) -> None:
    chat, _ = await start()
    text = await said(chat, "/help")
    assert all(name in text for name in COMMANDS)
    assert "[CALL|--turn|--all]" in await said(chat, "/help undo")
    assert "did you mean /permissions?" in await said(chat, "/permision")
    assert "did you mean /permissions?" in await said(chat, "/help permision")


@pytest.mark.parametrize("name", list(COMMANDS))
async def test_every_command_explains_itself_and_does_nothing_else(start: Callable[..., Any], name: str) -> None:
    chat, person = await start()
    session = chat.session
    command = COMMANDS[name]
    assert await said(chat, f"{name} --help") == f"  {name} {command.usage}".rstrip() + f"\n  {command.about}"
    assert chat.session is session
    assert person.asked == []


@pytest.mark.parametrize("name", [name for name, command in COMMANDS.items() if not command.usage])
async def test_an_argument_that_a_command_does_not_take_is_refused(start: Callable[..., Any], name: str) -> None:
    chat, _ = await start()
    session = chat.session
    assert await said(chat, f"{name} now") == f"{name} takes no argument"
    assert chat.session is session


async def test_undo_tells_the_model_what_was_taken_back(start: Callable[..., Any]) -> None:
    model = Script().calls("Read", file_path="a.txt").calls("Write", file_path="a.txt", content="two\n").says("Done.")
    chat, _ = await start(model.says("I see."), mode="acceptEdits")
    await run_line(chat, "change it")
    root = Path(chat.session.box.workspace.root)
    assert (root / "a.txt").read_text() == "two\n"
    assert "took back" in await said(chat, "/undo --turn")
    assert (root / "a.txt").read_text() == "one\n"
    assert "/undo takes" in await said(chat, "/undo --nonsense")
    await run_line(chat, "go on")
    sent = str(chat.session.messages)
    assert "The user took back changes of yours" in sent
    assert "took back changes" not in shown(chat), "a person did it and need not be told"
    assert "brought back" in await said(chat, "/redo")
    assert (root / "a.txt").read_text() == "two\n"


async def test_rewind_restores_what_was_chosen_and_gives_the_prompt_back(start: Callable[..., Any]) -> None:
    model = Script().calls("Read", file_path="a.txt").calls("Write", file_path="a.txt", content="two\n").says("Done.")
    chat, person = await start(model, mode="acceptEdits")
    await run_line(chat, "change it")
    person.choices = [0, 0]
    await run_line(chat, "/rewind")
    assert "change it  (1 file changed since)" in person.asked[0][2][0]
    assert person.asked[1][1:] == (
        ("  a.txt",),
        ("files and conversation", "files only", "conversation only", "nothing"),
    )
    root = Path(chat.session.box.workspace.root)
    assert (root / "a.txt").read_text() == "one\n"
    assert chat.session.messages == []
    assert person.draft == "change it"
    await run_line(chat, "/redo")
    assert (root / "a.txt").read_text() == "two\n"
    assert len(chat.session.messages) > 0


async def test_diff_shows_what_this_session_changed(start: Callable[..., Any]) -> None:
    model = Script().calls("Read", file_path="a.txt").calls("Write", file_path="a.txt", content="two\n")
    chat, _ = await start(model.calls("Write", file_path="b.txt", content="new\n").says("Done."), mode="acceptEdits")
    assert "changed nothing" in await said(chat, "/diff")
    await run_line(chat, "change it")
    text = await said(chat, "/diff")
    assert "a.txt\n" in text and "  -one\n  +two" in text
    assert "b.txt (new)\n" in text and "  +new" in text


async def test_a_shell_command_never_asks_and_the_model_sees_it(start: Callable[..., Any]) -> None:
    chat, person = await start(Script().says("I see."))
    person.allows = False
    assert "made" in await said(chat, "!touch made && echo made")
    assert Path(chat.session.box.workspace.root, "made").exists()
    await run_line(chat, "what did I do?")
    assert "$ touch made && echo made" in str(chat.session.messages[0])
    assert "system-reminder" not in shown(chat)


@pytest.mark.parametrize(("choice", "place"), [(0, "project/AGENTS.md"), (1, "home/AGENTS.md")])
async def test_a_note_is_remembered_where_the_person_says(
    start: Callable[..., Any], tmp_path: Path, choice: int, place: str
) -> None:
    chat, person = await start()
    person.choices = [choice, choice, None]
    await run_line(chat, "#use tabs")
    await run_line(chat, "# and spaces")
    assert (tmp_path / place).read_text() == "- use tabs\n- and spaces\n"
    assert "nothing was remembered" in await said(chat, "#not this")


@pytest.mark.parametrize("mode", ["plan", "dontAsk"])
async def test_the_mode_of_the_model_does_not_bind_the_person(start: Callable[..., Any], mode: str) -> None:
    chat, _ = await start(
        mode=mode, settings={"permissions": {"deny": ["Bash(rm:*)"]}, "sandbox": {"autoAllow": False}}
    )
    await run_line(chat, "!touch made")
    assert Path(chat.session.box.workspace.root, "made").exists()
    assert "not permitted" in await said(chat, "!rm made")
    assert chat.session.mode == mode


async def test_permissions_are_listed_added_and_removed(start: Callable[..., Any]) -> None:
    chat, _ = await start()
    assert "deny: Bash(make:*) →" in await said(chat, "/permissions deny Bash(make:*)")
    assert "Bash(make:*)" in await said(chat, "/permissions")
    assert (await chat.session.box.explain("Bash", command="make x")).behavior == "deny"
    assert "removed from" in await said(chat, "/permissions remove Bash(make:*)")
    assert "Bash(make:*)" not in await said(chat, "/permissions")
    assert "/permissions allow|deny" in await said(chat, "/permissions nonsense")


async def test_mode_and_model_are_shown_and_changed(start: Callable[..., Any]) -> None:
    chat, _ = await start()
    assert "the mode is default" in await said(chat, "/mode")
    assert "the mode is plan" in await said(chat, "/mode plan")
    assert "there is no permission mode" in await said(chat, "/mode nonsense")
    assert "there is no model" in await said(chat, "/model")
    with pytest.raises(Exception, match="no key for anthropic"):
        await run_line(chat, "/model claude-sonnet-5-5")


async def test_clear_begins_anew_and_resume_goes_back(start: Callable[..., Any]) -> None:
    chat, person = await start(Script().says("First answer.").says("Second."))
    await run_line(chat, "first prompt")
    first = chat.session.id
    await run_line(chat, "/clear")
    assert f"/resume {first}" in shown(chat)
    assert chat.session.id != first and chat.session.messages == []
    person.choices = [0]
    text = await said(chat, "/resume")
    assert chat.session.id == first
    assert "first prompt" in person.asked[-1][2][0]
    assert "› first prompt" in shown(chat) and "First answer." in shown(chat), text
    assert "no session of this folder" in await said(chat, "/resume zzz")


async def test_clear_keeps_the_model_of_a_resumed_session(start: Callable[..., Any], tmp_path: Path) -> None:
    script = tmp_path / "script.json"
    script.write_text('{"turns": [[{"text": "one"}]]}')
    chat, _ = await start(f"script:{script}")
    await run_line(chat, "hi")
    await chat.session.aclose()
    other, _ = await start()
    await other.resume(chat.session.id)
    await run_line(other, "/clear")
    assert other.session.model_choice == (f"script:{script}", None)


async def test_copy_takes_an_answer_or_one_of_its_code_blocks(
    start: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SSH_TTY", "/dev/pts/1")
    monkeypatch.delenv("TMUX", raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    chat, _ = await start(Script().says("Run:\n```sh\nls -l\n```\nand\n```\npwd\n```"))
    assert "no answer" in await said(chat, "/copy")
    await run_line(chat, "how?")
    assert "code block 2 (4 characters)" in await said(chat, "/copy 2")
    assert "\x1b]52;c;cHdkCg==\x07" in capsys.readouterr().out
    assert "has 2 code blocks" in await said(chat, "/copy 3")
    monkeypatch.setenv("TERM", "linux")
    assert "this terminal has no clipboard" in await said(chat, "/copy")
    (path,) = (tmp_path / "home/copies").iterdir()
    assert path.read_text().startswith("Run:\n```sh")
    assert path.stat().st_mode & 0o077 == 0


async def test_export_writes_the_conversation_once(start: Callable[..., Any]) -> None:
    chat, _ = await start(Script().calls("Read", file_path="a.txt").says("It says one."))
    assert "nothing to export" in await said(chat, "/export")
    await run_line(chat, "what does it say?")
    await run_line(chat, "/export out.md")
    text = Path(chat.session.box.workspace.root, "out.md").read_text()
    assert text.startswith("## what does it say?\n\n**Read**") and text.endswith("It says one.\n")
    assert "exists" in await said(chat, "/export out.md")
    assert "cannot be written" in await said(chat, "/export nowhere/out.md")
    (Path(chat.session.box.workspace.root) / "notes").mkdir()
    assert f"notes/wieldy-{chat.session.id[:8]}.md" in await said(chat, "/export notes/")


async def test_export_without_a_name_writes_outside_the_project(start: Callable[..., Any]) -> None:
    chat, _ = await start(Script().says("one").says("two"))
    workspace = chat.session.box.workspace
    for prompt in ("first", "second"):
        await run_line(chat, prompt)
        before = set(os.listdir(workspace.root))
        await run_line(chat, "/export")
        path = workspace.session_dir / f"wieldy-{chat.session.id[:8]}.md"
        assert set(os.listdir(workspace.root)) == before
        assert f"## {prompt}" in path.read_text()


async def test_tasks_are_listed_and_stopped(start: Callable[..., Any]) -> None:
    chat, person = await start()
    assert "nothing runs" in await said(chat, "/tasks")
    await chat.call("Bash", {"command": "sleep 300", "run_in_background": True})
    person.choices = [0]
    assert "stopped shell" in await said(chat, "/tasks")
    assert "sleep 300" in person.asked[0][2][0]
    assert "nothing runs" in await said(chat, "/tasks")


async def test_cost_and_context_say_how_much(start: Callable[..., Any]) -> None:
    chat, _ = await start(Script().says("Hello."))
    await run_line(chat, "hi")
    assert "1 answer," in await said(chat, "/cost")
    text = await said(chat, "/context")
    assert "% " in text and "system prompt" in text and "tools" in text and "your prompts" in text


async def test_command_files_and_skills_are_sent_by_name(start: Callable[..., Any], tmp_path: Path) -> None:
    chat, _ = await start(Script().says("1").says("2").says("3"))
    root = Path(chat.session.box.workspace.root)
    (root / ".claude/commands/git").mkdir(parents=True)
    (root / ".claude/commands/git/push.md").write_text("---\ndescription: Push it\n---\nPush $1 to $ARGUMENTS.\n")
    (root / ".wieldy/skills/greet").mkdir(parents=True)
    (root / ".wieldy/skills/greet/SKILL.md").write_text("---\nname: greet\ndescription: Greets.\n---\nSay hello.\n")
    secret = tmp_path / "secret.md"
    secret.write_text("token")
    (root / ".claude/commands/leak.md").symlink_to(secret)
    text = await said(chat, "/help")
    assert "/git:push" in text and "Push it" in text and "/greet" in text
    assert "› /git:push main" in await said(chat, "/git:push main")
    assert chat.session.messages[0]["content"][0]["text"] == "Push main to main."
    await run_line(chat, "/greet Ann")
    assert "Say hello.\n\nArguments: Ann" in str(chat.session.messages[2]["content"][0]["text"])
    assert "there is no command /leak" in await said(chat, "/leak")


async def test_images_that_a_prompt_names_are_sent_with_it(start: Callable[..., Any]) -> None:
    pytest.importorskip("PIL")
    from PIL import Image

    chat, _ = await start(Script().says("A dot."))
    path = Path(chat.session.box.workspace.root, "my dot.png")
    Image.new("RGB", (4, 4), "red").save(path)
    await run_line(chat, f"what is '{path}'?")
    kinds = [block["type"] for block in chat.session.messages[0]["content"]]
    assert kinds == ["text", "image"]


async def test_exit_leaves(start: Callable[..., Any]) -> None:
    chat, _ = await start()
    with pytest.raises(ExitChat):
        await run_line(chat, "/exit")


async def test_a_path_at_the_beginning_of_a_prompt_is_no_command(start: Callable[..., Any]) -> None:
    chat, _ = await start(Script().says("A file."))
    await run_line(chat, "/etc/hosts is what?")
    assert chat.session.messages[0]["content"][0]["text"] == "/etc/hosts is what?"


async def test_the_start_screen_names_what_matters_and_how_to_get_a_model(start: Callable[..., Any]) -> None:
    chat, _ = await start()
    text = shown(chat)
    assert all(name in text for name in ("wieldy", "model    none", "folder", "mode     default", "sandbox", "/help"))
    assert all(way in text for way in ("ANTHROPIC_API_KEY", "ollama/NAME", "wieldy demo"))


async def test_the_start_screen_says_which_key_chose_the_model(
    start: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WIELDY_HOME", str(Path("nowhere").absolute()))
    chat, _ = await start()
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    from wieldy.faces.terminal.chat import start_blocks

    session = Session(chat.session.box.workspace.root, settings={})
    text = "\n".join("".join(span.text for span in row) for block in start_blocks(session) for row in rows(block, 120))
    assert "openai/gpt-5.5 (OPENAI_API_KEY is set)" in text


async def test_settings_of_claude_code_are_offered_once(start: Callable[..., Any], tmp_path: Path) -> None:
    folder = tmp_path / "project/.claude"
    folder.mkdir()
    (folder / "settings.json").write_text('{"permissions": {"allow": ["Bash(make:*)"]}, "model": "sonnet"}')
    chat, person = await start()
    from wieldy.faces.terminal.chat import make_offers

    person.choices = [1]
    person.asked.clear()
    await make_offers(chat)
    question, lines, _ = person.asked[0]
    assert "Claude Code" in question
    assert "permissions.allow, model" in lines[0]
    person.asked.clear()
    await make_offers(chat)
    assert not any("Claude Code" in question for question, _, _ in person.asked)
    person.choices = [0]
    assert chat.session.box.settings.get("compat.claude") is False


async def test_the_choice_about_the_sandbox_is_kept(start: Callable[..., Any], tmp_path: Path) -> None:
    from wieldy.faces.terminal.chat import make_offers

    chat, person = await start(settings={})
    if not await chat.session.box.workspace.services.sandbox.holds():
        skip_untested("no sandbox holds here")
    person.asked.clear()
    person.choices = [0]
    await make_offers(chat)
    assert "sandbox without asking" in person.asked[0][0]
    assert '"autoAllow": true' in (tmp_path / "home/settings.json").read_text()
    person.asked.clear()
    await make_offers(chat)
    assert person.asked == []
