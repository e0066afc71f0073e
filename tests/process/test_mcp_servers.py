"""`wieldy mcp` and what other commands know of MCP servers, as a person meets them."""

from __future__ import annotations

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

SCRIPT = Path(__file__).parents[1] / "unit" / "mcp" / "scripted_server.py"


@pytest.fixture
def line(tmp_path: Path) -> list[str]:
    """The command line of a small server."""
    return [sys.executable, "-I", "-S", str(SCRIPT), json.dumps({"log": str(tmp_path / "log"), "stderr": 2})]


def test_a_server_is_added_listed_used_and_removed(wieldy, project, line):
    added = wieldy("mcp", "add", "tiny", "--env", "A=b", "--timeout", "5", "--", *line)
    assert added.returncode == 0, added.stderr
    written = json.loads((project / ".wieldy" / "settings.local.json").read_text())["mcpServers"]["tiny"]
    assert (written["command"], written["env"], written["timeout"]) == (line[0], {"A": "b"}, 5000)
    listed = wieldy("mcp", "list")
    assert listed.returncode == 0 and listed.stdout.startswith("✓ tiny") and "13 tools" in listed.stdout
    got = wieldy("mcp", "get", "tiny")
    assert "mcp__tiny__echo" in got.stdout and "last words" in got.stdout
    assert wieldy("mcp", "reconnect", "tiny").returncode == 0
    wieldy("permissions", "allow", "mcp__tiny__echo")
    said = wieldy("call", "mcp__tiny__echo", "text=hello")
    assert (said.returncode, said.stdout.strip()) == (0, "hello")
    tools = json.loads(wieldy("tools", "--json").stdout)
    assert {"mcp__tiny__echo", "ListMcpResources"} <= {row["name"] for row in tools}
    assert all(row["reason"] for row in tools)
    assert wieldy("mcp", "remove", "tiny").returncode == 0
    assert "no MCP server" in wieldy("mcp", "list").stdout


def test_a_server_that_does_not_start_is_said_in_a_line(wieldy):
    assert wieldy("mcp", "add", "gone", "--scope", "user", "--", "no-such-program").returncode == 0
    listed = wieldy("mcp", "list", "--json")
    assert json.loads(listed.stdout)[0]["state"] == "failed"
    again = wieldy("mcp", "reconnect", "gone")
    assert again.returncode == 1
    assert "there is no program `no-such-program`" in again.stdout
    tools = wieldy("tools")
    assert tools.returncode == 0 and "Read" in tools.stdout
    assert "the MCP server gone has no tools" in tools.stderr
    call = wieldy("call", "mcp__gone__x")
    assert call.returncode != 0 and "No such tool" in call.stdout + call.stderr


def test_a_server_that_wants_a_sign_in_it_does_not_offer_is_said_in_a_line(wieldy):
    class Closed(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.send_response(401)
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_GET = do_POST

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Closed) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        wieldy("mcp", "add", "shut", f"http://127.0.0.1:{server.server_port}/mcp")
        listed, tried = wieldy("mcp", "list"), wieldy("mcp", "reconnect", "shut")
        server.shutdown()
    assert "needs approval: run `wieldy mcp reconnect shut` to sign in" in listed.stdout
    assert "failed: it needs a sign-in" in tried.stdout and tried.returncode == 1
    assert listed.stderr == tried.stderr == ""


def test_a_tool_that_cannot_be_offered_is_named_with_the_reason(wieldy, tmp_path, line):
    tools = [{"name": "odd", "inputSchema": {"type": "string"}}, {"name": "good", "inputSchema": {"type": "object"}}]
    habits = json.dumps({"log": str(tmp_path / "log"), "tools": tools})
    wieldy("mcp", "add", "tiny", "--", *line[:-1], habits)
    done = wieldy("tools")
    assert "mcp__tiny__good" in done.stdout
    assert "the tool odd of the MCP server tiny is left out: its input is of type" in done.stderr


def test_a_server_of_the_project_waits_for_consent(wieldy, project, line):
    (project / ".mcp.json").write_text(json.dumps({"mcpServers": {"tiny": {"command": line[0], "args": line[1:]}}}))
    assert "? tiny" in wieldy("mcp", "list").stdout
    assert wieldy("permissions", "trust", "--yes").returncode == 0
    assert "✓ tiny" in wieldy("mcp", "list").stdout
    (project / ".mcp.json").write_text(json.dumps({"mcpServers": {"tiny": {"command": "other"}}}))
    assert "? tiny" in wieldy("mcp", "list").stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("add", "a b", "http://x.org"), "cannot be the name of a server"),
        (("add", "x"), "either a URL or"),
        (("add", "x", "ftp://x.org"), "http:// or https://"),
        (("add", "x", "http://x.org", "--header", "nonsense"), "is not NAME:VALUE"),
        (("remove", "x"), "no server `x`"),
        (("get", "x"), "there is no MCP server `x`"),
        (("reconnect", "x"), "there is no MCP server `x`"),
    ],
)
def test_what_cannot_be_done_is_one_line(wieldy, words, said):
    done = wieldy("mcp", *words)
    assert done.returncode in (1, 2)
    assert said in done.stderr and len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("verb", ["add", "remove", "list", "get", "reconnect"])
def test_every_verb_explains_itself(wieldy, verb):
    done = wieldy("mcp", verb, "--help")
    assert done.returncode == 0 and f"wieldy mcp {verb}" in done.stdout


def test_a_headless_run_uses_the_servers_it_is_given(wieldy, tmp_path, line):
    turns = [
        [{"call": "ToolSearch", "input": {"query": "say it again"}}],
        [{"call": "mcp__tiny__echo", "input": {"text": "from the server"}}],
        [{"text": "done"}],
    ]
    script = tmp_path / "script.json"
    script.write_text(json.dumps({"turns": turns}))
    servers = json.dumps({"mcpServers": {"tiny": {"command": line[0], "args": line[1:]}}})
    options = ("--model", f"script:{script}", "--mcp-config", servers, "--allowed-tools", "mcp__tiny__echo")
    done = wieldy("-p", "go", *options, "--output-format", "stream-json")
    assert done.returncode == 0, done.stderr
    assert '"from the server"' in done.stdout
    assert not any(json.loads(row).get("is_error") for row in done.stdout.splitlines())


def test_a_server_that_is_not_there_is_named_once_and_the_answer_comes_all_the_same(wieldy, tmp_path):
    script = tmp_path / "script.json"
    asks = {"call": "ListMcpResources", "input": {"server": "gone"}}
    script.write_text(json.dumps({"turns": [[asks], [asks], [{"text": "done"}]]}))
    servers = json.dumps({"mcpServers": {"gone": {"command": "no-such-program"}}})
    options = ("--mcp-config", servers, "--allowed-tools", "mcp__gone")
    done = wieldy("-p", "go", "--model", f"script:{script}", *options)
    assert (done.returncode, done.stdout) == (0, "done\n")
    assert done.stderr.splitlines() == [
        "wieldy: the MCP server gone is not available: there is no program `no-such-program` on PATH"
    ]


def test_the_doctor_tries_every_server_and_says_a_line_of_each(wieldy, tmp_path, line):
    wieldy("mcp", "add", "tiny", "--", *line)
    wieldy("mcp", "add", "gone", "--", "no-such-program")
    dying = [sys.executable, "-c", "import sys; sys.exit('I have no licence')"]
    wieldy("mcp", "add", "dying", "--", *dying)
    findings = {row["what"]: row for row in json.loads(wieldy("doctor", "--json").stdout)}
    assert (findings["mcp tiny"]["state"], findings["mcp tiny"]["detail"]) == ("ok", "ready, 13 tools")
    assert "there is no program `no-such-program`" in findings["mcp gone"]["detail"]
    assert findings["mcp gone"]["fix"] == "wieldy mcp get gone"
    assert "I have no licence" in findings["mcp dying"]["detail"]
    shown = wieldy("doctor")
    assert shown.returncode == 0
    assert "✓ mcp tiny         ready, 13 tools" in shown.stdout


def test_a_server_that_hangs_holds_up_only_whoever_asks_for_it(wieldy, environment, line, tmp_path):
    wieldy("mcp", "add", "tiny", "--", *line)
    habits = json.dumps({"log": str(tmp_path / "log"), "hang": True})
    stuck = {"command": line[0], "args": [*line[1:-1], habits], "startupTimeout": 600_000}
    (home := Path(environment["WIELDY_HOME"])).mkdir(exist_ok=True)
    (home / "settings.json").write_text(json.dumps({"mcpServers": {"stuck": stuck}}))
    assert "13 tools" in wieldy("mcp", "get", "tiny").stdout  # or the time of the test is up
    assert wieldy("tools", "Grep").stderr == ""


def test_a_command_line_without_its_dashes_is_shown_with_them(wieldy):
    for words in (("npx", "-y", "server"), ("npx",), ("npx", "server")):
        done = wieldy("mcp", "add", "x", *words)
        assert done.returncode == 2
        assert f"wieldy mcp add x -- {' '.join(words)}" in done.stderr
    odd = wieldy("mcp", "list", "--odd")
    assert odd.returncode == 2 and "unknown option --odd" in odd.stderr


def test_an_address_that_leads_nowhere_is_said_in_plain_words(wieldy):
    wieldy("mcp", "add", "far", "http://127.0.0.1:9/mcp")
    said = wieldy("mcp", "reconnect", "far")
    assert said.returncode == 1 and "failed: " in said.stdout and "Errno" not in said.stdout
