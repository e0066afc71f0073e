"""What a command changes of protected files is put aside, whatever wrote it, with a sandbox and without."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.needs import skip_untested

from wieldy import Toolbox, ToolResult
from wieldy.core.user_questions import UserAnswer, UserQuestion
from wieldy.engine.workspace_services import HostServices
from wieldy.policy.permissions.protected_watch import KEEP_OUT, TAKE_IN
from wieldy.shell.sandbox.sandbox import choose_wrapper

pytestmark = pytest.mark.asyncio

NEW = [
    *(".husky/pre-commit", ".vscode/tasks.json", ".claude/settings.json", ".wieldy/settings.json", ".mcp.json"),
    *(".gitmodules", ".idea/x.xml", ".env", ".bashrc", ".npmrc", ".git/hooks/pre-commit", ".git/config.worktree"),
    *("sub/.vscode/tasks.json", "deep/er/.env"),
]
MECHANISMS = ["none", "bubblewrap", "landlock"]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WIELDY_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "root"
    folder.mkdir()
    subprocess.run(["git", "init", "-q", folder], check=True)
    (folder / ".git" / "config").chmod(0o644)  # whatever the umask
    return folder


class Person:
    """Answers questions about files that were put aside."""

    def __init__(self, answer: str) -> None:
        self.questions: list[str] = []
        self._answer = answer

    async def answer(self, questions: Sequence[UserQuestion]) -> Sequence[UserAnswer] | None:
        self.questions += [question.question for question in questions]
        return [UserAnswer((self._answer,))]


def bypassing(root: Path, mechanism: str = "none", person: Person | None = None, **settings: Any) -> Toolbox:
    if mechanism != "none" and choose_wrapper(None, mechanism).mechanism != mechanism:
        skip_untested(f"protected files in the {mechanism} sandbox: it does not work here")
    sandbox = {} if mechanism == "none" else {"enabled": True, "mechanism": mechanism}
    sandbox |= settings.pop("sandbox", {})
    return Toolbox(
        root,
        settings={"sandbox": sandbox, **settings},
        mode="bypassPermissions",
        host=HostServices(question_handler=person),
    )


async def run_script(box: Toolbox, text: str, **options) -> ToolResult:
    """Run code whose effects no text shows."""
    script = Path(box.workspace.root, "script.py")
    script.write_text("import os, pathlib\n" + text)
    return await box.call("Bash", command="python3 script.py", **options)


def writes(paths: Sequence[str], content: str = "evil") -> str:
    return (
        f"for path in {list(paths)!r}:\n"
        "  try: os.makedirs(os.path.dirname(path) or '.', exist_ok=True); pathlib.Path(path).write_text("
        f"{content!r})\n  except OSError as error: print(error)\n"
    )


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_protected_files_that_did_not_exist_are_put_aside(root, mechanism):
    async with bypassing(root, mechanism) as box:
        result = await run_script(box, writes([*NEW, "ordinary"]))
        assert (root / "ordinary").exists()
        assert [name for name in NEW if (root / name).exists()] == []
        assert not (root / ".vscode").exists()
        assert "protected files: the command made" in result.text
        assert "more. Do not try another way" in result.text
        copies = [path.read_text() for path in box.workspace.session_dir.glob("put-aside/*/*")]
        # The folder of hooks is mounted read-only.
        assert copies == ["evil"] * (len(NEW) - (mechanism == "bubblewrap"))


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_protected_files_that_exist_stay_as_they_were(root, mechanism):
    for name in NEW:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("mine")
        (root / name).chmod(0o640)
    (root / ".wieldy/settings.json").write_text("{}")
    (root / ".claude/settings.json").write_text("{}")
    (root / ".mcp.json").write_text("{}")
    before = {name: (root / name).read_text() for name in NEW}
    async with bypassing(root, mechanism) as box:
        await run_script(
            box, writes(NEW) + f"\nfor path in {NEW[:3]!r}:\n  try: os.unlink(path)\n  except OSError: pass"
        )
        assert {name: (root / name).read_text() for name in NEW} == before
        assert {(root / name).stat().st_mode & 0o777 for name in NEW} == {0o640}


@pytest.mark.parametrize(
    "command",
    [
        "echo '[core]' > .g*/config",
        "git diff --no-index --output=.git/config a b",
        "git log --output=.git/hooks/pre-commit",
        "ln .git/config alias; echo x >> alias",
        'python3 -c \'open(".git/config", "r+").write("#")\'',
        "mkdir .g; mv .git/hooks .g/hooks; mkdir .git/hooks; cp a .git/hooks/pre-commit",
        "rm -f .git/config",
        "ln -s ../a .git/hooks/pre-push",
        "cd .git && cp ../a hooks/pre-commit",
        "chmod o+w .git/config",
    ],
)
async def test_gits_own_files_cannot_be_changed_in_bypass_mode(root, command):
    (root / "a").write_text("#!/bin/sh\n")
    (root / "b").write_text("other\n")
    config = (root / ".git/config").read_text()
    async with bypassing(root) as box:
        result = await box.call("Bash", command=command)
        assert (root / ".git/config").read_text() == config, result.text
        assert not (root / ".git/config").stat().st_mode & 0o022
        hooks = [path.name for path in (root / ".git").glob("hooks/*") if path.suffix != ".sample"]
        assert hooks == [], result.text


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_the_repository_around_a_project_is_compared_too(root, mechanism):
    (root / "part").mkdir()
    paths = [root / ".git" / name for name in ("config", "hooks/pre-commit", "config.worktree")]
    before = [path.read_text() if path.exists() else None for path in paths]
    async with bypassing(root / "part", mechanism) as box:
        await run_script(box, writes([str(path) for path in paths], "[core]\nfsmonitor = ./evil\n"))
    assert [path.read_text() if path.exists() else None for path in paths] == before


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_the_repository_of_a_linked_work_tree_is_compared_too(root, tmp_path, mechanism):
    for command in ("-c user.name=a -c user.email=a@b commit -q --allow-empty -m x", "worktree add -q ../tree"):
        subprocess.run(["git", "-C", root, *command.split()], check=True)
    names = ("config", "hooks/pre-commit", "worktrees/tree/commondir", "worktrees/tree/config.worktree")
    paths = [root / ".git" / name for name in names]
    before = [path.read_text() if path.exists() else None for path in paths]
    async with bypassing(tmp_path / "tree", mechanism) as box:
        await run_script(box, writes([str(path) for path in paths], "[core]\nfsmonitor = ./evil\n"))
    assert [path.read_text() if path.exists() else None for path in paths] == before


@pytest.mark.parametrize(
    "command",
    [
        "git config user.name me; git remote add origin https://example.com/x; git checkout -q -b side",
        "git -c user.name=a -c user.email=a@b commit -q --allow-empty -m x; git worktree add -q ../tree; git tag v1",
        "git init -q sub; git clone -q . copy; mkdir -p node_modules/x .venv/bin; touch node_modules/x/.npmrc .venv/bin/x",
        "mkdir -p .wieldy/memory; touch .wieldy/memory/note.md .env.example",
    ],
)
@pytest.mark.parametrize("mechanism", ["none", "landlock"])
async def test_ordinary_work_puts_nothing_aside(root, command, mechanism):
    (root / "work.sh").write_text(command)
    async with bypassing(root, mechanism) as box:
        result = await box.call("Bash", command="sh work.sh")
        assert "protected files" not in result.text
        assert not (box.workspace.session_dir / "put-aside").exists()


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_a_repository_that_redirections_make_file_by_file_is_put_aside(root, mechanism):
    (root / "evil").write_text("[core]\n\tfsmonitor = ./run\n")
    command = (
        "mkdir -p made/objects made/refs made/hooks && echo 'ref: refs/heads/m' > made/HEAD && cp evil made/config"
        " && echo x > made/hooks/pre-commit"
    )
    async with bypassing(root, mechanism) as box:
        result = await box.call("Bash", command=command)
        assert "protected files: the command made made/config" in result.text
    assert not (root / "made/config").exists()
    assert not (root / "made/hooks/pre-commit").exists()


async def test_the_home_folder_is_compared_where_a_command_runs_outside_a_sandbox(root, home):
    (home / ".ssh").mkdir()
    for name in (".bashrc", ".ssh/authorized_keys", ".ssh/known_hosts"):
        (home / name).write_text("mine")
    names = [".bashrc", ".profile", ".ssh/authorized_keys", ".ssh/rc", ".config/git/config", ".claude/settings.json"]
    async with bypassing(root) as box:
        result = await run_script(box, writes([str(home / name) for name in (*names, ".ssh/known_hosts", "plain")]))
        assert "protected files" in result.text
    changed = sorted(
        str(path.relative_to(home)) for path in home.rglob("*") if path.is_file() and path.read_text() == "evil"
    )
    assert changed == [".ssh/known_hosts", "plain"]


async def test_it_is_compared_in_landlock_too_where_it_lies_in_a_temp_folder(root, home):
    (home / ".bashrc").write_text("mine")
    async with bypassing(root, "landlock") as box:
        await run_script(box, writes([str(home / ".bashrc"), str(home / ".profile")]))
    assert (home / ".bashrc").read_text() == "mine"
    assert not (home / ".profile").exists()


async def test_what_the_person_was_asked_about_stays(root):
    rules = {"allow": ["Edit(/.env)", "Bash"]}
    async with bypassing(root, permissions=rules) as box:
        await run_script(box, writes([".env"], "by rule"))
        assert (root / ".env").read_text() == "by rule"
    async with Toolbox(root, settings={}, ask=lambda question: True) as box:
        result = await box.call("Bash", command="mkdir .husky && echo x > .husky/pre-push && echo y > .npmrc")
        assert (root / ".husky/pre-push").exists(), result.text
        assert (root / ".npmrc").exists()
        assert "protected files" not in result.text


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_the_person_may_take_files_in_or_leave_them_out(root, mechanism):
    (root / ".env").write_text("mine")
    person = Person(TAKE_IN)
    async with bypassing(root, mechanism, person) as box:
        result = await run_script(box, writes([".husky/pre-commit", ".npmrc"], "wanted"))
        assert "The user took them in" in result.text
        assert (root / ".husky/pre-commit").read_text() == "wanted"
        assert (root / ".npmrc").read_text() == "wanted"
        assert "wanted" in person.questions[0]
        # From now on they are as they should be.
        assert "protected files" not in (await run_script(box, "")).text
    person = Person(KEEP_OUT)
    async with bypassing(root, mechanism, person) as box:
        assert "took" not in (await run_script(box, writes([".vscode/tasks.json"]))).text
        assert len(person.questions) == 1
    assert not (root / ".vscode").exists()


@pytest.mark.parametrize("mechanism", ["none", "bubblewrap"])
async def test_a_command_in_the_background_is_looked_after_while_it_runs_and_at_its_end(root, mechanism):
    code = (
        writes([".env"])
        + "import sys, time\nprint('one', flush=True)\nwhile not os.path.exists('go'): time.sleep(0.05)\n"
    )
    async with bypassing(root, mechanism) as box:
        await run_script(box, code + writes([".npmrc"]), run_in_background=True)
        look = await box.call("BashOutput", bash_id="bash_1", wait=20)
        assert "the command made .env" in look.text
        assert not (root / ".env").exists()
        (root / "go").touch()
        look = await box.call("BashOutput", bash_id="bash_1", wait=20)
        assert "the command made .npmrc" in look.text
        assert not (root / ".npmrc").exists()


async def test_what_is_left_of_a_command_is_looked_after_until_the_session_ends(root):
    code = "if os.fork() == 0:\n  import time\n  while not os.path.exists('go'): time.sleep(0.05)\n  "
    async with bypassing(root) as box:
        result = await run_script(box, code + "open('.env', 'w').write('evil'); open('done', 'w'); time.sleep(300)")
        assert "bash_1" in result.text
        (root / "go").touch()
        while not (root / "done").exists():
            await run_script(box, "import time; time.sleep(0.05)")
    assert not (root / ".env").exists()


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("name", ["pkg/.env", "pkg/.vscode/tasks.json", "lib/repo/.git/config", "tools/deep/hook.py"])
async def test_moving_a_folder_above_them_away_and_making_it_anew_changes_nothing(root, mechanism, name):
    subprocess.run(["git", "init", "-q", root / "lib/repo"], check=True)
    for each in ("pkg/.env", "pkg/.vscode/tasks.json", "tools/deep/hook.py"):
        (root / each).parent.mkdir(parents=True, exist_ok=True)
        (root / each).write_text("mine")
    before = (root / name).read_text()
    top = name.partition("/")[0]
    hook = {"Stop": [{"hooks": [{"type": "command", "command": "python3 tools/deep/hook.py"}]}]}
    code = f"import shutil\nos.rename({top!r}, 'away'); shutil.copytree('away', {top!r})\n"
    async with bypassing(root, mechanism, hooks=hook) as box:
        result = await run_script(box, code + f"os.unlink({name!r})\n" + writes([name], "[core]\nfsmonitor = ./evil\n"))
        assert (root / name).read_text() == before, result.text
        assert "protected files" in result.text


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_a_git_file_that_leads_out_of_the_project_is_judged_by_what_is_there(root, tmp_path, mechanism):
    made = f"""
import tempfile
for name, setting in (("harmless", "bare = true"), ("hostile", "fsmonitor = ./evil")):
    repository = os.path.join({str(tmp_path)!r}, name)
    for folder in ("objects", "refs", "hooks"): os.makedirs(os.path.join(repository, folder))
    pathlib.Path(repository, "HEAD").write_text("ref: refs/heads/main")
    pathlib.Path(repository, "config").write_text("[core]\\n" + setting)
    os.makedirs(name)
    pathlib.Path(name, ".git").write_text("gitdir: " + repository)
os.mkdir("linked")
os.symlink(repository, "linked/.git")
"""
    async with bypassing(root, mechanism) as box:
        await run_script(box, made)
    assert not (root / "hostile/.git").exists()
    assert not (root / "linked/.git").is_symlink()
    # In bubblewrap the temp folder is another one: outside, nothing is there yet.
    assert (root / "harmless/.git").exists() == (mechanism != "bubblewrap")


async def test_what_a_process_without_output_does_after_its_command_is_put_aside(root):
    code = (
        "import time\nif os.fork() == 0:\n  os.setsid(); null = os.open('/dev/null', os.O_RDWR)\n"
        "  os.dup2(null, 1); os.dup2(null, 2)\n  while not os.path.exists('go'): time.sleep(0.05)\n  "
    )
    async with bypassing(root) as box:
        result = await run_script(box, code + "open('.env', 'w').write('evil'); open('done', 'w'); time.sleep(300)")
        assert "still running" in result.text
        (root / "go").touch()
        while not (root / "done").exists():
            time.sleep(0.05)
        assert "made .env" in (await run_script(box, "")).text
        assert not (root / ".env").exists()
        (root / "done").unlink()
        started = await run_script(
            box, code + "open('.npmrc', 'w').write('evil'); open('done', 'w'); time.sleep(300)", run_in_background=True
        )
        assert not started.is_error
        while not (root / "done").exists():
            time.sleep(0.05)
    assert not (root / ".npmrc").exists()


async def test_our_own_edits_meanwhile_are_no_change_of_the_command(root):
    async with Toolbox(root, settings={}, ask=lambda question: True) as box:
        await run_script(box, "import time\nwhile not os.path.exists('go'): time.sleep(0.05)", run_in_background=True)
        await box.call("Write", file_path=str(root / ".env"), content="mine\n")
        (root / "go").touch()
        look = await box.call("BashOutput", bash_id="bash_1", wait=20)
        assert "protected" not in look.text
    assert (root / ".env").read_text() == "mine\n"


@pytest.mark.parametrize("settings", [{"journal": {"enabled": False}}, {"bash": {"snapshot": False}}])
async def test_it_does_not_depend_on_undo_or_on_git(tmp_path, settings):
    root = tmp_path / "plain"
    root.mkdir()
    async with bypassing(root, **settings) as box:
        await run_script(
            box, writes([".env", ".git/config", ".git/HEAD", ".git/objects/x", ".git/refs/x"], "[core]\npager=x")
        )
    assert not (root / ".env").exists()
    assert not (root / ".git/config").exists()


@pytest.mark.parametrize("mechanism", ["none", "bubblewrap"])
async def test_undo_does_not_bring_back_what_was_put_aside(root, mechanism):
    async with bypassing(root, mechanism) as box:
        await run_script(box, writes([".vscode/tasks.json", "ordinary"]))
        await box.undo()
        await box.redo()
    assert (root / "ordinary").exists()
    assert not (root / ".vscode").exists()


async def test_where_there_is_too_much_to_look_through_outer_folders_are_compared_and_the_result_says_so(root):
    (root / "many").mkdir()
    for number in range(60):
        (root / "many" / str(number)).mkdir()
    async with bypassing(root, sandbox={"maxEntries": 40}) as box:
        result = await run_script(box, writes([".env", ".vscode/tasks.json", ".git/hooks/pre-commit"]))
        assert "sandbox.maxEntries" in result.text
    assert not (root / ".env").exists()
    assert not (root / ".vscode").exists()
    assert not (root / ".git/hooks/pre-commit").exists()


async def test_a_sandboxed_command_asks_where_there_is_too_much_to_look_through(root):
    (root / "many").mkdir()
    for number in range(60):
        (root / "many" / str(number)).mkdir()
    async with bypassing(root, "bubblewrap", sandbox={"maxEntries": 40}) as box:
        result = await box.call("Bash", command="touch made")
        assert result.outcome.kind == "refused"
        assert "sandbox.maxEntries" in result.text
        assert not (await box.call("Bash", command="ls")).is_error
    assert not (root / "made").exists()


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_files_that_hooks_and_servers_name_are_not_changed(root, mechanism):
    (root / "hooks").mkdir()
    for name in ("hooks/check.sh", "server.py"):
        (root / name).write_text("mine")
    (root / "hooks/check.sh").chmod(0o755)
    settings = {
        "hooks": {"Stop": [{"hooks": [{"type": "command", "command": "./hooks/check.sh; ./hooks/absent.sh"}]}]},
        "statusLine": {"type": "command", "command": "sh -c 'python3 server.py'"},
    }
    async with bypassing(root, mechanism, None, **settings) as box:
        await run_script(box, writes(["hooks/check.sh", "hooks/absent.sh", "server.py", "hooks/other"]))
        assert (root / "hooks/check.sh").read_text() == "mine"
        assert (root / "server.py").read_text() == "mine"
        assert not (root / "hooks/absent.sh").exists()
        assert (root / "hooks/other").exists()
    async with Toolbox(root, settings=settings, mode="acceptEdits") as box:
        await box.call("Read", file_path=str(root / "server.py"))
        result = await box.call("Write", file_path=str(root / "server.py"), content="x")
        assert "a server of the settings" in result.text
        assert result.is_error


async def test_a_link_in_place_of_their_folder_does_not_keep_them_away(root):
    (root / ".vscode").mkdir()
    (root / ".vscode/tasks.json").write_text("mine")
    async with bypassing(root) as box:
        await run_script(
            box,
            "os.rename('.vscode', 'moved'); os.symlink('moved', '.vscode'); open('moved/tasks.json', 'w').write('evil')",
        )
    assert not (root / ".vscode").is_symlink()
    assert (root / ".vscode/tasks.json").read_text() == "mine"


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_a_module_beside_the_script_of_a_hook_is_put_aside(root, mechanism):
    (root / "tools").mkdir()
    (root / "tools/hook.py").write_text("import json, helper\n")
    (root / "tools/helper.py").write_text("mine")
    hooks = {"Stop": [{"hooks": [{"type": "command", "command": "python3 tools/hook.py"}]}]}
    async with bypassing(root, mechanism, hooks=hooks) as box:
        await run_script(box, writes(["tools/json.py", "tools/helper.py", "tools/plain.py"]))
    assert not (root / "tools/json.py").exists()
    assert (root / "tools/helper.py").read_text() == "mine"
    assert (root / "tools/plain.py").read_text() == "evil"


@pytest.mark.skipif(os.getuid() != 0, reason="needs to become another user")
async def test_files_of_another_user_do_not_end_the_comparison(root):
    secret = root / "private"
    secret.mkdir(mode=0o700)
    (root / ".env").write_text("mine")
    os.chown(root / ".env", 12345, 12345)
    async with bypassing(root) as box:
        await run_script(box, writes([".env"]))
    assert (root / ".env").read_text() == "mine"
