"""A command runs as it would in bash itself, byte for byte."""

from __future__ import annotations

import asyncio
import shlex
import string
import subprocess
import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from wieldy.core.errors import ToolFailure
from wieldy.core.workspace import Workspace
from wieldy.engine.workspace_services import open_workspace
from wieldy.shell.running.shell import CommandResult, collect_result, stop_and_collect


@pytest.fixture
def workspace(tmp_path):
    (tmp_path / "project").mkdir()
    return open_workspace(tmp_path / "project", session_dir=tmp_path / "session")


async def ran(workspace: Workspace, command: str, limit: float = 20.0) -> CommandResult:
    shell = workspace.services.shells.start(command, cwd=workspace.cwd)
    while await shell.next_progress(shell.started + limit):
        pass
    return await collect_result(shell) if shell.exit.done() else await stop_and_collect(shell, "timed out")


async def once(workspace: Workspace, command: str, limit: float = 20.0) -> CommandResult:
    try:
        return await ran(workspace, command, limit)
    finally:
        await workspace.aclose()


def in_bash(command: str, cwd: str) -> tuple[str, int]:
    done = subprocess.run(
        ["bash", "--norc", "--noprofile", "-c", "--", command],
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    return done.stdout.decode(), done.returncode


AS_IN_BASH = [
    'echo "a != b"',
    "printf '%s' '!x'",
    'echo "hello!" !! !$ ^a^b',
    "echo === b; status=1; path=x; echo $status$path",
    'echo $0 "$#" "$@" $LINENO $?',
    "echo one\necho $LINENO\n",
    "exit 3",
    "set -e; echo before; false; echo after",
    "set -eu; echo $undefined",
    "set -x; echo traced",
    "set -C; echo x > f; echo y > f; cat f; rm f",
    "exec echo replaced",
    "exec false",
    "exec /nonexistent",
    "exec 2>/dev/null; ls /nonexistent; echo still here",
    "trap 'echo bye' EXIT; echo hi",
    "trap 'echo bye; exit 7' EXIT; exit 2",
    "trap 'echo debug' DEBUG; true; echo end",
    "trap 'echo err' ERR; false; true",
    "echo 'unbalanced",
    'echo "unbalanced',
    "echo $(",
    "if true; then",
    "-foo",
    "--version-of-nothing",
    "cat",
    "cat /dev/stdin; cat -; read line; echo $?",
    "echo out; echo err >&2; echo out again",
    "return 5",
    "f() { return 4; }; f",
    "(exit 9)",
    "echo $(echo $(echo nested))",
    "cat <<'E'\n$HOME `x` \\ '\"\nE",
    "cat <<< 'here string'",
    "diff <(echo a) <(echo b)",
    "false | true; echo ${PIPESTATUS[@]}",
    "shopt -s expand_aliases; alias hi='echo aliased'\nhi",
    "echo \\\n  continued",
    "echo a # a comment",
    "# only a comment",
    "tty; test -t 0; echo $?; (: < /dev/tty) 2>/dev/null; echo $?",
    "bash -c 'echo inner; exit 6'; echo $?",
    "kill -TERM $$; sleep 5",
    "echo $-",
    "ulimit -n 0 2>/dev/null; echo x",
    "ulimit -a | grep -v 'file locks'; flock -x . echo locked",
    "\techo tab first",
    "\n\n  echo blank lines first",
    "echo trailing \\",
]


@pytest.mark.asyncio
@pytest.mark.parametrize("command", AS_IN_BASH)
async def test_output_and_code_are_those_of_bash(workspace, command):
    expected, code = in_bash(command, workspace.root)
    result = await once(workspace, command)
    assert (result.text, result.code) == (expected, code)


@pytest.mark.asyncio
async def test_every_ascii_character_reaches_the_program_unchanged(workspace):
    sample = "".join(map(chr, range(1, 127)))
    result = await once(workspace, f"printf %s {shlex.quote(sample)} | od -An -v -tu1 | tr -s ' \\n' ' '")
    assert result.text.split() == [str(code) for code in range(1, 127)]


@given(st.lists(st.text(string.punctuation + " abc", max_size=12), min_size=1, max_size=4))
@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
def test_any_quoting_of_punctuation_reads_as_in_bash(tmp_path, words):
    command = "printf '%s\\n' " + " ".join(map(shlex.quote, words)) + ' "${#}"'
    workspace = open_workspace(tmp_path, session_dir=tmp_path / "session")
    result = asyncio.run(once(workspace, command))
    assert (result.text, result.code) == in_bash(command, str(tmp_path))


@pytest.mark.asyncio
async def test_a_command_longer_than_any_argument_runs(workspace):
    result = await once(workspace, "x='" + "y" * 300_000 + "'\necho ${#x} $#; cd /\nexit 5")
    assert (result.text, result.code, result.directory) == ("300000 0\n", 5, "/")
    assert not list(workspace.session_dir.glob("*.sh"))


@pytest.mark.asyncio
@pytest.mark.parametrize("bad", ["echo \0", "echo \ud99c"])
async def test_what_bash_cannot_be_given_is_refused_in_words(workspace, bad):
    with pytest.raises(ToolFailure, match=r"Send|Write"):
        await once(workspace, bad)


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "command",
    [
        "cd /usr",
        "cd /usr; exit 3",
        "cd /usr; set -e; false",
        "cd /usr; set -eux; echo $undefined",
        "cd /usr; set -C",
        "cd /usr; trap 'echo x' DEBUG; true",
        "cd /usr && (cd /bin) && x=$(cd /; pwd)",
        "cd /usr; nonexistent-command",
        "cd /usr\nif",
        "pushd /usr >/dev/null",
        "cd /usr; cd() { :; }; pwd() { echo /fake; }; PWD=/fake",
        "cd /usr; exec >/dev/null 2>&1",
        "cd /usr; unset HOME PATH",
    ],
)
async def test_the_directory_a_command_ends_in_is_known(workspace, command):
    assert (await once(workspace, command)).directory == "/usr"


@pytest.mark.asyncio
@pytest.mark.parametrize("command", ["cd /usr; exec true", "trap 'echo x' EXIT; cd /usr", "cd /usr; kill -9 $$"])
async def test_where_bash_cannot_say_the_directory_is_unknown_not_guessed(workspace, command):
    assert (await once(workspace, command)).directory is None


@pytest.mark.asyncio
@pytest.mark.parametrize("instead", ["mkfifo", "ln -s /etc/passwd", "mkdir"])
async def test_a_command_that_tampers_with_its_report_is_not_believed(workspace, instead):
    folder = workspace.session_dir / "shell"
    # Bash writes its report in the end, through whatever is there; exec keeps it from writing.
    tamper = f"token=$(echo $WIELDY_PROCESS_TAG | tr -d ' '); {instead} {folder}/${{token}}cwd; exec true"
    assert (await once(workspace, tamper)).directory is None


@pytest.mark.asyncio
async def test_a_session_may_be_kept_in_a_folder_of_any_name(tmp_path):
    workspace = open_workspace(tmp_path, session_dir=tmp_path / "it's a 'b' \"c\" $d\n`e` \\f")
    result = await once(workspace, "mkdir sub && cd sub")
    assert (result.directory, result.text) == (f"{workspace.root}/sub", "")
    await workspace.aclose()


@pytest.mark.asyncio
async def test_odd_directory_names_survive(workspace):
    odd = "a 'b' \"c\" $d\n`e` \\f"
    result = await once(workspace, f"mkdir {shlex.quote(odd)} && cd {shlex.quote(odd)}")
    assert result.directory == f"{workspace.root}/{odd}"


@pytest.mark.asyncio
async def test_the_preamble_leaves_nothing_behind(workspace):
    result = await once(
        workspace, "env | grep -E '^(BASH_ENV|WIELDY_AT_EXIT|WIELDY_TAG_NUMBER|WIELDY_USERS)'; bash -c 'trap -p'"
    )
    assert result.text == ""


@pytest.mark.asyncio
async def test_a_bash_env_of_the_users_own_reaches_scripts_but_not_the_command(tmp_path):
    (tmp_path / "rc").write_text("echo from the rc\n")
    workspace = open_workspace(
        tmp_path, session_dir=tmp_path / "s", env={"BASH_ENV": str(tmp_path / "rc"), "PATH": "/usr/bin:/bin"}
    )
    assert (await once(workspace, "echo first; bash -c 'echo second'")).text == "first\nfrom the rc\nsecond\n"


@pytest.mark.asyncio
@pytest.mark.parametrize("name", ["WIELDY_ENV_FILE", "CLAUDE_ENV_FILE"])
async def test_the_env_file_is_sourced_first_and_variables_do_not_persist(tmp_path, name):
    (tmp_path / "env file").write_text("export GREETING='from the file'\nfalse\n")
    workspace = open_workspace(
        tmp_path, session_dir=tmp_path / "s", env={name: str(tmp_path / "env file"), "PATH": "/usr/bin:/bin"}
    )
    assert (await ran(workspace, 'echo "$? $GREETING"; export LATER=1')).text == "0 from the file\n"
    assert (await once(workspace, 'echo "[$LATER]"')).text == "[]\n"


@pytest.mark.asyncio
async def test_programs_that_would_wait_for_a_person_end_at_once(workspace):
    commands = (
        "git init -q . && git -c user.name=a -c user.email=a@b commit --allow-empty",
        "GIT_PAGER= git log",
        "read -p 'password: ' x",
        "sudo -n -v 2>&1 || true",
        "python3 -c 'input()'",
        "ssh -o BatchMode=yes nobody@127.0.0.1 -p 1 2>&1",
    )
    start = time.monotonic()
    for command in commands:
        await ran(workspace, command, limit=15)
    assert time.monotonic() - start < 15
    await workspace.aclose()


@pytest.mark.asyncio
async def test_both_streams_keep_their_order(workspace):
    result = await once(workspace, "for i in 1 2 3 4 5; do echo out $i; echo err $i >&2; done")
    assert result.text == "".join(f"out {i}\nerr {i}\n" for i in range(1, 6))


@pytest.mark.asyncio
async def test_a_state_folder_that_cannot_be_written_is_told_in_a_sentence(tmp_path):
    (tmp_path / "state").write_text("a file, where a folder should be")
    workspace = open_workspace(tmp_path, session_dir=tmp_path / "state" / "session")
    with pytest.raises(ToolFailure, match=r"state/session/shell cannot be made: not a directory. Nothing was run"):
        workspace.services.shells.start("true", cwd=workspace.cwd)
    await workspace.aclose()
