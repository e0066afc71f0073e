from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from wieldy.files.writing.locked_update import update_locked
from wieldy.policy.settings.consent import ConsentItem, Trust

HOOK = ConsentItem.for_value(
    "hooks.PreToolUse", [{"matcher": "Bash", "hooks": [{"type": "command", "command": "./check"}]}]
)
SERVER = ConsentItem.for_value("mcpServers.db", {"command": "db-server"})


def fresh(tmp_path: Path, **env: str) -> Trust:
    return Trust(tmp_path / "trust.json", env)


def test_nothing_is_trusted_before_somebody_consents(tmp_path: Path) -> None:
    trust = fresh(tmp_path)
    assert trust.pending("/p", [HOOK, SERVER]) == (HOOK, SERVER)
    trust.accept("/p", [HOOK])
    assert fresh(tmp_path).pending("/p", [HOOK, SERVER]) == (SERVER,)


def test_consent_is_to_one_project(tmp_path: Path) -> None:
    fresh(tmp_path).accept("/p", [HOOK])
    assert fresh(tmp_path).pending("/q", [HOOK]) == (HOOK,)


def test_a_changed_command_is_asked_about_again(tmp_path: Path) -> None:
    trust = fresh(tmp_path)
    trust.accept("/p", [SERVER])
    assert trust.pending("/p", [ConsentItem.for_value("mcpServers.db", {"command": "db-server --evil"})])
    assert trust.pending("/p", [ConsentItem.for_value("mcpServers.other", {"command": "db-server"})])
    assert not trust.pending("/p", [ConsentItem.for_value("mcpServers.db", {"command": "db-server"}, "moved.json:9")])


def test_the_environment_can_say_to_trust(tmp_path: Path) -> None:
    assert not fresh(tmp_path, WIELDY_TRUST="1").pending("/p", [HOOK])
    assert fresh(tmp_path, WIELDY_TRUST="0").pending("/p", [HOOK])


def test_consent_can_be_taken_back(tmp_path: Path) -> None:
    trust = fresh(tmp_path)
    trust.accept("/p", [HOOK, SERVER])
    trust.revoke("/p")
    assert trust.pending("/p", [HOOK, SERVER]) == (HOOK, SERVER)


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b'{"/p": 3}', b'{"/p": [3]}', b"\x00", b'"\xff"'])
def test_a_damaged_record_trusts_nothing_and_mends_itself(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "trust.json").write_bytes(content)
    trust = fresh(tmp_path)
    assert trust.pending("/p", [HOOK]) == (HOOK,)
    trust.accept("/p", [HOOK])
    assert trust.pending("/p", [HOOK]) == ()


def test_the_record_holds_hashes_and_is_for_its_owner_alone(tmp_path: Path) -> None:
    fresh(tmp_path).accept("/p", [SERVER])
    file = tmp_path / "trust.json"
    assert json.loads(file.read_text()) == {"/p": [SERVER.digest]}
    assert file.stat().st_mode & 0o777 == 0o600


def test_a_change_that_fails_leaves_the_file_and_no_litter(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    file.write_text("before")

    def fail(text: str | None) -> str:
        raise RuntimeError("no")

    with pytest.raises(RuntimeError):
        update_locked(file, fail)
    with pytest.raises(UnicodeEncodeError):
        update_locked(file, lambda text: "\ud800")
    assert file.read_text() == "before"
    assert os.listdir(tmp_path) == ["a.json"]


def test_a_rewrite_keeps_the_mode_and_follows_a_link(tmp_path: Path) -> None:
    target = tmp_path / "real.json"
    target.write_text("1")
    target.chmod(0o640)
    os.symlink(target, tmp_path / "link.json")
    update_locked(tmp_path / "link.json", lambda text: (text or "") + "2")
    assert target.read_text() == "12"
    assert target.stat().st_mode & 0o777 == 0o640
    assert (tmp_path / "link.json").is_symlink()
