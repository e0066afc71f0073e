"""`wieldy permissions` as a person uses it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

Run = Callable[..., Any]

TRUSTED = {"WIELDY_TRUST": "1"}


def put(project: Path, *allowed: Any) -> None:
    (project / ".wieldy").mkdir(exist_ok=True)
    (project / ".wieldy/settings.json").write_text(json.dumps({"permissions": {"allow": list(allowed)}}))


def test_a_rule_that_fails_its_examples_fails_the_test(project: Path, wieldy: Run) -> None:
    put(project, {"rule": "Bash(git log:*)", "match": ["git log -p"], "not_match": ["git log"]}, "Bash(ls)")
    done = wieldy("permissions", "test", env=TRUSTED)
    assert done.returncode == 1
    assert "✗ Bash(git log:*) (2 examples)" in done.stdout
    assert "should not match `git log`" in done.stdout
    told = wieldy("permissions", "test", "--json", env=TRUSTED)
    assert told.returncode == 1
    assert [(row["rule"], len(row["failures"])) for row in json.loads(told.stdout)] == [("Bash(git log:*)", 1)]


def test_a_rule_that_keeps_its_word_passes(project: Path, wieldy: Run) -> None:
    put(project, {"rule": "Bash(git log:*)", "match": ["git log -p"], "not_match": ["git push"]})
    done = wieldy("permissions", "test", env=TRUSTED)
    assert (done.returncode, done.stderr) == (0, "")
    assert "✓ Bash(git log:*) (2 examples)" in done.stdout


def test_a_rule_written_in_a_wrong_shape_is_named_with_the_right_one(project: Path, wieldy: Run) -> None:
    put(project, {"rule": "Bash(ls)", "matches": ["ls"]})
    done = wieldy("permissions", "test", env=TRUSTED)
    assert "item 1 of `permissions.allow` must be a rule or {rule, match, not_match}, not an object" in done.stderr


def test_an_option_inside_the_value_of_another_stays_a_value(project: Path, wieldy: Run) -> None:
    script = project / "script.json"
    script.write_text(json.dumps({"turns": [[{"text": "fine"}]]}))
    evil = project / "evil.json"
    evil.write_text("{ broken")
    smuggled = f"be brief --settings={evil} --permission-mode=bypassPermissions"
    done = wieldy("-p", "hello", f"--model=script:{script}", "--append-system-prompt", smuggled)
    assert (done.returncode, done.stdout.strip()) == (0, "fine"), done.stderr
    assert "evil.json" not in done.stderr
    assert wieldy("-p", "hello", f"--model=script:{script}", f"--settings={evil}").returncode == 2


def hello(project: Path) -> str:
    script = project / "script.json"
    script.write_text(
        json.dumps({"turns": [[{"call": "Bash", "input": {"command": "touch made"}}], [{"text": "end"}]]})
    )
    return f"--model=script:{script}"


def test_a_named_settings_file_may_hold_comments_and_says_where_it_is_broken(project: Path, wieldy: Run) -> None:
    model = hello(project)
    named = project / "named.json"
    named.write_text('{\n  // for this run\n  "permissions": {"deny": ["Bash(touch:*)"],},\n}')
    done = wieldy(
        "-p", "go", model, "--output-format=json", "--settings", "named.json", "--dangerously-skip-permissions"
    )
    assert done.returncode == 3, done.stderr
    assert not (project / "made").exists()
    named.write_text('{\n  "model": oops\n}')
    done = wieldy("-p", "go", model, "--settings", "named.json")
    assert (done.returncode, done.stdout) == (2, "")
    assert "cannot be read" in done.stderr and "named.json:2:" in done.stderr


def test_settings_may_come_through_a_pipe(project: Path, environment: dict[str, str]) -> None:
    settings = '{"permissions": {"allow": ["Bash(touch:*)"]}}'
    command = f"{sys.executable} -m wieldy -p go {hello(project)!r} --settings <(echo '{settings}')"
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=project,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stdout.strip()) == (0, "end"), done.stderr
    assert (project / "made").exists()


def test_a_list_of_rules_on_the_command_line_is_several_rules_or_an_error(project: Path, wieldy: Run) -> None:
    model = hello(project)
    done = wieldy("-p", "go", model, "--allowed-tools", "Bash(gh:*),Bash(cat:*)")
    assert done.returncode == 3
    assert not (project / "made").exists()
    for option in ("--allowed-tools", "--disallowed-tools"):
        for broken in ("Bash(gh:*,Read", "Bash(", "Bash()"):
            done = wieldy("-p", "go", model, option, broken)
            assert (done.returncode, done.stdout) == (2, ""), broken
            assert done.stderr.count("\n") == 1 and "Bash(" in done.stderr
    done = wieldy("-p", "go", model, "--allowed-tools", "Bash(gh:*) Bash(touch made)")
    assert done.returncode == 0, done.stderr


def test_a_reader_of_the_list_that_leaves_is_no_error(project: Path, environment: dict[str, str]) -> None:
    put(project, *(f"Bash(program-{number}:*)" for number in range(2_000)))
    for arguments in ("list", "list --json", "explain Bash 'ls'"):
        command = f"set -o pipefail; {sys.executable} -m wieldy permissions {arguments} | head -1"
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=project,
            env={**environment, **TRUSTED},
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.stderr == "", arguments
        assert done.stdout.count("\n") == 1


def played(wieldy: Run, project: Path, *options: str) -> str:
    """The id of a session that has a call of each kind behind it."""
    calls = [
        {"call": "Bash", "input": {"command": "touch made && ls | head -3"}},
        {"call": "Read", "input": {"file_path": "b.txt"}},
        {"call": "Write", "input": {"file_path": "n.txt", "content": "x"}},
        {"call": "Nonsense", "input": {}},
        {"call": "Bash", "input": {"cmd": "ls"}},
    ]
    (project / "script.json").write_text(json.dumps({"turns": [calls, [{"text": "done"}]]}))
    done = wieldy("-p", "go", "--model", f"script:{project}/script.json", "--output-format=json", *options)
    return str(json.loads(done.stdout)["session_id"])


def test_a_session_is_judged_by_the_rules_of_its_own_folder_wherever_one_is(
    project: Path, tmp_path: Path, wieldy: Run
) -> None:
    session = played(wieldy, project)
    assert "0 would be decided otherwise" in wieldy("permissions", "replay", session).stdout
    wieldy("permissions", "allow", "Bash(touch:*)")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    done = wieldy("permissions", "replay", session, cwd=elsewhere)
    assert done.returncode == 1, done.stderr
    assert "ask → allow  touch made && ls | head -3" in done.stdout
    assert "0 past calls" in wieldy("permissions", "replay", "--all", cwd=elsewhere).stdout
    for words in ([], [session, "--all"], [""]):
        assert wieldy("permissions", "replay", *words).returncode == 2
    for unknown in ("../../x", "0123456789ab"):
        refused = wieldy("permissions", "replay", unknown)
        assert refused.returncode == 1 and refused.stderr.count("\n") == 1


def test_commands_of_a_file_are_counted_by_what_would_be_decided(project: Path, wieldy: Run) -> None:
    commands = ["ls", "#1700000000", "make test", ": 1700000000:0;git status", json.dumps("make\nls"), "", "rm -rf /"]
    (project / "history").write_text("\n".join(commands))
    done = wieldy("permissions", "replay", "--commands", "history")
    assert (done.returncode, done.stderr) == (0, "")
    first, programs, *_ = done.stdout.splitlines()
    assert first == "5 commands: 2 (40.0%) run without a question, 2 (40.0%) ask, 1 (20.0%) are denied"
    assert programs == "  most often: make 2"
    assert "with the sandbox" in done.stdout
    rows = json.loads(wieldy("permissions", "replay", "--commands", "-", "--json", input="ls\nmake\n").stdout)
    assert (rows["commands"], rows["now"]["allow"], rows["now"]["ask"]) == (2, 1, 1)


def test_a_command_without_its_tool_is_answered_by_what_to_write(project: Path, wieldy: Run) -> None:
    done = wieldy("permissions", "explain", "git push")
    assert done.returncode == 2
    assert done.stderr == "wieldy: name the tool first: wieldy permissions explain Bash 'git push'\n"
    assert wieldy("permissions", "explain", "Bash(git push)").stdout.startswith("ASK Bash\n")


def test_a_file_without_commands_is_named(project: Path, wieldy: Run) -> None:
    (project / "empty").write_text("\n")
    for name, problem in (("empty", "has no commands"), ("missing", "cannot be read: no such file or directory")):
        done = wieldy("permissions", "replay", "--commands", name)
        assert done.returncode == 2
        assert problem in done.stderr and done.stderr.count("\n") == 1
    assert wieldy("permissions", "replay", "--all", "--commands", "empty").returncode == 2


def test_sessions_of_other_modes_are_judged_in_the_mode_one_names(project: Path, wieldy: Run) -> None:
    careful = played(wieldy, project)
    bold = played(wieldy, project, "--permission-mode", "acceptEdits")
    rows = json.loads(wieldy("permissions", "replay", "--all", "--json").stdout)
    assert [(row["session"], row["tool"], row["before"], row["now"]) for row in rows] == [
        (bold, "Write", "allow", "ask")
    ]
    assert f"session {bold}" in wieldy("permissions", "replay", "--all").stdout
    assert "0 would be" in wieldy("permissions", "replay", bold, "--mode", "acceptEdits").stdout
    assert wieldy("permissions", "replay", careful, "--mode", "acceptEdits").returncode == 1


def test_a_past_call_of_a_tool_that_is_no_more_is_counted(project: Path, wieldy: Run) -> None:
    server = {"call": "WebFetch", "input": {"url": "http://127.0.0.1:9/x"}}
    (project / "script.json").write_text(json.dumps({"turns": [[server], [{"text": "done"}]]}))
    wieldy("-p", "go", "--model", f"script:{project}/script.json")
    (transcript,) = (project.parent / "state" / "sessions").glob("*/transcript.jsonl")
    transcript.write_text(transcript.read_text().replace('"WebFetch"', '"OnceHere"'))
    done = wieldy("permissions", "replay", "--all")
    assert "0 past calls, 0 would be decided otherwise\n1 more could not be judged" in done.stdout


def test_nothing_that_a_project_brings_is_run_or_granted_before_consent_to_exactly_that(
    project: Path, wieldy: Run
) -> None:
    model = hello(project)
    hook = {"hooks": [{"type": "command", "command": "touch hooked"}]}
    brought: dict[str, Any] = {
        "hooks": {"SessionStart": [hook], "PreToolUse": [hook]},
        "permissions": {"allow": ["Bash(touch:*)"], "defaultMode": "bypassPermissions"},
        "mcpServers": {"evil": {"command": "touch", "args": ["served"]}},
        "env": {"BASH_ENV": "evil.sh"},
    }
    (project / ".wieldy").mkdir()
    (project / ".wieldy/settings.json").write_text(json.dumps(brought))
    (project / ".mcp.json").write_text(json.dumps({"mcpServers": {"more": {"command": "touch", "args": ["more"]}}}))
    (project / "evil.sh").write_text("touch sourced\n")

    def traces() -> set[str]:
        return {name for name in ("hooked", "served", "more", "sourced", "made") if (project / name).exists()}

    done = wieldy("-p", "go", model)
    assert done.returncode == 3
    assert "for your consent" in done.stderr
    assert traces() == set()
    asked = wieldy("permissions", "trust")
    assert asked.returncode == 1
    for wanted in ("touch hooked", "evil", "more", "Bash(touch:*)", "BASH_ENV"):
        assert wanted in asked.stdout, wanted
    brought["mcpServers"] = {}
    (project / ".wieldy/settings.json").write_text(json.dumps(brought))
    (project / ".mcp.json").unlink()
    assert wieldy("permissions", "trust", "--yes").returncode == 0
    assert wieldy("-p", "go", model).returncode == 0
    assert traces() >= {"hooked", "made"}
    for name in traces():
        (project / name).unlink()
    brought["hooks"]["PreToolUse"] = [{"hooks": [{"type": "command", "command": "touch hooked && true"}]}]
    (project / ".wieldy/settings.json").write_text(json.dumps(brought))
    done = wieldy("-p", "go", model)
    assert "for your consent" in done.stderr
    assert "touch hooked && true" in wieldy("permissions", "trust").stdout
    assert wieldy("permissions", "trust", "--yes").returncode == 0
    assert "nothing waits" in wieldy("permissions", "trust").stdout
    assert wieldy("permissions", "trust", "--revoke").returncode == 0
    assert "touch hooked && true" in wieldy("permissions", "trust").stdout


def test_a_call_is_explained_in_any_way_of_writing_it(project: Path, wieldy: Run) -> None:
    wieldy("permissions", "deny", "Bash(git push:*)", "Edit(.env)")
    for words, decided in (
        (["Bash", "git push"], "DENY Bash"),
        (["Bash(git push)"], "DENY Bash"),
        (["Bash(echo (a) && git push)"], "DENY Bash"),
        (["Bash", '{"command": "git push"}'], "DENY Bash"),
        (["Edit", ".env"], "DENY Edit"),
        (["Edit(.env)"], "DENY Edit"),
        (["Edit", '{"file_path": ".env"}'], "DENY Edit"),
        (["Edit", '{"path": ".env"}'], "DENY Edit"),
        (["MultiEdit", ".env"], "DENY MultiEdit"),
        (["Bash", "   "], "ASK Bash"),
    ):
        done = wieldy("permissions", "explain", *words)
        assert (done.returncode, done.stdout.splitlines()[0]) == (0, decided), (words, done.stderr)
    for words in (["Bash"], ["Bash()"], ["Nope(x)"], ["Edit", "{broken"]):
        done = wieldy("permissions", "explain", *words)
        assert (done.returncode, done.stdout) == (2, ""), words
        assert done.stderr.startswith("wieldy: ")


def test_a_deny_at_the_root_of_the_project_holds_in_its_subfolders(project: Path, wieldy: Run) -> None:
    (project / ".wieldy").mkdir()
    (project / ".wieldy/settings.json").write_text(json.dumps({"permissions": {"deny": ["Bash(ls:*)", "Read(key)"]}}))
    (project / "tests").mkdir()
    for call in (["Bash", "ls -l"], ["Read", str(project / "key")]):
        done = wieldy("permissions", "explain", *call, "--root", str(project / "tests"))
        assert done.stdout.startswith("DENY"), done.stdout
    listed = wieldy("permissions", "list", "--root", str(project / "tests"))
    assert f"project: {project.resolve()}" in listed.stdout
    added = wieldy("permissions", "allow", "Bash(make)", "--root", str(project / "tests"))
    assert added.returncode == 0 and not (project / "tests/.wieldy").exists()
    assert (project / ".wieldy/settings.local.json").exists()


def test_a_restriction_that_is_lost_stops_the_program_and_other_mistakes_are_told(project: Path, wieldy: Run) -> None:
    model = hello(project)
    for broken in ({"permisions": {"deny": ["Bash"]}}, {"permissions": {"deny": ["Bash("]}}, {"modell": "x"}):
        done = wieldy("-p", "hello", model, "--settings", json.dumps(broken))
        assert (done.returncode, done.stdout) == (1, ""), done.stderr
        assert "did you mean" in done.stderr
    (project / ".wieldy").mkdir(exist_ok=True)
    (project / ".wieldy/settings.json").write_text(json.dumps({"modell": "x"}))
    done = wieldy("-p", "hello", model)
    assert done.stdout.strip() == "end" and "`modell`" in done.stderr
    (project / ".wieldy/settings.json").write_text(json.dumps({"permissions": {"deny": ["Bash("]}}))
    done = wieldy("call", "LS", f"path={project}")
    assert done.returncode == 1 and "settings.json:" in done.stderr


def test_a_rule_is_removed_with_the_comments_around_it_kept(project: Path, wieldy: Run) -> None:
    (project / ".wieldy").mkdir()
    file = project / ".wieldy/settings.json"
    file.write_text(
        '{\n // mine\n "permissions": {"allow": ["Bash(a)", "Bash(b)", "Bash(c)"], "deny": ["Bash(d)"]}\n}\n'
    )
    done = wieldy("permissions", "remove", "Bash(a)", "Bash(c)", "Bash(d)")
    assert done.returncode == 0, done.stderr
    assert file.read_text() == '{\n // mine\n "permissions": {"allow": ["Bash(b)"], "deny": []}\n}\n'
    assert wieldy("permissions", "remove", "Bash(a)").returncode == 1


def test_local_settings_stay_out_of_the_repository(project: Path, wieldy: Run) -> None:
    subprocess.run(["git", "init", "-q", str(project)], check=True)
    for rule in ("Bash(a)", "Bash(b)"):
        assert wieldy("permissions", "allow", rule).returncode == 0
    excluded = (project / ".git/info/exclude").read_text().splitlines()
    assert excluded.count("/.wieldy/settings.local.json") == 1


def test_local_settings_stay_out_of_the_repository_whoever_writes_them(project: Path, wieldy: Run) -> None:
    subprocess.run(["git", "init", "-q", str(project)], check=True)
    inner = project / "packages" / "one"
    (inner / ".wieldy").mkdir(parents=True)
    assert wieldy("mcp", "add", "a", "--", "true").returncode == 0
    assert wieldy("mcp", "add", "a", "--", "true", cwd=inner).returncode == 0
    shown = subprocess.run(
        ["git", "status", "--short", "-uall"], cwd=project, capture_output=True, text=True, check=True
    )
    assert "settings.local.json" not in shown.stdout


def test_both_names_of_the_mode_option_work(project: Path, wieldy: Run) -> None:
    for option in ("--mode", "--permission-mode"):
        assert wieldy("permissions", "explain", "Bash", "make", option, "plan").stdout.startswith("DENY")
        assert wieldy("-p", "go", hello(project), option, "bypassPermissions").returncode == 0
        (project / "made").unlink()


def test_a_denial_names_the_command_and_the_rule_that_would_help(project: Path, wieldy: Run) -> None:
    done = wieldy("-p", "go", hello(project))
    assert done.returncode == 3
    assert "Bash(touch made) was not permitted" in done.stderr
    assert "wieldy permissions allow 'Bash(touch" in done.stderr or "'Edit(/made)'" in done.stderr
