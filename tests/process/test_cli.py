"""The command line as a person or a script meets it."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.fault_disks import DieAt, SimulatedDeath, WatchedDisk

from wieldy import __version__
from wieldy.cli import COMMANDS, run
from wieldy.core.workspace import Workspace
from wieldy.files.apply_edit import write_changes
from wieldy.files.journal.entries import ChangeOrigin, FileChange
from wieldy.files.journal.journal import Journal


def test_the_version_is_one_line(wieldy):
    done = wieldy("--version")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"wieldy {__version__}\n", "")


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_every_command_explains_itself_with_an_example(wieldy, command):
    done = wieldy(command, "--help")
    assert done.returncode == 0, done.stderr
    assert f"wieldy {command}" in done.stdout
    assert "example" in done.stdout


@pytest.mark.parametrize(
    "command",
    [
        *(f"mcp {name}" for name in ("add", "remove", "list", "get", "reconnect", "serve")),
        *(f"permissions {name}" for name in ("list", "explain", "allow", "deny", "ask", "test", "replay", "trust")),
        *(f"sessions {name}" for name in ("list", "show", "export", "resume")),
    ],
)
def test_every_subcommand_explains_itself_with_an_example(capsys, command):
    with pytest.raises(SystemExit) as exit:
        run([*command.split(), "--help"])
    help_text = capsys.readouterr().out
    assert exit.value.code == 0
    assert f"wieldy {command}" in help_text.partition("example")[2]


def test_help_lists_every_command(wieldy):
    done = wieldy("--help")
    assert done.returncode == 0
    for command in COMMANDS:
        assert f"\n  {command}" in done.stdout


def test_a_wrong_command_is_one_line_with_the_right_one(wieldy):
    done = wieldy("cal", "Read")
    assert done.returncode == 2
    assert done.stderr == "wieldy: no such command: cal. Did you mean `call`? To send it as a prompt: wieldy -- cal\n"


def test_a_tool_is_called_with_fields(wieldy):
    done = wieldy("call", "Grep", "pattern=TODO", "glob=*.py", "output_mode=content", "-n=true")
    assert done.returncode == 0, done.stderr
    assert "a.py:1:x = 1  # TODO one" in done.stdout


def test_a_tool_is_called_with_json_or_from_stdin(wieldy):
    text = json.dumps({"file_path": "b.txt", "limit": 1})
    for done in (wieldy("call", "Read", text), wieldy("call", "Read", "-", input=text)):
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith("1\thello\n")


def test_the_structured_result_is_json_and_nothing_else(wieldy):
    done = wieldy("call", "Read", "file_path=b.txt", "--json")
    found = json.loads(done.stdout)
    assert found["tool"] == "Read"
    assert found["is_error"] is False
    assert found["outcome"] == "done"
    assert found["text"].startswith("1\thello")
    assert found["content"][0]["type"] == "text"
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("Grpe", "pattern=x"), "No such tool: `Grpe`. Did you mean `Grep`?"),
        (("Read",), "file_path"),
        (("Read", "file_path=missing.txt"), "missing.txt"),
        (("Read", "file_path=."), "directory"),
        (("Read", "limit=many", "file_path=b.txt"), "limit"),
        (("Read", "file=b.txt"), "did you mean `file_path`?"),
        (("Grep", "pattern=("), "not a valid regular expression: unclosed group"),
        (("Read", "b.txt", "limit=3"), "not key=value"),
        (("Read", "file_path=/dev/zero"), "character device"),
        (("Write", "file_path=new.txt", "content=x"), "there is no one to ask"),
        (("Read", "{broken: 1}"), "JSON"),
        (("Read", '{"file_path": "b'), "cut off"),
    ],
)
def test_bad_input_is_a_clear_message_and_exit_code_one(wieldy, args, said):
    done = wieldy("call", *args)
    assert done.returncode == 1
    assert said in done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr


def test_debug_shows_the_traceback_of_an_error(wieldy):
    assert "Traceback" in wieldy("call", "Read", "not-a-field", "limit=3", "--debug").stderr


def test_a_pattern_that_starts_with_a_dash_is_a_pattern(wieldy, project):
    (project / "dash.txt").write_text("--flag here\n")
    done = wieldy("call", "Grep", "pattern=--flag", "output_mode=content")
    assert "--flag here" in done.stdout


def test_a_file_name_that_is_no_utf_8_breaks_nothing(wieldy, project):
    with open(os.fsencode(project) + b"/caf\xe9.txt", "wb") as file:
        file.write(b"needle\n")
    done = wieldy("call", "Grep", "pattern=needle")
    assert done.returncode == 0, done.stderr
    assert "caf" in done.stdout


def test_an_edit_is_made_undone_and_redone(wieldy, project):
    assert wieldy("call", "Write", "file_path=new/n.txt", "content=one", "--mode", "acceptEdits").returncode == 0
    assert (project / "new/n.txt").read_text() == "one"
    assert "Write" in wieldy("history").stdout
    [entry] = json.loads(wieldy("history", "--json").stdout)
    assert (entry["kind"], entry["tool"], entry["active"]) == ("edit", "Write", True)
    assert [file["path"] for file in entry["files"]] == [str(project / "new/n.txt")]
    preview = wieldy("undo", "--preview")
    assert preview.stdout.startswith("would take back")
    assert (project / "new/n.txt").exists()
    assert wieldy("undo").returncode == 0
    assert not (project / "new").exists()
    undone = json.loads(wieldy("history", "--json").stdout)
    assert [(entry["kind"], entry["active"]) for entry in undone] == [("undo", True), ("edit", False)]
    assert wieldy("redo").returncode == 0
    assert (project / "new/n.txt").read_text() == "one"


def test_input_may_stand_behind_options(wieldy):
    text = json.dumps({"file_path": "b.txt", "limit": 1})
    for done in (wieldy("call", "Read", "--mode", "plan", text), wieldy("call", "Read", "--json", "-", input=text)):
        assert done.returncode == 0 and "1\\thello" in done.stdout.replace("\t", "\\t"), done.stderr
    assert wieldy("call", "Read", "--jsno", text).stderr.startswith("wieldy: unknown option --jsno;")


def test_names_of_files_do_not_command_the_terminal(wieldy):
    name = "e\x1b[31mred\nline\x9b.txt"
    made = wieldy("call", "Write", json.dumps({"file_path": name, "content": "x"}), "--mode", "acceptEdits")
    assert made.returncode == 0, made.stderr
    for words in (("history",), ("undo", "--preview"), ("undo",), ("redo",)):
        done = wieldy(*words)
        assert done.returncode == 0 and "\x1b" not in done.stdout and "\x9b" not in done.stdout
        assert "e\\x1b[31mred\\nline\\x9b.txt" in done.stdout


@pytest.mark.parametrize("words", [("history",), ("undo", "--preview"), ("call", "Read", "file_path=b.txt")])
def test_a_crash_that_was_put_right_is_told(wieldy, project, environment, words):
    workspace = Workspace(project, session_dir=project.parent / "session", env=environment)
    path = project / "b.txt"
    before = path.read_bytes()
    journal = Journal(workspace, disk=WatchedDisk(DieAt("rename")))
    with pytest.raises(SimulatedDeath):
        write_changes(journal, [FileChange(str(path), before, b"new")], ChangeOrigin("s", "c", "Edit"))
    done = wieldy(*words)
    assert f"wieldy: an interrupted edit was rolled back: {path}\n" in done.stderr
    assert path.read_bytes() == before and sorted(os.listdir(project)) == ["a.py", "b.txt"]


def test_nothing_to_undo_is_one_line(wieldy):
    done = wieldy("undo")
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1


def test_tools_are_listed_and_shown(wieldy):
    listed = json.loads(wieldy("tools", "--all", "--json").stdout)
    assert {"Read", "Grep", "Glob", "LS", "Think", "Edit", "Bash"} <= {row["name"] for row in listed}
    assert all({"name", "offered", "reason", "input_schema"} <= row.keys() for row in listed)
    assert "file_path" in wieldy("tools", "Read").stdout
    assert wieldy("tools", "Raed").returncode == 1


def test_a_bare_deny_takes_a_tool_off_the_list_with_the_reason(wieldy, project):
    (project / ".wieldy").mkdir()
    (project / ".wieldy/settings.json").write_text('{"permissions": {"deny": ["Bash"]}}')
    assert "Bash " not in wieldy("tools").stdout
    row = next(row for row in json.loads(wieldy("tools", "--all", "--json").stdout) if row["name"] == "Bash")
    assert row["offered"] is False
    assert "settings.json" in row["reason"]


def test_a_decision_is_explained_without_running_anything(wieldy, project):
    done = wieldy("permissions", "explain", "Bash", "git log | xargs touch made", "--json")
    found = json.loads(done.stdout)
    assert found["behavior"] == "ask"
    assert any(part["program"] == "touch" for part in found["parts"])
    assert not (project / "made").exists()
    assert "allow" in wieldy("permissions", "explain", "Read", "b.txt").stdout


def test_rules_are_added_listed_and_in_force(wieldy, project):
    assert wieldy("call", "Bash", "command=touch made").returncode == 1
    assert wieldy("permissions", "allow", "Bash(touch:*)").returncode == 0
    listed = wieldy("permissions", "list").stdout
    assert "Bash(touch:*)" in listed
    assert "settings.local.json" in listed
    assert wieldy("call", "Bash", "command=touch made").returncode == 0
    assert (project / "made").exists()
    assert wieldy("permissions", "allow", "Bash((").returncode == 1


def test_settings_that_cannot_be_read_are_named_with_line_and_column(wieldy, project):
    (project / ".wieldy").mkdir()
    (project / ".wieldy/settings.json").write_text('{"permissions": {\n  "allow": [}\n}')
    done = wieldy("permissions", "list")
    assert done.returncode == 1
    assert "settings.json:2" in done.stderr


def test_the_doctor_looks_at_everything(wieldy):
    findings = json.loads(wieldy("doctor", "--json").stdout)
    assert {"python", "ripgrep", "git", "bash", "settings", "hooks", "sandbox"} <= {row["what"] for row in findings}
    assert {"model", "keys", "browser", "web"} <= {row["what"] for row in findings}
    assert not [row for row in findings if row["state"] == "broken"]


def test_the_doctor_names_the_model_and_why_without_showing_a_key(wieldy):
    none = {row["what"]: row for row in json.loads(wieldy("doctor", "--json").stdout)}
    assert none["model"]["state"] == "missing"
    assert "wieldy demo" in none["model"]["fix"]
    env = {"ANTHROPIC_API_KEY": "sk-secret"}
    rows = {row["what"]: row for row in json.loads(wieldy("doctor", "--json", env=env).stdout)}
    assert rows["model"]["detail"] == "anthropic/claude-sonnet-5-5 (ANTHROPIC_API_KEY is set)"
    shown = wieldy("doctor", env={**env, "WIELDY_MODEL": "gpt-5.5"})
    assert "– model            no key for openai: set OPENAI_API_KEY" in shown.stdout
    assert "✓ keys             ANTHROPIC_API_KEY" in shown.stdout
    assert "sk-secret" not in shown.stdout + shown.stderr


def test_the_doctor_has_no_tick_before_a_warning(wieldy, project):
    (project / ".wieldy").mkdir()
    (project / ".wieldy/settings.json").write_text('{"modle": 1, "hooks": {"PreToolUse": []}, "env": {"A": "1"}}')
    for line in wieldy("doctor").stdout.splitlines():
        if line.startswith("✓"):
            assert not any(words in line for words in ("NOT", "missing", "cannot", "wait", "no such", "modle")), line


def test_the_demo_runs_to_its_end_as_recorded(wieldy):
    done = wieldy("demo")
    assert done.returncode == 0, done.stdout + done.stderr
    for words in ("a recording", "7 tool calls", "1 of them refused", "pass now", "byte for byte"):
        assert words in done.stdout


def test_the_demo_keeps_its_state_to_itself(wieldy, project):
    done = wieldy("demo", env={"WIELDY_HOME": "/dev/null/nowhere"})
    assert done.returncode == 0, done.stdout + done.stderr
    assert "byte for byte" in done.stdout


@pytest.mark.parametrize("text", ["soon", "0", "-5", "1.5"])
def test_a_time_limit_of_the_environment_that_is_none_is_said(wieldy, text):
    command = ("call", "Bash", "command=echo x", "--mode", "bypassPermissions")
    done = wieldy(*command, env={"CLAUDE_BASH_TIMEOUT_MS": text})
    assert (done.returncode, done.stdout) == (0, "x\n")
    why = f"CLAUDE_BASH_TIMEOUT_MS must be a number of milliseconds above 0, not `{text}`; it is ignored"
    assert done.stderr == f"wieldy: {why}\n"


def test_only_the_name_of_the_tool_is_required_of_a_call(wieldy):
    done = wieldy("call")
    assert done.returncode == 2
    assert done.stderr == "wieldy: the following arguments are required: TOOL; `wieldy call --help` shows how\n"
    assert wieldy("call", "LS").returncode == 0


def test_a_closed_pipe_ends_it_quietly(project, environment):
    reader, output = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "wieldy", "tools", "--all", "--json"]
    done = subprocess.run(
        command, cwd=project, env=environment, stdout=output, stderr=subprocess.PIPE, text=True, timeout=60
    )
    os.close(output)
    assert (done.returncode, done.stderr) == (141, "")


def test_ctrl_c_ends_a_call_with_130_and_leaves_no_process(project, environment):
    command = [
        sys.executable,
        "-m",
        "wieldy",
        "call",
        "Bash",
        "command=sleep 317 & sleep 317",
        "--mode",
        "bypassPermissions",
    ]
    process = subprocess.Popen(
        command, cwd=project, env=environment, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    try:
        deadline = time.monotonic() + 20
        while not _sleepers() and time.monotonic() < deadline:
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=20)
    finally:
        process.kill()
    assert process.returncode == 130
    assert "Traceback" not in said
    deadline = time.monotonic() + 5
    while _sleepers() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert _sleepers() == []


def _sleepers() -> list[str]:
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and (entry / "cmdline").read_bytes() == b"sleep\x00317\x00":
                found.append(entry.name)
        except OSError:
            continue
    return found


def test_a_person_at_a_terminal_is_asked_and_can_say_yes_always(project, environment):
    screen, child = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "wieldy", "call", "Bash", "command=touch asked"],
        cwd=project,
        env=environment,
        stdin=child,
        stdout=child,
        stderr=child,
        start_new_session=True,
    )
    os.close(child)
    shown = b""
    try:
        while b"[y] yes" not in shown or not shown.rstrip().endswith(b">"):
            shown += os.read(screen, 4096)
        os.write(screen, b"a\n")
        assert process.wait(timeout=30) == 0
    finally:
        process.kill()
        process.wait()
        os.close(screen)
    assert (project / "asked").exists()
    assert b"touch asked" in shown
    kept = json.loads((project / ".wieldy/settings.local.json").read_text())
    assert kept["permissions"]["allow"] == ["Bash(touch:*)"]


def test_past_calls_are_held_against_the_rules_of_today(wieldy, project, tmp_path):
    script = tmp_path / "script.json"
    calls = [{"call": "Bash", "input": {"command": "touch made"}}, {"call": "Read", "input": {"file_path": "b.txt"}}]
    script.write_text(json.dumps({"turns": [calls, [{"text": "done"}]]}))
    wieldy("-p", "go", "--model", f"script:{script}")
    assert "2 past calls, 0 would be decided otherwise" in wieldy("permissions", "replay", "--all").stdout
    wieldy("permissions", "allow", "Bash(touch:*)")
    replayed = wieldy("permissions", "replay", "--all")
    assert replayed.returncode == 1
    assert "ask → allow  touch made" in replayed.stdout
    wieldy("permissions", "deny", "Read(./b.txt)")
    rows = json.loads(wieldy("permissions", "replay", "--all", "--json").stdout)
    assert {(row["tool"], row["now"]) for row in rows} == {("Bash", "allow"), ("Read", "deny")}
    assert not (project / "made").exists()
    assert wieldy("permissions", "replay", "nosuchsession").returncode == 1


def test_an_edit_by_hand_needs_no_separate_read(wieldy, project):
    fields = ("file_path=b.txt", "old_string=hello", "new_string=goodbye")
    done = wieldy("call", "Edit", *fields, "--mode", "acceptEdits")
    assert done.returncode == 0, done.stderr
    assert "+goodbye" in done.stdout
    assert (project / "b.txt").read_text() == "goodbye\nworld\n"
    again = wieldy("call", "Write", "path=b.txt", "content=all new", "--mode", "acceptEdits")
    assert again.returncode == 0, again.stderr
    assert (project / "b.txt").read_text() == "all new"


def test_a_tool_that_asks_finds_nobody_where_there_is_no_terminal(wieldy):
    done = wieldy("call", "AskUser", '{"questions": [{"question": "Which one?", "options": ["left", "right"]}]}')
    assert done.returncode == 1
    assert "AskUser: not available: no person is there to answer\n" in done.stderr
