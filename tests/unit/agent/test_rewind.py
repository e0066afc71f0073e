"""Going back to before a prompt: files that edits and commands changed, the conversation, or both."""

from __future__ import annotations

import pytest
from tests.unit.agent.oracle import check_history

from wieldy import Script, Session
from wieldy.core.errors import SessionError
from wieldy.files.journal.undo import CannotUndo

TURNS = [
    [{"call": "Write", "input": {"file_path": "made.txt", "content": "one\n"}}],
    [{"text": "made"}],
    [{"call": "Bash", "input": {"command": "python3 -c \"open('made.txt','a').write('two\\n'); open('new','w')\""}}],
    [{"text": "changed"}],
    [{"call": "Write", "input": {"file_path": "other.txt", "content": "three\n"}}],
    [{"text": "other"}],
]
PROMPTS = ["make it", "change it", "make another"]


@pytest.fixture
def root(tmp_path):
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


@pytest.fixture
def open_session(root, tmp_path, monkeypatch):
    monkeypatch.setenv("WIELDY_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HOME", str(tmp_path))

    def make(turns=(), **options) -> Session:
        return Session(root, model=Script(list(turns)), mode="bypassPermissions", settings={}, **options)

    return make


def contents(root) -> dict[str, str]:
    return {path.name: path.read_text() for path in root.iterdir()}


@pytest.mark.asyncio
async def test_prompts_are_listed_with_the_files_changed_since_each(open_session, root):
    async with open_session(TURNS) as session:
        for prompt in PROMPTS:
            await session.ask(prompt)
        points = await session.rewind.checkpoints()
    assert [(point.number, point.text) for point in points] == list(enumerate(PROMPTS, start=1))
    names = [[path.rsplit("/", 1)[1] for path in point.files] for point in points]
    assert names == [["made.txt", "new", "other.txt"], ["made.txt", "new", "other.txt"], ["other.txt"]]


@pytest.mark.asyncio
@pytest.mark.parametrize("number", [1, 2, 3])
async def test_files_and_conversation_go_back_to_before_a_prompt_and_forward_again(open_session, root, number):
    states, histories = [], []
    async with open_session(TURNS) as session:
        for prompt in PROMPTS:
            states.append(contents(root))
            histories.append(session.messages)
            await session.ask(prompt)
        after, messages = contents(root), session.messages
        result = await session.rewind.restore(number)
        assert result.files is not None and result.conversation
        assert (contents(root), session.messages) == (states[number - 1], histories[number - 1])
        assert [point.text for point in await session.rewind.checkpoints()] == PROMPTS[: number - 1]
        await session.rewind.redo()
        assert (contents(root), session.messages) == (after, messages)
        assert len(await session.rewind.checkpoints()) == 3
    async with open_session(resume=session.id) as resumed:
        assert resumed.messages == messages


@pytest.mark.asyncio
async def test_files_alone_and_conversation_alone(open_session, root):
    async with open_session(TURNS) as session:
        for prompt in PROMPTS:
            await session.ask(prompt)
        messages = session.messages
        result = await session.rewind.restore(3, conversation=False)
        assert session.messages == messages and not result.conversation
        assert "other.txt" not in contents(root)
        result = await session.rewind.restore(2, files=False)
        assert result.files is None and len(session.messages) == 4
        assert contents(root)["made.txt"] == "one\ntwo\n"


@pytest.mark.asyncio
async def test_a_rewound_session_goes_on_and_is_resumed_where_it_was(open_session, root):
    async with open_session([*TURNS, [{"text": "instead"}]]) as session:
        for prompt in PROMPTS:
            await session.ask(prompt)
        await session.rewind.restore(2)
        assert await session.ask("something else") == "instead"
        messages = session.messages
        check_history(messages)
        with pytest.raises(SessionError, match="has gone on"):
            await session.rewind.redo()
    async with open_session(resume=session.id) as resumed:
        assert resumed.messages == messages
        assert [point.text for point in await resumed.rewind.checkpoints()] == ["make it", "something else"]
        await resumed.rewind.restore(1)
        assert contents(root) == {} and resumed.messages == []


@pytest.mark.asyncio
async def test_a_file_changed_by_other_hands_stops_a_rewind_before_anything_happens(open_session, root):
    async with open_session(TURNS) as session:
        for prompt in PROMPTS:
            await session.ask(prompt)
        (root / "made.txt").write_text("by hand\n")
        messages = session.messages
        with pytest.raises(CannotUndo, match="changed since"):
            await session.rewind.restore(1)
        assert session.messages == messages and "other.txt" in contents(root)


@pytest.mark.asyncio
async def test_what_cannot_be_rewound_says_so(open_session, root):
    async with open_session([[{"text": "hi"}]], persist=False) as session:
        await session.ask("hello")
        with pytest.raises(SessionError, match="no prompt 2"):
            await session.rewind.restore(2)
        with pytest.raises(SessionError, match="without a transcript"):
            await session.rewind.restore(1)
        assert (await session.rewind.restore(1, conversation=False)).files is None
        with pytest.raises(CannotUndo, match="no rewind"):
            await session.rewind.redo()


@pytest.mark.asyncio
async def test_a_fork_has_only_its_own_prompts(open_session, root):
    async with open_session(TURNS) as session:
        await session.ask("make it")
    async with open_session([[{"text": "hi"}]], resume=session.id, fork=True) as fork:
        await fork.ask("what if")
        assert [point.text for point in await fork.rewind.checkpoints()] == ["what if"]
        await fork.rewind.restore(1)
        assert len(fork.messages) == 4
