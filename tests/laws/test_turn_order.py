"""Law: the calls of one answer give the same files, results and folder as the same calls one after another.

That holds under any delays, with any number of slots, and however the person answers. Where the turn is interrupted, every
call that ran to its end has the result that it has without the interrupt, so whatever it depends on ran before it.
WIELDY_LAW_EXAMPLES sets the number of examples.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, combinations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import Struct

from wieldy import Toolbox
from wieldy.core.call import PlannedCall, ToolCall
from wieldy.core.decision import Advice, Question
from wieldy.core.outcome import Interrupted, ToolResult

pytestmark = pytest.mark.skipif(os.name != "posix", reason="needs bash")

EXAMPLES = int(os.environ.get("WIELDY_LAW_EXAMPLES", "20"))
MAX_SUBSETS = 6
FOLDERS = ("", "sub/", "sub/deep/", "link/", "secret/")
SETTINGS: dict[str, Any] = {
    "permissions": {
        "deny": ["Read(./secret/**)"],
        "allow": ["Bash(rm:*)", "Bash(mkdir:*)", "Bash(ln:*)", "Bash(echo:*)", "Bash(mv:*)"],
    },
    "journal": {"enabled": False},
}


class Sent(Struct, frozen=True):
    """A call as drawn: how long its hook and its answer take, and what the person says if asked."""

    name: str
    input: dict[str, Any]
    delay: float
    answer: bool


PATHS = st.sampled_from(
    ["a", "b", "sub/a", "deep/a", "link/a", "../a", "secret/x", "new/c", "{root}/a", "{root}/sub/b"]
)
COMMANDS = st.sampled_from(
    [
        "cd sub",
        "cd deep",
        "cd ..",
        "cd {root}",
        "cd {root}/sub && cat a",
        "cd secret",
        "cd link && pwd",
        "cd sub && cat a",
        "cd nowhere; cat a",
        "(cd sub; cat b)",
        "pwd",
        "ls",
        "cat a",
        "cat x",
        "sleep 0.02; cat a",
        "sleep 0.04; pwd",
        "cat b | head -1",
        "echo more >> a",
        "sleep 0.02; echo late >> b",
        "rm -f b",
        "mkdir -p new && cd new && echo n > c",
        "ln -sfn sub link2; cat link2/a",
        "mv a moved",
    ]
)
TEXTS = st.sampled_from(["one\n", "two\n", "a of the root\n"])
DELAYS = st.sampled_from([0.0, 0.0, 0.0, 0.03, 0.1])
ANSWERS = st.sampled_from([True, True, True, False])


@st.composite
def turns(draw: st.DrawFn) -> list[Sent]:
    """A turn of few different calls on few files, so that calls that depend on each other meet."""
    paths = st.sampled_from(draw(st.lists(PATHS, min_size=1, max_size=2)))
    commands = st.sampled_from(draw(st.lists(COMMANDS, min_size=1, max_size=3)))
    shells = st.integers(1, 2).map(lambda number: f"bash_{number}")
    calls = st.one_of(
        st.builds(lambda path: ("Read", {"file_path": path}), paths),
        st.builds(lambda path, text: ("Write", {"file_path": path, "content": text}), paths, TEXTS),
        st.builds(
            lambda path, new: ("Edit", {"file_path": path, "old_string": "of", "new_string": new}),
            paths,
            st.sampled_from(["from", "off"]),
        ),
        st.builds(lambda command: ("Bash", {"command": command}), commands),
        st.builds(lambda path: ("Grep", {"pattern": "of", "path": path}), st.sampled_from(["sub", ".", "a", "{root}"])),
        st.sampled_from(
            [
                ("Grep", {"pattern": "of|one"}),
                ("Glob", {"pattern": "**/*"}),
                ("LS", {}),
                ("TodoWrite", {"todos": [{"content": "x", "status": "pending", "activeForm": "x"}]}),
                ("Nothing", {}),
                ("Read", {"wrong": 1}),
                ("Bash", {"command": "cat secret/x"}),
            ]
        ),
        st.just(BACKGROUND),
        st.builds(lambda name, id: (name, {"shell_id": id}), st.sampled_from(["BashOutput", "KillShell"]), shells),
    )
    pool = draw(st.lists(calls, min_size=1, max_size=5))
    sent = st.builds(
        lambda call, delay, answer: Sent(call[0], call[1], delay, answer), st.sampled_from(pool), DELAYS, ANSWERS
    )
    return draw(st.lists(sent, min_size=1, max_size=12))


BACKGROUND: tuple[str, dict[str, Any]] = ("Bash", {"command": "sleep 20", "run_in_background": True})
# Turns whose first call takes its time: what of it the second one must not miss, or meet too early.
KNOWN: dict[str, list[tuple[str, dict[str, Any]]]] = {
    "the second reading says that nothing changed": [("Read", {"file_path": "a"}), ("Read", {"file_path": "a"})],
    "two names of a file": [("Write", {"file_path": "link/a", "content": "x\n"}), ("Read", {"file_path": "sub/a"})],
    "a symlink that is made": [
        ("Bash", {"command": "ln -sfn sub link2"}),
        ("Write", {"file_path": "link2/a", "content": "x\n"}),
        ("Bash", {"command": "rm -f sub/a"}),
    ],
    "a folder that is moved": [("Bash", {"command": "mv sub moved"}), ("Read", {"file_path": "moved/a"})],
    "cd before a command": [("Bash", {"command": "cd sub"}), ("Bash", {"command": "cat a"})],
    "cd before a file": [("Bash", {"command": "cd sub"}), ("Write", {"file_path": "a", "content": "x\n"})],
    "cd to a denied folder": [("Bash", {"command": "cd secret"}), ("Bash", {"command": "cat x"})],
    "cd after a file": [("Read", {"file_path": "a"}), ("Bash", {"command": "cd sub"}), ("Read", {"file_path": "a"})],
    "cd after a search": [("Grep", {"pattern": "of"}), ("Bash", {"command": "cd sub"}), ("LS", {})],
    "cd after a command": [("Bash", {"command": "sleep 0.04; pwd"}), ("Bash", {"command": "cd sub"}), ("LS", {})],
    "a shell in the background": [
        BACKGROUND,
        ("BashOutput", {"shell_id": "bash_1"}),
        ("KillShell", {"shell_id": "bash_1"}),
        ("BashOutput", {"shell_id": "bash_1"}),
    ],
    "the numbers of shells": [BACKGROUND, BACKGROUND, ("KillShell", {"shell_id": "bash_2"})],
    "a command and a file": [("Bash", {"command": "echo more >> a"}), ("Read", {"file_path": "a"})],
    "a file that a command removes": [("Read", {"file_path": "b"}), ("Bash", {"command": "rm -f b"})],
}


class Delays:
    """A hook that takes its time, and a person who does."""

    def __init__(self, sent: Sequence[Sent], *, slow: bool) -> None:
        self.sent = sent
        self.slow = slow

    def wants(self, plan: PlannedCall) -> bool:
        return self.slow and self.sent[int(plan.call.id)].delay > 0

    async def advise(self, plan: PlannedCall) -> Advice:
        await asyncio.sleep(self.sent[int(plan.call.id)].delay)
        return Advice()

    async def answer(self, question: Question) -> bool:
        one = self.sent[int(question.plan.call.id)]
        if self.slow:
            await asyncio.sleep(one.delay)
        return one.answer


class Ran(Struct, frozen=True):
    """What is left of a turn: the results by call, the files, the folder."""

    results: dict[int, tuple[bool, str]]
    files: dict[str, str]
    folder: str
    interrupted: tuple[int, ...] = ()


def make_project(root: Path) -> None:
    shutil.rmtree(root.parent, ignore_errors=True)
    for folder in FOLDERS:
        if folder != "link/":
            (root / folder).mkdir(parents=True, exist_ok=True)
            for name in "ab":
                (root / folder / name).write_text(f"{name} of {folder or 'the root'}\n")
    (root / "link").symlink_to("sub")
    (root / "secret" / "x").write_text("x of secret\n")
    for path in sorted(root.rglob("*")):
        os.utime(path, (1_000_000_000, 1_000_000_000), follow_symlinks=False)


def snapshot(root: Path) -> dict[str, str]:
    files: dict[str, str] = {}
    for path in sorted(root.parent.rglob("*")):
        name = str(path.relative_to(root.parent))
        if path.is_symlink():
            files[name] = f"-> {os.readlink(path)}"
        else:
            files[name] = path.read_text() if path.is_file() else "folder"
    return files


def as_text(result: ToolResult) -> str:
    """The text of a result without times and process ids."""
    text = re.sub(r"\bpid \d+", "pid N", result.text)
    return re.sub(r"\d+(\.\d+)? ?(s|ms)\b", "N s", text)


async def run(
    root: Path, sent: Sequence[Sent], which: Iterable[int], *, slots: int, turns: bool, stop: float | None = None
) -> Ran:
    """Run some of the calls: in one turn, or with `turns` each in its own; interrupted after `stop` seconds."""
    make_project(root)
    state = root.parent.parent / "state"
    delays = Delays(sent, slow=not turns)
    box = Toolbox(
        root,
        settings=SETTINGS,
        ask=delays.answer,
        advisers=[delays],
        max_concurrency=slots,
        env={"PATH": os.environ["PATH"], "HOME": str(root.parent), "WIELDY_HOME": str(state)},
        state_dir=state,
        session_id="law",
    )
    calls = {number: ToolCall(str(number), sent[number].name, filled(sent[number].input, root)) for number in which}
    results: list[ToolResult] = []
    async with box:
        if turns:
            for call in calls.values():
                results += await box.call_many([call])
        else:
            if stop is not None:
                asyncio.get_running_loop().call_later(stop, box.abort)
            results = await asyncio.wait_for(box.call_many(calls.values()), 60)
        folder = box.workspace.cwd
    assert [result.call_id for result in results] == [call.id for call in calls.values()]
    made = dict(zip(calls, results, strict=True))
    shutil.rmtree(state, ignore_errors=True)
    return Ran(
        {number: (one.is_error, as_text(one)) for number, one in made.items()},
        snapshot(root),
        folder,
        tuple(number for number, one in made.items() if isinstance(one.outcome, Interrupted)),
    )


def filled(input: dict[str, Any], root: Path) -> dict[str, Any]:
    return {
        key: value.replace("{root}", str(root)) if isinstance(value, str) else value for key, value in input.items()
    }


@settings(
    max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
@given(sent=turns(), slots=st.integers(1, 10))
def test_a_turn_gives_what_its_calls_give_one_after_another(sent: list[Sent], slots: int) -> None:
    compare(sent, slots)


@pytest.mark.parametrize("slots", [1, 10])
@pytest.mark.parametrize("name", KNOWN)
def test_each_kind_of_state_is_in_order(name: str, slots: int) -> None:
    compare([Sent(*call, 0.0 if number else 0.2, True) for number, call in enumerate(KNOWN[name])], slots)


def compare(sent: Sequence[Sent], slots: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(os.path.realpath(folder), "around", "project")
        together = asyncio.run(run(root, sent, range(len(sent)), slots=slots, turns=False))
        apart = asyncio.run(run(root, sent, range(len(sent)), slots=slots, turns=True))
    assert together == apart


@settings(
    max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
@given(sent=turns(), slots=st.integers(1, 10), stop=st.floats(0.0, 0.3))
def test_an_interrupted_turn_is_one_that_was_interrupted_in_order(sent: list[Sent], slots: int, stop: float) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(os.path.realpath(folder), "around", "project")
        everything = range(len(sent))
        together = asyncio.run(run(root, sent, everything, slots=slots, turns=False, stop=stop))
        apart = asyncio.run(run(root, sent, everything, slots=slots, turns=True))
        ended = [number for number in everything if number not in together.interrupted]
        assert {number: together.results[number] for number in ended} == {
            number: apart.results[number] for number in ended
        }
        # A call that was interrupted has had its effect, or none.
        possible = []
        for partly in subsets([number for number in together.interrupted if may_change(sent[number])]):
            which = sorted((*ended, *partly))
            replayed = asyncio.run(run(root, sent, which, slots=slots, turns=True))
            if (replayed.files, replayed.folder) == (together.files, together.folder):
                return
            possible.append((replayed.files, replayed.folder))
        assert (together.files, together.folder) in possible


def may_change(one: Sent) -> bool:
    return one.name in {"Write", "Edit", "Bash"}


def subsets(numbers: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """None of them first, then each alone, then the first ones together: a call that others wait for runs before them."""
    few = numbers[:MAX_SUBSETS]
    return chain.from_iterable(combinations(few, size) for size in range(len(few) + 1))
