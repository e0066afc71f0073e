"""A command that only reads a folder asks under a deny rule if a denied file is in it, and not because one could be."""

from __future__ import annotations

from pathlib import Path

import pytest

FOLDER_READERS = ["grep -rn x src", "rg x src", "cat src/*.py", "find src -name '*.py' -print0 | xargs -0 wc -l"]


@pytest.mark.parametrize("command", FOLDER_READERS)
def test_a_folder_without_denied_files_needs_no_question(judge, called, root: str, command: str) -> None:
    Path(root, "src/deep").mkdir(parents=True)
    Path(root, "src/a.py").write_text("x")
    Path(root, ".env").write_text("x")
    policy = judge(deny=["Read(.env)"])
    assert policy.decide(called("Bash", command)).behavior == "allow"
    Path(root, "src/deep/.env").write_text("x")
    assert policy.decide(called("Bash", command)).behavior == "ask"


@pytest.mark.parametrize(
    "command",
    [
        "grep -rn x .",
        "cp .env src/copy; grep -rn x src",
        "mv a src/.env; grep -rn x src",
        "git log -p -- src",
        "git grep x -- src",
        "git diff",
        "tar cf - src",
        "cp -r src /tmp/elsewhere",
    ],
)
def test_history_and_lines_that_change_something_still_ask(judge, called, root: str, command: str) -> None:
    Path(root, "src").mkdir()
    Path(root, ".env").write_text("x")
    policy = judge(deny=["Read(.env)"], mode="bypassPermissions")
    assert policy.decide(called("Bash", command)).behavior in ("ask", "deny")


def test_links_out_of_the_folder_are_followed_where_the_command_does(judge, called, root: str) -> None:
    Path(root, "src").mkdir()
    Path(root, "other").mkdir()
    Path(root, "other/.env").write_text("x")
    Path(root, "src/link").symlink_to("../other")
    policy = judge(deny=["Read(.env)"])
    assert policy.decide(called("Bash", "grep -rn x src")).behavior == "allow"
    assert policy.decide(called("Bash", "grep -Rn x src")).behavior == "ask"
    assert policy.decide(called("Bash", "cat src/link/*")).behavior == "ask"
