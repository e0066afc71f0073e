"""The control protocol of stream-json, line by line, and the options that a host may pass."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

STREAM = ("--input-format", "stream-json", "--output-format", "stream-json")
WRITE = {"call": "Write", "input": {"file_path": "new.txt", "content": "new"}}


@pytest.fixture
def script(tmp_path: Path):
    def make(*turns: list[dict[str, Any]]) -> str:
        path = tmp_path / "script.json"
        path.write_text(json.dumps({"turns": turns}))
        return f"--model=script:{path}"

    return make


def user(text: str, **more: Any) -> dict[str, Any]:
    return {"type": "user", "message": {"role": "user", "content": text}, **more}


def request(subtype: str, id: str = "r1", **fields: Any) -> dict[str, Any]:
    return {"type": "control_request", "request_id": id, "request": {"subtype": subtype, **fields}}


def encode(*messages: dict[str, Any]) -> str:
    return "".join(json.dumps(message) + "\n" for message in messages)


def decode(done: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in done.stdout.splitlines()]


def responses(done: subprocess.CompletedProcess[str]) -> dict[str, dict[str, Any]]:
    found = [line["response"] for line in decode(done) if line["type"] == "control_response"]
    return {response["request_id"]: response for response in found}


class Peer:
    """A host that talks to wieldy line by line."""

    def __init__(self, *args: str, cwd: Path, env: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "wieldy", *args],
            cwd=cwd,
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def send(self, *messages: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(encode(*messages))
        self.process.stdin.flush()

    def receive(self, **fields: Any) -> dict[str, Any]:
        """Read to the first line with these fields."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            message: dict[str, Any] = json.loads(line)
            if fields.items() <= message.items():
                return message
        raise AssertionError(f"no line with {fields}")

    def close(self) -> int:
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.process.wait(timeout=30)

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *exc: object) -> None:
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            assert stream is not None
            stream.close()


@pytest.fixture
def peer(project: Path, environment: dict[str, str]):
    return lambda *args, **env: Peer(*args, cwd=project, env={**environment, **env})


def test_without_print_and_with_initialize_a_prompt_runs(wieldy, script):
    done = wieldy(*STREAM, script([{"text": "hello"}]), input=encode(request("initialize", hooks=None), user("hi")))
    assert done.returncode == 0, done.stderr
    assert responses(done)["r1"]["subtype"] == "success"
    assert responses(done)["r1"]["response"]["hook_on_failure_supported"] is True
    assert decode(done)[-1]["result"] == "hello"


def test_an_unknown_request_is_answered_with_an_error(wieldy, script):
    lines = encode(request("initialize"), request("make_coffee", "r2"), request("initialize", "r3"))
    done = wieldy(*STREAM, script([{"text": "hello"}]), input=lines)
    assert done.returncode == 0
    assert "make_coffee" in responses(done)["r2"]["error"]
    assert "once" in responses(done)["r3"]["error"]


def test_a_request_may_come_before_any_prompt_and_without_initialize(wieldy, script, project):
    lines = encode(request("set_permission_mode", mode="acceptEdits"), user("write"))
    done = wieldy("-p", *STREAM, script([WRITE], [{"text": "done"}]), input=lines)
    assert responses(done)["r1"]["response"] == {"mode": "acceptEdits"}
    assert (project / "new.txt").read_text() == "new"


def test_a_mode_that_the_settings_disable_is_refused(wieldy, script):
    settings = json.dumps({"permissions": {"disableBypassPermissionsMode": "disable"}})
    lines = encode(request("initialize", "r0"), request("set_permission_mode", mode="bypassPermissions"))
    done = wieldy(*STREAM, script([]), "--settings", settings, input=lines)
    assert "disable" in responses(done)["r1"]["error"]


def test_settings_that_cannot_be_used_fail_the_initialize_request(wieldy, script):
    settings = json.dumps({"permissions": {"deny": ["Bash("]}})
    done = wieldy(*STREAM, script([]), "--settings", settings, input=encode(request("initialize"), user("hi")))
    assert done.returncode == 1
    assert responses(done)["r1"]["subtype"] == "error"
    assert decode(done)[-1]["is_error"] is True


def test_a_question_is_cancelled_when_the_run_is_interrupted(peer, script, project):
    with peer(*STREAM, script([WRITE], [{"text": "again"}]), "--permission-prompt-tool", "stdio") as host:
        host.send(request("initialize"), user("write"))
        question = host.receive(type="control_request")
        assert question["request"]["tool_name"] == "Write"
        host.send(request("interrupt", "r2"))
        assert host.receive(type="control_cancel_request")["request_id"] == question["request_id"]
        assert host.receive(type="result")["terminal_reason"] == "interrupted"
        late = {"subtype": "success", "request_id": question["request_id"], "response": {"behavior": "allow"}}
        host.send({"type": "control_response", "response": late}, user("and?"))
        assert host.receive(type="result")["result"] == "again"
        assert host.close() == 0
    assert not (project / "new.txt").exists()


def test_a_host_that_goes_away_is_a_no_to_open_questions(peer, script, project):
    with peer(*STREAM, script([WRITE], [{"text": "denied"}]), "--permission-prompt-tool", "stdio") as host:
        host.send(request("initialize"), user("write"))
        host.receive(type="control_request")
        assert host.process.stdin is not None
        host.process.stdin.close()
        result = host.receive(type="result")
        assert [denial["tool_name"] for denial in result["permission_denials"]] == ["Write"]
        assert host.process.wait(30) == 0
    assert not (project / "new.txt").exists()


def test_a_hook_whose_host_is_gone_blocks_the_call(peer, script, project):
    hooks = {"PreToolUse": [{"matcher": None, "hookCallbackIds": ["h"]}]}
    with peer(*STREAM, script([WRITE], [{"text": "x"}]), "--permission-mode", "acceptEdits") as host:
        host.send(request("initialize", hooks=hooks), user("write"))
        assert host.receive(type="control_request")["request"]["subtype"] == "hook_callback"
        host.process.stdin.close()
        host.receive(type="result")
    assert not (project / "new.txt").exists()


def test_prompts_are_written_back_with_their_ids_on_request(wieldy, script):
    lines = encode(request("initialize"), user("hi", uuid="u-1"), user("and?"))
    done = wieldy(*STREAM, "--replay-user-messages", script([{"text": "a"}], [{"text": "b"}]), input=lines)
    replayed = [line for line in decode(done) if line.get("isReplay")]
    assert [line["message"]["content"] for line in replayed] == ["hi", "and?"]
    assert replayed[0]["uuid"] == "u-1"
    assert replayed[1]["uuid"]


def test_a_host_that_wants_to_know_hears_when_nothing_is_left_to_do(peer, script):
    model = script([{"text": "a"}], [{"text": "b"}])
    with peer(*STREAM, model, CLAUDE_CODE_SDK_READS_SESSION_STATE="1") as host:
        host.send(request("initialize"), user("one"), user("two"))
        assert host.receive(subtype="session_state_changed")["state"] == "running"
        host.receive(type="result")
        host.receive(type="result")
        assert host.receive(subtype="session_state_changed")["state"] == "idle"
        assert host.close() == 0


def answer(question: dict[str, Any], **fields: Any) -> dict[str, Any]:
    response = {"subtype": "success", "request_id": question["request_id"], "response": fields}
    return {"type": "control_response", "response": response}


TOUCH = {"call": "Bash", "input": {"command": "touch made"}}


def test_rules_beside_a_no_are_in_force(peer, script, project):
    rules = [{"toolName": "Bash", "ruleContent": "touch made"}]
    update = {"type": "addRules", "behavior": "deny", "rules": rules, "destination": "session"}
    with peer(*STREAM, script([TOUCH], [TOUCH], [{"text": "done"}]), "--permission-prompt-tool", "stdio") as host:
        host.send(request("initialize"), user("go"))
        question = host.receive(type="control_request")
        host.send(answer(question, behavior="deny", message="no", updatedPermissions=[update]))
        lines = [host.receive(type="user"), host.receive(type="user")]
        assert "rule `Bash(touch made)`" in json.dumps(lines[1])
        assert host.receive(type="result")["result"] == "done"
    assert not (project / "made").exists()


ADD = {"type": "addRules", "behavior": "allow", "rules": [{"toolName": "Bash"}]}


@pytest.mark.parametrize(
    "fields",
    [
        {"updatedPermissions": [{"type": "removeRules"}]},
        {"updatedPermissions": [{"type": "addRules", "rules": [{}], "behavior": "allow"}]},
        {"updatedPermissions": [3]},
        {"updatedPermissions": {"type": "setMode", "mode": "plan"}},
        {"updatedPermissions": [{**ADD, "destination": "moon"}]},
        {"updatedPermissions": [{**ADD, "destination": ["session"]}]},
        {"updatedPermissions": [{**ADD, "rules": [{"toolName": "", "ruleContent": "x"}]}]},
        {"updatedPermissions": [{"type": "setMode", "mode": "plan"}, {"type": "addDirectories"}]},
        {"updatedInput": ["touch other"]},
        {"updatedInput": "touch other"},
    ],
)
def test_an_update_that_cannot_be_applied_makes_the_answer_a_no(peer, script, project, fields):
    with peer(*STREAM, script([TOUCH], [{"text": "done"}]), "--permission-prompt-tool", "stdio") as host:
        host.send(request("initialize"), user("go"))
        host.send(answer(host.receive(type="control_request"), behavior="allow", **fields))
        assert next(iter(fields)) in json.dumps(host.receive(type="user"))
        assert host.receive(type="result")["result"] == "done"
    assert not (project / "made").exists()


def test_a_catastrophic_input_of_a_host_is_asked_about_again(peer, script, project):
    with peer(*STREAM, script([TOUCH], [{"text": "done"}]), "--permission-prompt-tool", "stdio") as host:
        host.send(request("initialize"), user("go"))
        worse = {"command": "git reset --hard && git clean -fdx"}
        host.send(answer(host.receive(type="control_request"), behavior="allow", updatedInput=worse))
        again = host.receive(type="control_request")
        assert again["request"]["input"]["command"] == worse["command"]
        host.send(answer(again, behavior="deny", message="not that"))
        assert "not that" in json.dumps(host.receive(type="user"))
        assert host.receive(type="result")["result"] == "done"


def test_an_error_does_not_end_a_conversation_with_a_host(wieldy, script):
    model = script([{"fail": "bad_request", "message": "no"}], [{"text": "fine"}])
    done = wieldy(*STREAM, model, input=encode(request("initialize"), user("one"), user("two")))
    results = [line for line in decode(done) if line["type"] == "result"]
    assert [result["is_error"] for result in results] == [True, False]
    assert done.returncode == 0


def test_a_line_that_is_no_message_is_a_usage_error(wieldy, script):
    odd = ('{"type": "control_request", "request": []}', '{"type": "control_response", "response": [["a", 1]]}')
    for line in (*odd, "nonsense", '{"type": "control_request"}', '{"type": "user", "message": {"content": 3}}', "[]"):
        done = wieldy(*STREAM, script([{"text": "x"}]), input=line + "\n")
        assert done.returncode == 2, line
        assert "not a user message" in done.stderr


def test_options_of_claude_code_without_effect_are_named_and_accepted(wieldy, script):
    ignored = ["--betas", "x", "--effort=high", "--session-mirror", "--plugin-dir", "p"]
    done = wieldy("-p", "hi", script([{"text": "hello"}]), *ignored)
    assert (done.stdout, done.returncode) == ("hello\n", 0)
    names = ["--betas", "--effort", "--session-mirror", "--plugin-dir"]
    assert done.stderr.splitlines() == [f"wieldy: {name} has no effect here" for name in names]


def test_any_other_unknown_option_stays_a_usage_error(wieldy, script):
    done = wieldy("-p", "hi", script([{"text": "x"}]), "--bogus")
    assert (done.returncode, done.stdout) == (2, "")
    assert "--bogus" in done.stderr


def test_the_system_prompt_is_replaced(wieldy, script, tmp_path, environment):
    file = tmp_path / "prompt.md"
    file.write_text("You are a parrot.")
    for option in (("--system-prompt", "You are a parrot."), ("--system-prompt-file", str(file))):
        done = wieldy("-p", "hi", script([{"text": "hello"}]), *option)
        assert done.returncode == 0, done.stderr
    missing = wieldy("-p", "hi", script([{"text": "hello"}]), "--system-prompt-file", "nowhere")
    assert (missing.returncode, "nowhere cannot be read" in missing.stderr) == (2, True)


def test_a_new_session_gets_the_id_it_is_given_and_an_old_one_keeps_its_own(wieldy, script):
    id = "0b7e3a9e-6c1f-4a52-9a44-3a1f6d0c9d11"
    done = wieldy("-p", "hi", script([{"text": "a"}]), f"--session-id={id}", "--output-format=json")
    assert json.loads(done.stdout)["session_id"] == id
    again = wieldy("-p", "hi", script([{"text": "a"}]), f"--session-id={id}")
    assert again.returncode == 1
    assert f"--resume {id}" in again.stderr
    resumed = wieldy("-p", "hi", script([{"text": "a"}]), f"--resume={id}", "--output-format=json")
    assert json.loads(resumed.stdout)["session_id"] == id
    both = wieldy("-p", "hi", script([{"text": "a"}]), f"--resume={id}", "--session-id=abcd")
    assert both.returncode == 2
    assert wieldy("-p", "hi", script([]), "--session-id=../x").returncode == 2


def test_only_the_settings_files_that_are_named_are_read(wieldy, script, project):
    folder = project / ".wieldy"
    folder.mkdir()
    (folder / "settings.local.json").write_text(json.dumps({"permissions": {"allow": ["Write"]}}))
    turns = [WRITE], [{"text": "done"}]
    assert wieldy("-p", "go", script(*turns), "--setting-sources=user").returncode == 3
    assert wieldy("-p", "go", script(*turns), "--setting-sources=").returncode == 3
    wrong = wieldy("-p", "go", script(*turns), "--setting-sources=mine")
    assert (wrong.returncode, "`mine` is none of user, project, local" in wrong.stderr) == (2, True)


def test_strict_servers_are_those_of_the_command_line_only(wieldy, script, project, environment):
    config = Path(environment["WIELDY_HOME"])
    config.mkdir(parents=True, exist_ok=True)
    servers = {"mcpServers": {"mine": {"command": "/no/such/program"}}}
    (config / "settings.json").write_text(json.dumps(servers))
    given = json.dumps({"mcpServers": {"given": {"command": "/no/such/program"}}})
    args = ("-p", "hi", script([{"text": "x"}]), "--output-format=stream-json", "--mcp-config", given)
    for more, names in (((), ["given", "mine"]), (("--strict-mcp-config",), ["given"])):
        init = decode(wieldy(*args, *more))[0]
        assert sorted(server["name"] for server in init["mcp_servers"]) == names


def test_hooks_that_cannot_be_read_fail_the_initialize_request(wieldy, script):
    for hooks in (["x"], {"PreToolUse": [3]}, {"PreToolUse": [{"matcher": "(", "hookCallbackIds": ["a"]}]}):
        done = wieldy(*STREAM, script([WRITE], [{"text": "x"}]), input=encode(request("initialize", hooks=hooks)))
        assert (done.returncode, responses(done)["r1"]["subtype"]) == (1, "error"), hooks
    guard = {"NoSuchEvent": [{"hookCallbackIds": ["a"], "onFailure": "block"}]}
    done = wieldy(*STREAM, script([]), input=encode(request("initialize", hooks=guard)))
    assert "NoSuchEvent" in responses(done)["r1"]["error"]
    watcher = {"NoSuchEvent": [{"hookCallbackIds": ["a"]}]}
    done = wieldy(*STREAM, script([{"text": "x"}]), input=encode(request("initialize", hooks=watcher), user("hi")))
    assert (done.returncode, "NoSuchEvent never run" in done.stderr) == (0, True)


def test_requests_are_carried_out_before_the_prompts_that_follow_them(wieldy, script, tmp_path, project):
    other = tmp_path / "other.json"
    other.write_text(json.dumps({"turns": [[WRITE], [{"text": "other"}]]}))
    lines = encode(
        request("interrupt", "r1"),
        request("set_permission_mode", "r2", mode="acceptEdits"),
        request("set_model", "r3", model=f"script:{other}"),
        user("hi"),
    )
    done = wieldy(*STREAM, script([{"text": "first"}]), input=lines)
    assert decode(done)[-1]["result"] == "other"
    assert (project / "new.txt").exists()


def test_odd_requests_get_an_error_and_the_conversation_goes_on(wieldy, script):
    odd = request("x", "r2")
    odd["request"]["subtype"] = ["a", "list"]
    lines = encode(request("initialize"), odd, request("stop_task", "r3", task_id=7), request("set_model", "r4"))
    done = wieldy(*STREAM, script([{"text": "fine"}]), input=lines + encode(user("hi")))
    assert {id: each["subtype"] for id, each in responses(done).items()} == {
        "r1": "success", "r2": "error", "r3": "error", "r4": "success",
    }  # fmt: skip
    assert (decode(done)[-1]["result"], done.stderr) == ("fine", "")


SERVER = """
import json, sys
from mcp.server.mcpserver import MCPServer
server = MCPServer("judge")

@server.tool()
def decide(tool_name: str, input: dict, tool_use_id: str) -> str:
    if sys.argv[1] == "nonsense":
        return "maybe"
    return json.dumps({"behavior": sys.argv[1], "message": f"{tool_name} is not for you", "updatedInput": input})

server.run()
"""


@pytest.mark.parametrize(("answer", "says"), [("allow", ""), ("deny", "not for you"), ("nonsense", "JSON object")])
def test_a_tool_of_an_mcp_server_can_answer_questions(wieldy, script, tmp_path, project, answer, says):
    (tmp_path / "judge.py").write_text(SERVER)
    config = {"mcpServers": {"judge": {"command": sys.executable, "args": [str(tmp_path / "judge.py"), answer]}}}
    model = script([WRITE], [{"text": "done"}])
    options = ("--mcp-config", json.dumps(config), "--output-format", "stream-json")
    done = wieldy("-p", "go", model, *options, "--permission-prompt-tool", "mcp__judge__decide")
    assert (project / "new.txt").exists() == (answer == "allow"), done.stdout
    assert says in done.stdout
    wrong = wieldy("-p", "go", model, "--permission-prompt-tool", "somebody")
    assert (wrong.returncode, "somebody" in wrong.stderr) == (2, True)
