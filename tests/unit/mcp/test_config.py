"""Servers as settings describe them, and where the settings come from."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from wieldy.mcp.config import InvalidServer, parse_server, parse_servers
from wieldy.policy.settings.consent import Trust
from wieldy.policy.settings.load import load_settings


def test_variables_are_filled_in_everywhere_and_what_is_not_set_stays_and_is_said():
    entry = {
        "command": "${HOME}/bin/x",
        "args": ["--key=${KEY}", "${PORT:-80}", "${EMPTY:-full}", "$HOME", "${no"],
        "env": {"A": "${MISSING}"},
    }
    servers, problems = parse_servers({"mcpServers": {"s": entry}}, {"HOME": "/home/ann", "KEY": "k", "EMPTY": ""})
    [server] = servers
    assert server.command == "/home/ann/bin/x"
    assert server.args == ("--key=k", "80", "full", "$HOME", "${no")
    assert server.env == {"A": "${MISSING}"}
    assert problems == ["MCP server `s`: ${MISSING} is not set"]


def test_each_kind_is_read_with_its_limits_in_milliseconds():
    http = parse_server("h", {"url": "https://x.org/mcp", "headers": {"A": "b"}, "timeout": 2500, "alwaysLoad": True})
    assert (http.kind, http.timeout, http.always_load, dict(http.headers)) == ("http", 2.5, True, {"A": "b"})
    assert parse_server("s", {"type": "sse", "url": "http://x.org/sse"}).kind == "sse"
    assert parse_server("t", {"type": "streamable-http", "url": "http://x.org"}).kind == "http"
    assert parse_server("c", {"command": "x", "args": ["y z"]}).where == "x y z"


@pytest.mark.parametrize(
    ("entry", "word"),
    [
        ("x", "not an object"),
        ({}, "neither `command` nor `url`"),
        ({"type": "ws", "url": "ws://x"}, "use stdio, http or sse"),
        ({"url": "ftp://x"}, "http:// or https://"),
        ({"command": 3}, "`command` must be a string"),
        ({"command": "x", "args": "y"}, "`args` must be a list"),
        ({"command": "x", "env": {"A": 1}}, "`env` must be an object of strings"),
        ({"command": "x", "timeout": -1}, "milliseconds"),
        ({"command": "a\0b"}, "`command` must be a string"),
        ({"command": "x", "disable": True}, "did you mean `disabled`?"),
        ({"command": "x", "enabled": False}, "did you mean `disabled`?"),
        ({"command": "x", "disabled": "true"}, "`disabled` must be true or false"),
        ({"command": "x", "alwaysLoad": 1}, "`alwaysLoad` must be true or false"),
        ({"url": "https://x", "oauth": "me"}, "`oauth` must be an object"),
    ],
)
def test_an_entry_that_describes_no_server_is_said_and_the_others_are_used(entry, word):
    servers, problems = parse_servers({"mcpServers": {"bad": entry, "good": {"command": "x"}}}, {})
    assert [server.name for server in servers] == ["good"]
    assert word in problems[0]
    with pytest.raises(InvalidServer):
        parse_server("bad", entry)


def test_keys_that_are_not_known_are_said_to_have_no_effect():
    entry = {"url": "https://x", "enabled": True, "evn": {}, "autoApprove": [], "oauth": {"clientid": "w"}}
    servers, problems = parse_servers({"mcpServers": {"s": entry}}, {})
    assert [server.name for server in servers] == ["s"]
    assert problems == [
        "MCP server `s`: `enabled` is not known here and has no effect; did you mean `disabled`?",
        "MCP server `s`: `evn` is not known here and has no effect; did you mean `env`?",
        "MCP server `s`: `autoApprove` is not known here and has no effect",
        "MCP server `s`: `oauth.clientid` is not known here and has no effect; did you mean `clientId`?",
    ]


def test_disabled_servers_are_not_started():
    servers = {"a": {"command": "x"}, "b": {"command": "x", "disabled": True}, "c": {"command": "x"}}
    enabled, _ = parse_servers({"mcpServers": servers, "disabledMcpjsonServers": ["c"]}, {})
    assert [server.name for server in enabled] == ["a"]


def test_a_project_s_mcp_json_counts_once_the_user_has_agreed(tmp_path: Path):
    entry = {"command": "x"}
    (tmp_path / ".mcp.json").write_text(json.dumps({"mcpServers": {"s": entry}, "other": 1}))
    trust = Trust(tmp_path / "trust.json", env={})
    before = load_settings(tmp_path, env={"WIELDY_HOME": str(tmp_path / "home")}, trust=trust)
    assert not before.get("mcpServers")
    assert [one.name for one in before.pending] == ["mcpServers.s"]
    trust.accept(str(tmp_path), before.pending)
    after = load_settings(tmp_path, env={"WIELDY_HOME": str(tmp_path / "home")}, trust=trust)
    assert after.get("mcpServers") == {"s": entry}


def test_a_server_is_taken_whole_from_the_strongest_layer(tmp_path: Path):
    home = tmp_path / "home"
    home.mkdir()
    (home / "settings.json").write_text(
        json.dumps({"mcpServers": {"s": {"command": "x", "args": ["secret"]}, "u": {"command": "y"}}})
    )
    found = load_settings(
        tmp_path, explicit={"mcpServers": {"s": {"url": "http://x.org"}}}, env={"WIELDY_HOME": str(home)}
    )
    assert found.get("mcpServers") == {"s": {"url": "http://x.org"}, "u": {"command": "y"}}


@pytest.mark.parametrize("agreement", [{"enableAllProjectMcpServers": True}, {"enabledMcpjsonServers": ["s"]}])
def test_the_user_s_own_settings_may_agree_beforehand_and_the_project_s_may_not(tmp_path: Path, agreement):
    home = tmp_path / "home"
    home.mkdir()
    (tmp_path / ".mcp.json").write_text(json.dumps({"mcpServers": {"s": {"command": "x"}}}))
    (tmp_path / ".wieldy").mkdir()
    (tmp_path / ".wieldy" / "settings.json").write_text(json.dumps(agreement))
    trust = Trust(tmp_path / "trust.json", env={})
    assert not load_settings(tmp_path, env={"WIELDY_HOME": str(home)}, trust=trust).get("mcpServers")
    (home / "settings.json").write_text(json.dumps(agreement))
    found = load_settings(tmp_path, env={"WIELDY_HOME": str(home)}, trust=trust)
    assert found.get("mcpServers") == {"s": {"command": "x"}}


def test_people_are_shown_a_server_as_it_is_written_without_the_values_of_its_variables():
    entries = {
        "a": {"command": "run", "args": ["--token", "${TOKEN}"]},
        "b": {"url": "https://x.org/${TOKEN}/mcp"},
        "c": {"type": "sse", "url": "${BASE}/sse?key=${TOKEN:-none}"},
    }
    servers, _ = parse_servers({"mcpServers": entries}, {"TOKEN": "s3cret", "BASE": "https://y.org"})
    assert [server.where for server in servers] == [
        "run --token ${TOKEN}",
        "https://x.org/${TOKEN}/mcp",
        "${BASE}/sse?key=${TOKEN:-none}",
    ]
    assert servers[2].url == "https://y.org/sse?key=s3cret"
