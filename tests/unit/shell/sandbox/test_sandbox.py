"""What the sandbox forbids is tried, not assumed; what this system cannot do is said."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from tests.needs import skip_untested

from wieldy import Toolbox
from wieldy.core.workspace import Workspace
from wieldy.engine.workspace_services import open_workspace
from wieldy.shell.running.launch import find_bash
from wieldy.shell.running.shell import CommandResult, Shell, collect_result
from wieldy.shell.sandbox import landlock
from wieldy.shell.sandbox.policy import BUILD_CACHES, FEW_RETRIES, policy_for
from wieldy.shell.sandbox.sandbox import (
    NO_SANDBOX,
    Wrapper,
    choose_wrapper,
    find_blocked,
    probe,
    probe_wrapper,
)

BASH = find_bash(None)


def _works(name: str) -> bool:
    return choose_wrapper(None, name).mechanism == name


needs_bubblewrap = pytest.mark.skipif(
    not _works("bubblewrap"),
    reason="NOT TESTED: the bubblewrap sandbox: bubblewrap does not work here",
)
needs_landlock = pytest.mark.skipif(
    not _works("landlock"), reason="NOT TESTED: the Landlock sandbox: this kernel has no Landlock"
)
either = pytest.mark.parametrize(
    "mechanism", [pytest.param("bubblewrap", marks=needs_bubblewrap), pytest.param("landlock", marks=needs_landlock)]
)


def place(
    tmp_path: Path, mechanism: str, keep_env: Sequence[str] = (), variables: Mapping[str, str] | None = None, **sandbox
) -> Workspace:
    for name in ("project", "home/.ssh", "outside"):
        (tmp_path / name).mkdir(parents=True, exist_ok=True)
    (tmp_path / "home" / ".ssh" / "id").write_text("the key\n")
    env = {name: value for name, value in os.environ.items() if name not in BUILD_CACHES | FEW_RETRIES}
    env |= {"HOME": str(tmp_path / "home"), "TMPDIR": str(tmp_path / "project"), "API_TOKEN": "t", **(variables or {})}
    settings = {"sandbox": {"enabled": True, "mechanism": mechanism, **sandbox}, "bash": {"keepEnv": list(keep_env)}}
    return open_workspace(tmp_path / "project", session_dir=tmp_path / "session", settings=settings, env=env)


async def ran(workspace: Workspace, command: str, *, without_temp: bool = True) -> CommandResult:
    session = workspace.services.shells
    sandbox = workspace.services.sandbox
    policy = policy_for(workspace, also_writable=(str(session.folder),))
    if without_temp:
        # The tests themselves live in the system's temp folder, which is writable by rule.
        sockets = tuple(path for path in policy.sockets if not path.startswith("/tmp/"))
        policy = replace(policy, temporary=(), sockets=sockets)
    prefix = (await sandbox.wrapper()).prefix(policy)
    confine = await sandbox.confinement()
    shell = session.start(
        command, cwd=workspace.cwd, confine=lambda argv, env: ([*prefix, *argv], confine(argv, env)[1])
    )
    while await shell.next_progress(shell.started + 30):
        pass
    try:
        return await collect_result(shell)
    finally:
        await workspace.aclose()


@either
@pytest.mark.asyncio
async def test_work_inside_the_project_goes_on_as_ever(tmp_path, mechanism):
    workspace = place(tmp_path, mechanism)
    result = await ran(
        workspace, "mkdir sub && cd sub && echo x > file && mv file other && cat other && echo y >/dev/null"
    )
    assert (result.text, result.code) == ("x\n", 0)
    assert result.directory == str(tmp_path / "project" / "sub")


@either
@pytest.mark.asyncio
async def test_nothing_is_written_outside(tmp_path, mechanism):
    result = await ran(
        place(tmp_path, mechanism), f"echo x > {tmp_path}/outside/file; rm -rf {tmp_path}/home; mkdir {tmp_path}/new"
    )
    assert result.code
    assert not (tmp_path / "outside" / "file").exists()
    assert not (tmp_path / "new").exists()
    assert (tmp_path / "home" / ".ssh" / "id").exists()
    assert find_blocked(result.text)


@either
@pytest.mark.asyncio
async def test_secrets_are_neither_read_nor_in_the_environment(tmp_path, mechanism):
    result = await ran(
        place(tmp_path, mechanism), f"cat {tmp_path}/home/.ssh/id; echo [$API_TOKEN]; ls {tmp_path}/project >/dev/null"
    )
    assert "the key" not in result.text
    assert "[]\n" in result.text


@either
@pytest.mark.asyncio
async def test_a_secret_may_be_granted(tmp_path, mechanism):
    workspace = place(tmp_path, mechanism, keep_env=["API_TOKEN"], allowRead=["~/.ssh"])
    result = await ran(workspace, f"cat {tmp_path}/home/.ssh/id; echo [$API_TOKEN]")
    assert result.text == "the key\n[t]\n"


@either
@pytest.mark.asyncio
@pytest.mark.parametrize("allowed", [False, True])
async def test_the_network_is_off_unless_granted(tmp_path, mechanism, allowed):
    with socket.create_server(("127.0.0.1", 0)) as server:
        workspace = place(tmp_path, mechanism, network=allowed)
        result = await ran(workspace, f"(: > /dev/tcp/127.0.0.1/{server.getsockname()[1]}) && echo connected")
    assert ("connected" in result.text) is allowed


@needs_bubblewrap
@pytest.mark.asyncio
@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
async def test_git_can_commit_but_hooks_and_config_stay(tmp_path):
    workspace = place(tmp_path, "bubblewrap")
    git = f"git -C {workspace.root} -c user.name=a -c user.email=a@b"
    subprocess.run(f"git init -q {workspace.root}", shell=True, check=True)
    result = await ran(
        workspace,
        f"echo x > file && {git} add file && {git} commit -qm one && {git} log --format=%s;"
        "echo evil > .git/hooks/pre-commit; git config core.pager evil; mv .git .git2; mkdir .wieldy; rm -rf .git/hooks; true",
    )
    assert result.text.startswith("one\n")
    assert not (Path(workspace.root) / ".git" / "hooks" / "pre-commit").exists()
    assert "evil" not in (Path(workspace.root) / ".git" / "config").read_text()
    assert (Path(workspace.root) / ".git" / "HEAD").exists()


@needs_bubblewrap
@pytest.mark.asyncio
@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
async def test_what_a_command_plants_does_not_run_outside(tmp_path, monkeypatch):
    monkeypatch.setenv("WIELDY_HOME", str(tmp_path / "state"))
    project = tmp_path / "project"
    (project / "bin").mkdir(parents=True)
    monkeypatch.setenv("PATH", f"{project}/bin{os.pathsep}{os.environ['PATH']}")
    subprocess.run(["git", "init", "-q", project], check=True)
    ran_outside = tmp_path / "ran-outside"
    code = f"""
import os, shutil
shutil.copytree(".git", "evil", ignore=shutil.ignore_patterns("hooks"))
open("evil/config", "a").write("[core]\\n fsmonitor = touch {ran_outside}\\n")
open(".git/commondir", "w").write("../evil")
open("bin/git", "w").write("#!/bin/sh\\ntouch {ran_outside}\\n")
os.chmod("bin/git", 0o755)
"""
    settings = {"sandbox": {"enabled": True, "autoAllow": True, "mechanism": "bubblewrap"}}
    async with Toolbox(project, settings=settings) as box:
        result = await box.call("Bash", command=f"python3 - <<'END'{code}END")
        assert "Read-only file system" in result.text
        assert "the command made .git/commondir, which is protected because git runs programs" in result.text
        assert not (project / ".git" / "commondir").exists()
        await box.call("Bash", command="git status")
    subprocess.run(["git", "status"], cwd=project, check=True, stdout=subprocess.DEVNULL)
    assert not ran_outside.exists()


@needs_bubblewrap
@pytest.mark.asyncio
@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
@pytest.mark.parametrize("in_background", [False, True])
async def test_a_repository_that_a_command_makes_in_the_project_runs_nothing_outside(
    tmp_path, monkeypatch, in_background
):
    monkeypatch.setenv("WIELDY_HOME", str(tmp_path / "state"))
    project = tmp_path / "project"
    subprocess.run(["git", "init", "-q", project], check=True)
    ran_outside = tmp_path / "ran-outside"
    # `git status` in the project asks for the status of a repository that its index names.
    plant = (
        "git init -q sub && cd sub && git -c user.name=a -c user.email=a@b commit -q --allow-empty -m x && cd .. && "
        f"git add sub; git -C sub config core.fsmonitor 'touch {ran_outside}'; echo planted"
    )
    (project / "plant.sh").write_text(plant)
    settings = {"sandbox": {"enabled": True, "mechanism": "bubblewrap"}}
    async with Toolbox(project, settings=settings, mode="bypassPermissions") as box:
        if in_background:
            await box.call("Bash", command="sh plant.sh", run_in_background=True)
            await box.call("BashOutput", bash_id="bash_1", wait=20)
        else:
            result = await box.call("Bash", command="sh plant.sh")
            assert "the command made sub/.git/config, which is protected" in result.text
    assert not (project / "sub" / ".git" / "config").exists()
    subprocess.run(["git", "status"], cwd=project, check=True, stdout=subprocess.DEVNULL)
    assert not ran_outside.exists()


@needs_bubblewrap
@pytest.mark.asyncio
@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
async def test_a_linked_work_tree_can_commit(tmp_path):
    main = tmp_path / "main"
    subprocess.run(
        f"git init -q {main} && cd {main} && git -c user.name=a -c user.email=a@b commit -q --allow-empty -m zero "
        f"&& git worktree add -q {tmp_path}/project",
        shell=True,
        check=True,
    )
    result = await ran(
        place(tmp_path, "bubblewrap"),
        "echo x > f && git add f && git -c user.name=a -c user.email=a@b commit -qm one && git log --format=%s; "
        f"echo evil > {main}/.git/hooks/post-commit; echo evil > {main}/.git/worktrees/project/commondir",
    )
    assert "one\nzero\n" in result.text
    assert (main / ".git/worktrees/project/commondir").read_text() == "../..\n"
    assert not (main / ".git" / "hooks" / "post-commit").exists()


@either
@pytest.mark.asyncio
async def test_processes_in_a_sandbox_end_with_the_session(tmp_path, mechanism):
    workspace = place(tmp_path, mechanism)
    session = workspace.services.shells
    confine = await workspace.services.sandbox.confinement(also_writable=(str(tmp_path),))
    shell = session.start("setsid sleep 300 & trap '' TERM; sleep 300", cwd=workspace.cwd, confine=confine)
    await shell.next_progress(shell.started + 0.5)
    from wieldy.shell.running.reaper import ProcessTree, members

    assert members(ProcessTree(session.token))
    await workspace.aclose()
    assert members(ProcessTree(session.token)) == []


@either
def test_the_probe_reports_what_it_saw(mechanism):
    report = probe_wrapper(choose_wrapper(None, mechanism), BASH)
    assert report.works and report.writes and report.reads and report.tcp
    complete = mechanism == "bubblewrap"
    assert (report.git, report.udp, report.sockets) == (complete, complete, complete)
    assert any("sandbox.autoAllow has no effect" in line for line in report.lines()) is not complete
    assert any("NOT BLOCKED" in line for line in report.lines()) is (mechanism == "landlock")


def test_a_sandbox_that_holds_nothing_is_found_out():
    report = probe_wrapper(Wrapper("none"), BASH)
    assert report.works
    assert not (report.writes or report.reads or report.git or report.tcp or report.udp or report.sockets)
    assert "no sandbox" in report.lines()[0]


def test_a_broken_mechanism_is_not_chosen(tmp_path):
    fake = tmp_path / "bwrap"
    fake.write_text("#!/bin/sh\nexit 1\n")
    fake.chmod(0o755)
    assert choose_wrapper(f"{tmp_path}:/usr/bin:/bin", "bubblewrap") == NO_SANDBOX


@pytest.mark.asyncio
async def test_the_probe_of_a_workspace_says_plainly_when_there_is_none(tmp_path):
    workspace = place(tmp_path, "of another world")
    assert (await probe(workspace)).mechanism == "none"


def test_what_was_blocked_is_named_with_the_line_that_says_so():
    write = "hello\ntouch: cannot touch '/etc/x': Read-only file system\n"
    assert find_blocked(write) == "a file: “touch: cannot touch '/etc/x': Read-only file system”"
    network = "curl: (6) Could not resolve host: example.com"
    assert find_blocked(network) == f"the network: “{network}”"
    assert "the network" in (find_blocked("npm ERR! request failed, reason: getaddrinfo EAI_AGAIN registry") or "")
    assert find_blocked("SyntaxError: invalid syntax") is None


@needs_landlock
def test_paths_beside_a_forbidden_one_stay_readable(tmp_path):
    (tmp_path / "a" / "secret").mkdir(parents=True)
    (tmp_path / "a" / "open").mkdir()
    allowed = set(landlock.readable_paths([str(tmp_path / "a" / "secret")]))
    assert str(tmp_path / "a" / "open") in allowed
    assert not any((tmp_path / "a" / "secret").is_relative_to(path) for path in allowed)
    assert "/usr" in allowed


@needs_bubblewrap
@pytest.mark.asyncio
async def test_temp_is_private_and_lasts_for_the_session(tmp_path):
    with tempfile.TemporaryDirectory(dir="/tmp") as folder, socket.socket(socket.AF_UNIX) as agent:
        agent.bind(f"{folder}/agent")
        agent.listen()
        workspace = place(tmp_path, "bubblewrap")
        mark = f"/tmp/{Path(folder).name}-mark"
        try:
            first = await ran_confined(workspace, f"ls {folder}; echo mine > {mark}; pwd")
            second = await ran_confined(workspace, f"cat {mark}")
        finally:
            await workspace.aclose()
        assert f"cannot access '{folder}'" in first.text
        assert first.text.splitlines()[-1] == workspace.root
        assert second.text == "mine\n"
        assert not os.path.exists(mark)


@needs_bubblewrap
@pytest.mark.asyncio
async def test_build_caches_are_in_the_private_temp_folder_and_end_with_the_session(tmp_path):
    workspace = place(tmp_path, "bubblewrap")
    show = 'mkdir -p "$GOCACHE" "$UV_CACHE_DIR" && echo object | tee "$GOCACHE/object" /tmp/other; echo "$GOCACHE"'
    try:
        first = await ran_confined(workspace, show)
        second = await ran_confined(workspace, 'cat "$GOCACHE/object"')
    finally:
        await workspace.aclose()
    assert first.text == "object\n/tmp/.build-caches/go-build\n"
    assert second.text == "object\n"
    assert not os.path.exists("/tmp/.build-caches")
    temp = tmp_path / "session" / "sandbox-tmp"
    assert (temp / "other").exists()
    assert not (temp / ".build-caches").exists()


@needs_bubblewrap
@pytest.mark.asyncio
async def test_a_build_cache_that_the_person_chose_stays_where_it_is(tmp_path):
    workspace = place(tmp_path, "bubblewrap", variables={"GOCACHE": "/chosen"})
    try:
        result = await ran_confined(workspace, 'echo "$GOCACHE"')
    finally:
        await workspace.aclose()
    assert result.text == "/chosen\n"


@needs_bubblewrap
@pytest.mark.asyncio
async def test_go_tests_run_in_the_sandbox(tmp_path):
    if shutil.which("go") is None:
        skip_untested("go in the sandbox: it is not installed")
    module = tmp_path / "project" / "module"
    module.mkdir(parents=True)
    (module / "go.mod").write_text("module example\n\ngo 1.19\n")
    (module / "a_test.go").write_text('package example\n\nimport "testing"\n\nfunc TestA(t *testing.T) {}\n')
    # A home that is not in the private temp folder.
    with tempfile.TemporaryDirectory(dir=os.path.expanduser("~")) as home:
        workspace = place(tmp_path, "bubblewrap", variables={"HOME": home})
        try:
            result = await ran_confined(workspace, "cd module && go test ./...", seconds=300)
        finally:
            await workspace.aclose()
        assert (result.code, os.listdir(home)) == (0, []), result.text


@needs_bubblewrap
@pytest.mark.asyncio
@pytest.mark.parametrize(("network", "retries"), [(False, "0"), (True, "")])
async def test_package_managers_do_not_retry_where_there_is_no_network(tmp_path, network, retries):
    workspace = place(tmp_path, "bubblewrap", network=network)
    try:
        result = await ran_confined(workspace, 'echo "$npm_config_fetch_retries"')
    finally:
        await workspace.aclose()
    assert result.text == f"{retries}\n"


@needs_landlock
@pytest.mark.asyncio
async def test_no_build_cache_is_moved_to_a_temp_folder_that_others_use(tmp_path):
    workspace = place(tmp_path, "landlock")
    try:
        result = await ran_confined(workspace, 'echo "$GOCACHE$UV_CACHE_DIR"')
    finally:
        await workspace.aclose()
    assert result.text == "\n"


@pytest.fixture
def socket_at_home() -> Iterator[str]:
    """A Unix socket that somebody listens on, in the home folder."""
    with tempfile.TemporaryDirectory(dir=os.path.expanduser("~")) as folder, socket.socket(socket.AF_UNIX) as agent:
        agent.bind(f"{folder}/agent")
        agent.listen()
        yield f"{folder}/agent"


@needs_bubblewrap
@pytest.mark.asyncio
async def test_unix_sockets_outside_temp_are_not_reachable_unless_named(tmp_path, socket_at_home):
    code = f"import socket; socket.socket(socket.AF_UNIX).connect('{socket_at_home}'); print('join' + 'ed')"
    for named in (False, True):
        workspace = place(tmp_path, "bubblewrap", allowRead=[socket_at_home] if named else [])
        result = await ran(workspace, f'{sys.executable} -c "{code}"')
        assert ("joined" in result.text) is named


@needs_bubblewrap
@pytest.mark.asyncio
async def test_a_socket_that_is_gone_when_the_command_starts_does_not_fail_it(tmp_path, socket_at_home):
    workspace = place(tmp_path, "bubblewrap")
    session = workspace.services.shells
    confine = await workspace.services.sandbox.confinement(also_writable=(str(session.folder),))
    shutil.rmtree(os.path.dirname(socket_at_home))
    os.mkdir(os.path.dirname(socket_at_home))  # for the fixture
    assert (await finished(session.start("echo started", cwd=workspace.cwd, confine=confine))).text == "started\n"


async def ran_confined(workspace: Workspace, command: str, seconds: float = 30) -> CommandResult:
    session = workspace.services.shells
    confine = await workspace.services.sandbox.confinement(also_writable=(str(session.folder),))
    return await finished(session.start(command, cwd=workspace.cwd, confine=confine), seconds)


async def finished(shell: Shell, seconds: float = 30) -> CommandResult:
    while await shell.next_progress(shell.started + seconds):
        pass
    return await collect_result(shell)


@pytest.mark.parametrize(
    ("output", "code", "program", "what"),
    [
        ("", 6, "curl", "the network: curl ended with exit code 6"),
        ("", 4, "wget", "the network: wget ended with exit code 4"),
        ("", 22, "curl", None),
        ("", 6, "make", None),
        ("curl: (6) Could not resolve host: x", 0, "head", "the network: “curl: (6) Could not resolve host: x”"),
        ("bash: /root/x: Read-only file system", 0, "true", "a file: “bash: /root/x: Read-only file system”"),
        ("go: mkdir /root/.cache/go-build: read-only file system", 0, "true", "a file: "),
        ('unable to open global cache directory "/root/.cache/zig": ReadOnlyFileSystem', 1, "zig", "a file: "),
        ("open /root/x: permission denied", 1, "go", "a file: "),
        ("2 tests passed: Permission denied is shown", 0, "make", None),
        ("psql: error: connection to server failed: Connection refused", 2, "psql", "the network: "),
        ("Cannot connect to the Docker daemon at unix:///run/docker.sock.", 1, "docker", "the network: "),
    ],
)
def test_what_was_blocked_is_found_in_quiet_failures_and_in_pipes_that_succeed(output, code, program, what):
    found = find_blocked(output, code=code, program=program)
    assert found == what or (what and what.endswith(": ") and found == f"{what}“{output}”")


@needs_bubblewrap
@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("command", "is_said"),
    [
        ("ps aux | grep '[n]o such program'", True),
        ("pgrep -f no-such-program || echo none", True),
        ("echo ps aux", False),
        ("sleep 9 & kill $!", False),
    ],
)
async def test_a_command_that_looks_for_processes_is_told_that_it_does_not_see_all(tmp_path, command, is_said):
    if not choose_wrapper(None, "bubblewrap").own_processes:
        skip_untested("processes hidden in the sandbox: this system does not permit it")
    settings = {"sandbox": {"enabled": True}}
    env = {**os.environ, "WIELDY_HOME": str(tmp_path / "state")}
    async with Toolbox(tmp_path, settings=settings, mode="bypassPermissions", env=env) as box:
        result = await box.call("Bash", {"command": command})
    assert ("not visible inside" in result.text) == is_said, result.text


@needs_bubblewrap
@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("command", "is_offered"),
    [
        ("curl -s http://nowhere.invalid/", True),
        ("curl -sS http://nowhere.invalid/ 2>&1 | head -3", True),
        ("echo x > ~/made; true", True),
        ("cat said.txt", False),
        ("grep -r Read-only .", False),
        ("echo made > made", False),
    ],
)
async def test_a_command_that_the_sandbox_was_in_the_way_of_may_be_run_outside(tmp_path, command, is_offered):
    if command.startswith("curl") and shutil.which("curl") is None:
        skip_untested("curl in the sandbox: it is not installed")
    root = tmp_path / "root"
    root.mkdir()
    (root / "said.txt").write_text("touch: cannot touch 'x': Read-only file system\n")
    env = {**os.environ, "HOME": "/usr", "WIELDY_HOME": str(tmp_path / "state")}
    async with Toolbox(root, settings={"sandbox": {"enabled": True}}, mode="bypassPermissions", env=env) as box:
        result = await box.call("Bash", {"command": command})
    assert ("`sandbox: false`" in result.text) == is_offered, result.text
