"""Links, spellings and files that are not there yet, through the real tools: nothing outside is made or changed unasked."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from wieldy import Toolbox
from wieldy.core.decision import Question

pytestmark = pytest.mark.asyncio


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """A folder outside with a file that must stay as it is."""
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / "victim").write_text("precious\n")
    return folder


@pytest.fixture
def work(tmp_path: Path, out: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WIELDY_HOME", str(tmp_path / "home"))
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "inside").write_text("plain\n")
    for name, target in (("notes", out / "victim"), ("draft", out / "new"), ("outbox", out), ("alias", "inside")):
        os.symlink(target, folder / name)
    return folder


@pytest_asyncio.fixture
async def opened(work: Path) -> AsyncIterator[Callable[..., Toolbox]]:
    boxes: list[Toolbox] = []

    def open_box(root: Path = work, **options: Any) -> Toolbox:
        boxes.append(Toolbox(root, settings={"permissions": {"allow": ["Write", "Edit", "Read"]}}, **options))
        return boxes[-1]

    yield open_box
    for box in boxes:
        await box.aclose()


@pytest.mark.parametrize("mode", ["default", "acceptEdits"])
@pytest.mark.parametrize("name", ["notes", "draft", "outbox/new", "outbox/victim", "./sub/../outbox/new"])
async def test_writing_through_a_link_is_writing_where_it_leads(
    opened: Any, out: Path, work: Path, name: str, mode: str
) -> None:
    box = opened(mode=mode)
    (work / "sub").mkdir()
    await box.call("Read", file_path=name)
    for tool, fields in (
        ("Write", {"content": "changed"}),
        ("Edit", {"old_string": "precious", "new_string": "changed"}),
        ("MultiEdit", {"edits": [{"old_string": "precious", "new_string": "changed"}]}),
    ):
        assert (await box.call(tool, {"file_path": name, **fields})).is_error, tool
    for command in (f"echo x > {name}", f"echo x >> {name}", f"tee {name} < inside", f"cp inside {name}"):
        decision = await box.explain("Bash", command=command)
        assert decision.behavior == "ask", command
        assert (await box.call("Bash", command=command)).is_error
    assert os.listdir(out) == ["victim"]
    assert (out / "victim").read_text() == "precious\n"


async def test_a_link_that_stays_inside_and_a_root_that_is_a_link_need_no_question(
    opened: Any, work: Path, tmp_path: Path
) -> None:
    box = opened(mode="acceptEdits")
    await box.call("Read", file_path="alias")
    assert not (await box.call("Write", file_path="alias", content="new\n")).is_error
    assert (work / "inside").read_text() == "new\n"
    assert (work / "alias").is_symlink()
    os.symlink(work, tmp_path / "entrance")
    linked = opened(tmp_path / "entrance", mode="acceptEdits")
    for number, path in enumerate((tmp_path / "entrance" / "n0", work / "n1", Path("n2"))):
        assert not (await linked.call("Write", file_path=str(path), content="x")).is_error
        assert (work / f"n{number}").exists()


@pytest.mark.parametrize("aim", ["victim", "new"])
async def test_a_link_that_is_swapped_in_while_the_person_is_asked_is_not_followed(
    opened: Any, work: Path, out: Path, aim: str
) -> None:
    def swap(question: Question) -> bool:
        os.unlink(work / "inside")
        os.symlink(out / aim, work / "inside")
        return True

    box = Toolbox(work, settings={}, ask=swap)
    await box.call("Read", file_path="inside")
    await box.call("Write", file_path="inside", content="changed")
    await box.aclose()
    assert os.listdir(out) == ["victim"]
    assert (out / "victim").read_text() == "precious\n"


@pytest.mark.parametrize(
    "spelling", ["{out}/x", "{work}/../out/x", "/.{out}/x", "/{out}//x", "outbox/x", "./outbox/./x"]
)
async def test_every_spelling_of_a_path_has_the_verdict_of_the_plain_one(
    opened: Any, work: Path, out: Path, spelling: str
) -> None:
    path = spelling.format(out=out, work=work)
    box = opened(mode="acceptEdits")
    decision = await box.explain("Write", file_path=path, content="x")
    assert decision.behavior == "ask"
    assert f"{out}/x is outside the allowed folders" in decision.why
    assert (await box.explain("Bash", command=f"echo x > {path}")).behavior == "ask"


@pytest.mark.parametrize("mode", ["acceptEdits", "bypassPermissions"])
@pytest.mark.parametrize(
    "name",
    [
        ".wieldy/settings.json",
        ".wieldy/settings.local.json",
        ".claude/settings.json",
        ".mcp.json",
        ".git/config",
        ".git/hooks/pre-commit",
    ],
)
async def test_a_file_that_configures_the_agent_cannot_be_made_unasked_where_there_is_none_yet(
    opened: Any, work: Path, name: str, mode: str
) -> None:
    box = opened(mode=mode)
    assert (await box.call("Write", file_path=name, content="{}")).is_error
    folder = os.path.dirname(name) or "."
    for command in (
        f"mkdir -p {folder} && echo x > {name}",
        f"cp inside {name}",
        f"ln -s /tmp/evil {name}",
        f"mv inside {name}",
        f"tee {name} < inside",
        f"cd {folder} && echo x > {os.path.basename(name)}",
        f"sh -c 'echo x > {name}'",
    ):
        assert (await box.explain("Bash", command=command)).behavior == "ask", command
    assert not (work / name).exists()
