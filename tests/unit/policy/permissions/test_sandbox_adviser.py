"""What a sandbox contains may run unasked, where the settings say so; nothing else becomes easier."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.needs import skip_untested

from wieldy import Toolbox
from wieldy.core.decision import Question

pytestmark = pytest.mark.asyncio
AGREED = {"enabled": True, "autoAllow": True}


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("WIELDY_HOME", str(tmp_path / "home"))


@pytest.fixture
def root(tmp_path) -> Iterator[Path]:
    folder = tmp_path / "root"
    folder.mkdir()
    yield folder


class Person:
    """Answers no and remembers the questions."""

    def __init__(self, answer: bool = False) -> None:
        self.questions: list[str] = []
        self.answer = answer

    def __call__(self, question: Question) -> bool:
        self.questions.append(question.decision.why)
        return self.answer


async def sandboxed(root: Path, person: Person | None = None, mode: str | None = None, **settings: Any) -> Toolbox:
    sandbox: Mapping[str, Any] = {**AGREED, **settings.pop("sandbox", {})}
    box = Toolbox(root, settings={"sandbox": sandbox, **settings}, ask=person, mode=mode)
    if not await box.workspace.services.sandbox.holds():
        await box.aclose()
        skip_untested("commands that run unasked in the sandbox: bubblewrap does not work here")
    return box


async def test_a_contained_command_runs_without_a_question(root):
    async with await sandboxed(root) as box:
        result = await box.call("Bash", command='python3 -c \'open("made", "w")\'')
        assert (root / "made").exists(), result.text


async def test_a_command_that_is_not_understood_runs_too_because_the_sandbox_contains_it(root):
    async with await sandboxed(root) as box:
        result = await box.call("Bash", command='f() { echo "$1" > "$2"; }; f text made')
        assert (root / "made").read_text() == "text\n", result.text


async def test_what_it_changed_can_be_undone(root):
    (root / "file").write_text("old")
    async with await sandboxed(root) as box:
        await box.call("Bash", command='python3 -c \'open("file", "w").write("new")\'')
        assert (root / "file").read_text() == "new"
        await box.undo()
    assert (root / "file").read_text() == "old"


async def test_programs_in_it_cannot_read_or_write_what_rules_deny(root):
    (root / "deep").mkdir()
    (root / "deep/.env").write_text("SECRET=1")
    (root / "fixed.txt").write_text("fixed")
    (root / "read.py").write_text("print(open('deep/.env').read()); open('fixed.txt', 'w').write('changed')")
    rules = {"deny": ["Read(.env)", "Edit(/fixed.txt)"]}
    async with await sandboxed(root, permissions=rules) as box:
        result = await box.call("Bash", command="python3 read.py")
        assert "SECRET" not in result.text
        assert "sandbox" in result.text
    assert (root / "fixed.txt").read_text() == "fixed"


async def test_programs_in_it_cannot_change_protected_files(root):
    for name in (".git/hooks", "nested/.git/hooks", ".wieldy"):
        (root / name).mkdir(parents=True)
    protected = ["deep.env", ".env", ".git/hooks/pre-commit", "nested/.git/hooks/pre-commit", ".wieldy/settings.json"]
    for name in protected:
        (root / name).write_text("old")
    (root / "change.py").write_text(
        f"for name in {protected!r}:\n  try: open(name, 'w').write('new')\n  except OSError: pass\n"
    )
    async with await sandboxed(root) as box:
        await box.call("Bash", command="python3 change.py")
    assert [name for name in protected if (root / name).read_text() == "new"] == ["deep.env"]


async def test_where_denied_files_cannot_all_be_found_a_program_with_unknown_effects_asks(root):
    person = Person()
    async with await sandboxed(root, person, permissions={"deny": ["Read(//**/*.key)"]}) as box:
        assert (await box.call("Bash", command="python3 made.py")).is_error
        assert not (await box.call("Bash", command="touch made")).is_error
    assert len(person.questions) == 1


@pytest.mark.parametrize(
    ("settings", "input"),
    [
        ({}, {"command": "rm -rf ~"}),
        ({}, {"command": "touch .git/hooks/x"}),
        ({}, {"command": "touch made", "run_in_background": True}),
        ({"bash": {"snapshot": False}}, {"command": "touch made"}),
        ({"sandbox": {"network": True}}, {"command": "touch made"}),
        ({"sandbox": {"excludedCommands": ["touch"]}}, {"command": "touch made"}),
        ({"permissions": {"ask": ["Bash(touch:*)"]}}, {"command": "touch made"}),
        ({"permissions": {"deny": ["Bash(rm:*)"]}}, {"command": 'x=rm; "$x" made'}),
        ({"permissions": {"deny": ["Bash(rm:*)"]}}, {"command": "f() { touch made; }; f"}),
    ],
)
async def test_it_still_asks_about_guards_rules_background_and_what_is_not_contained(root, settings, input):
    person = Person()
    async with await sandboxed(root, person, **settings) as box:
        assert (await box.call("Bash", input)).is_error
    assert person.questions
    assert not (root / "made").exists()


async def test_files_outside_stay_denied_where_the_settings_deny_them(root):
    person = Person()
    async with await sandboxed(root, person, permissions={"outside": "deny"}) as box:
        assert (await box.call("Bash", command="cat /etc/hostname")).is_error
        assert not person.questions
        assert (await box.call("Bash", command="python3 -c 'print(open(\"/etc/hostname\").read())'")).is_error
        assert person.questions


async def test_what_the_sandbox_blocked_is_named_and_can_run_outside_after_a_question(root, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    person = Person(answer=True)
    command = f"sh -c 'echo x > {outside}/made'"
    async with await sandboxed(root, person) as box:
        result = await box.call("Bash", command=command)
        assert not person.questions
        assert "kept it from a file: “" in result.text
        assert "`sandbox: false`" in result.text
        assert (await box.call("Bash", command=command, sandbox=False)).is_error is False
        assert "inside, it was kept from a file: “" in person.questions[0]
    assert (outside / "made").exists()


async def test_leaving_the_sandbox_is_asked_about_in_bypass_mode_too(root):
    person = Person()
    async with await sandboxed(root, person, mode="bypassPermissions") as box:
        assert (await box.call("Bash", command="touch made", sandbox=False)).is_error
    assert "outside the sandbox" in person.questions[0]
    assert not (root / "made").exists()


async def test_a_rule_for_the_command_allows_it_outside_and_a_setting_forbids_leaving(root):
    rules = {"allow": ["Bash(touch:*)", "Edit(**)"]}
    async with await sandboxed(root, permissions=rules) as box:
        assert not (await box.call("Bash", command="touch made", sandbox=False)).is_error
    async with await sandboxed(root, permissions=rules, sandbox={"allowUnsandboxed": False}) as box:
        assert "keep commands in the sandbox" in (await box.call("Bash", command="touch x", sandbox=False)).text


async def test_landlock_alone_allows_nothing_because_it_does_not_hold_completely(tmp_path):
    settings = {"sandbox": {"enabled": True, "autoAllow": True, "mechanism": "landlock"}}
    async with Toolbox(tmp_path, settings=settings) as box:
        assert (await box.call("Bash", command="touch made")).is_error
    assert not (tmp_path / "made").exists()


async def test_it_asks_where_the_setting_is_off(tmp_path):
    async with Toolbox(tmp_path, settings={"sandbox": {"enabled": True}}) as box:
        assert (await box.call("Bash", command="touch made")).is_error
    assert not (tmp_path / "made").exists()


async def test_an_explanation_says_what_the_sandbox_allows(root):
    async with await sandboxed(root) as box:
        decision = await box.explain("Bash", command="make test")
        assert (decision.behavior, "contains it" in str(decision.reasons)) == ("allow", True)
        assert (await box.explain("Bash", command="make test", sandbox=False)).behavior == "ask"
        assert (await box.explain("Bash", command="make test", run_in_background=True)).behavior == "ask"


@pytest.mark.parametrize("command", ["make", "touch made", "git push", "cat /etc/hostname", "ls", "rm -rf ~"])
async def test_explain_tells_what_the_call_would_come_to(root, command):
    async with await sandboxed(root) as box:
        decision = await box.explain("Bash", command=command)
        assert list(root.iterdir()) == []
        if command in ("make", "touch made", "ls"):
            result = await box.call("Bash", command=command)
            refused = result.outcome.kind == "refused"
            assert (decision.behavior == "allow") is not refused, decision.why
        if command == "touch made":
            assert "contains it" in str(decision.reasons)


async def test_explain_runs_no_hook_and_knows_the_doubts_of_a_tool(root):
    from wieldy import Doubt, python_hook, tool

    ran: list[Any] = []

    @tool(needs_permission=False, check=lambda input, ctx: Doubt("it is Friday") if input["day"] == "Friday" else None)
    async def deploy(day: str) -> str:
        """Deploy."""
        return "deployed"

    def block(event: Any) -> dict[str, Any]:
        ran.append(event)
        return {"decision": "block"}

    async with Toolbox(root, settings={}, tools=[deploy], hooks=[python_hook("PreToolUse", block)]) as box:
        assert (await box.explain("deploy", day="Monday")).behavior == "allow"
        decision = await box.explain("deploy", day="Friday")
        assert decision.behavior == "ask"
        assert "it is Friday" in decision.why
        assert ran == []
        assert (await box.call("deploy", day="Monday")).is_error
    assert len(ran) == 1


async def test_everyday_work_needs_no_question(root):
    lines = (Path(__file__).parents[3] / "corpora/shell/everyday_work.txt").read_text().splitlines()
    commands = [line for line in lines if not line.startswith("#")]
    (root / "src").mkdir()
    (root / "src/a.py").write_text("x = 1\n")
    async with await sandboxed(root) as box:
        decisions = {command: await box.explain("Bash", command=command) for command in commands}
    asking = {command: str(decision.why) for command, decision in decisions.items() if decision.behavior != "allow"}
    assert asking == {}
