from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from wieldy import Toolbox
from wieldy.core.decision import Question
from wieldy.core.outcome import Refused

pytestmark = pytest.mark.asyncio

ON = {"features": {"memory": True}}


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WIELDY_HOME", str(tmp_path / "home"))
    folder = tmp_path / "root"
    folder.mkdir()
    return folder


@pytest_asyncio.fixture
async def box(root: Path) -> AsyncIterator[Toolbox]:
    async with Toolbox(root, settings=ON, ask=lambda question: True) as toolbox:
        yield toolbox


async def test_off_unless_the_feature_is_on(root: Path) -> None:
    async with Toolbox(root, settings={}) as box:
        rows = {row.tool.name: row for row in await box.offer()}
        assert (
            "`MemoryRead` is not available: its feature is off; switch it on with `features.memory`"
            in (await box.call("MemoryRead")).text
        )
        assert "`MemoryWrite` is not available" in (await box.call("MemoryWrite", path="a", content="b")).text
    for name in ("MemoryRead", "MemoryWrite"):
        assert not rows[name].offered
        assert "features.memory" in rows[name].reason
    async with Toolbox(root, settings=ON) as box:
        assert {row.tool.name for row in await box.offer() if row.offered} >= {"MemoryRead", "MemoryWrite"}


@pytest.mark.parametrize("scope", ["project", "user"])
async def test_what_is_written_is_listed_and_read_in_another_session(root: Path, box: Toolbox, scope: str) -> None:
    written = await box.call("MemoryWrite", path="a/b.md", content="use tabs\n", scope=scope)
    assert not written.is_error, written.text
    async with Toolbox(root, settings=ON) as later:
        assert (await later.call("MemoryRead")).text == f"{scope}: a/b.md (9 bytes)"
        assert (await later.call("MemoryRead", path="a/b.md", scope=scope)).text == "use tabs\n"
        other = "user" if scope == "project" else "project"
        assert "there is no such file" in (await later.call("MemoryRead", path="a/b.md", scope=other)).text


async def test_a_note_that_was_not_read_is_not_overwritten_and_can_be_undone(root: Path, box: Toolbox) -> None:
    await box.call("MemoryWrite", path="a.md", content="one\n")
    async with Toolbox(root, settings=ON, ask=lambda question: True) as later:
        assert "must be read first" in (await later.call("MemoryWrite", path="a.md", content="two\n")).text
        assert "must be read first" in (await later.call("MemoryWrite", path="a.md", content="")).text
        await later.call("MemoryRead", path="a.md")
        assert not (await later.call("MemoryWrite", path="a.md", content="two\n")).is_error
        file = root / ".wieldy/memory/a.md"
        assert file.read_text() == "two\n"
        assert (await later.call("MemoryWrite", path="a.md", content="")).text == "Removed `a.md`."
        assert not file.exists()
        assert "There is no memory `a.md`" in (await later.call("MemoryWrite", path="a.md", content="")).text
        await later.undo()
        assert file.read_text() == "two\n"
        await later.undo()
        assert file.read_text() == "one\n"


async def test_nothing_outside_is_read_or_written(root: Path, box: Toolbox) -> None:
    (root / "secret").write_text("x")
    (root / ".wieldy/memory").mkdir(parents=True)
    (root / ".wieldy/memory/link").symlink_to(root / "secret")
    (root / ".wieldy/memory/up").symlink_to(root)
    for path in ("../../secret", "/etc/passwd", "link", "up/secret"):
        for call in (box.call("MemoryRead", path=path), box.call("MemoryWrite", path=path, content="y")):
            assert (await call).is_error
    assert (root / "secret").read_text() == "x"


async def test_writing_asks_until_a_rule_allows_the_folder(root: Path) -> None:
    asked: list[str] = []

    def note(question: Question) -> bool:
        asked.append(question.decision.why)
        return False

    async with Toolbox(root, settings=ON, mode="bypassPermissions", ask=note) as box:
        assert isinstance((await box.call("MemoryWrite", path="a.md", content="x")).outcome, Refused)
    assert "what the agent remembers" in asked[0]
    allowed = {**ON, "permissions": {"allow": ["Edit(.wieldy/memory/**)"]}}
    async with Toolbox(root, settings=allowed) as box:
        assert not (await box.call("MemoryWrite", path="a.md", content="x")).is_error
        assert (await box.call("Write", file_path=".wieldy/settings.json", content="{}")).is_error
        (root / ".wieldy/memory/evil.md").symlink_to(root / ".wieldy/settings.json")
        assert (await box.call("MemoryWrite", path="evil.md", content="{}")).is_error
    assert not (root / ".wieldy/settings.json").exists()


async def test_plan_mode_reads_and_does_not_write(root: Path) -> None:
    async with Toolbox(root, settings=ON, mode="plan", ask=lambda question: True) as box:
        assert (await box.call("MemoryRead")).text == "Nothing has been noted yet."
        assert (await box.call("MemoryWrite", path="a.md", content="x")).is_error


async def test_a_note_that_is_no_text_or_too_large_is_said_to_be_so(root: Path, box: Toolbox) -> None:
    (root / ".wieldy/memory").mkdir(parents=True)
    (root / ".wieldy/memory/blob").write_bytes(b"\0" * 100)
    (root / ".wieldy/memory/big").write_bytes(b"x" * 200_001)
    assert "not text" in (await box.call("MemoryRead", path="blob")).text
    assert "Read it in pages" in (await box.call("MemoryRead", path="big")).text
