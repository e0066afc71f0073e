"""Files that hooks, status lines and MCP servers name are found in every form of a command."""

from __future__ import annotations

from pathlib import Path

import pytest

from wieldy.core.active_commands import active_files, files_named_by


@pytest.mark.parametrize(
    "command",
    [
        "./hooks/check.sh --fast",
        "sh hooks/check.sh",
        "cd . && hooks/check.sh; echo done",
        "bash -c 'exec hooks/check.sh \"$1\"' x",
        '"$CLAUDE_PROJECT_DIR"/hooks/check.sh',
        "${WIELDY_PROJECT_DIR:-.}/hooks/check.sh",
        "node --require=hooks/check.sh",
        "cat x|hooks/check.sh>log",
        "echo 'unclosed hooks/check.sh",
        ["sh", "hooks/check.sh"],
        ["sh", "-c", "hooks/check.sh 2>&1"],
    ],
)
@pytest.mark.parametrize("exists", [True, False])
def test_a_script_is_found_whether_it_exists_or_not(tmp_path, command, exists):
    if exists:
        (tmp_path / "hooks").mkdir()
        (tmp_path / "hooks" / "check.sh").touch()
    assert f"{tmp_path}/hooks/check.sh" in files_named_by(command, str(tmp_path))


def test_a_file_without_a_slash_is_named_if_it_exists(tmp_path):
    assert files_named_by("python3 check.py", str(tmp_path)) == ()
    (tmp_path / "check.py").touch()
    assert files_named_by("python3 check.py", str(tmp_path)) == (f"{tmp_path}/check.py",)


def test_a_module_a_file_of_the_home_folder_and_the_target_of_a_link_are_named(tmp_path):
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "lint.py").touch()
    (tmp_path / "lint").symlink_to("tools/lint.py")
    module = f"{tmp_path}/tools/lint.py"
    assert files_named_by("python3 -m tools.lint .", str(tmp_path)) == (module,)
    assert files_named_by("~/check $HOME/other", str(tmp_path), "/home/x") == ("/home/x/check", "/home/x/other")
    assert files_named_by("./lint src", str(tmp_path)) == (f"{tmp_path}/lint", module)


def test_folders_are_not_named(tmp_path):
    Path(tmp_path, "src").mkdir()
    assert files_named_by("ruff check . src/", str(tmp_path)) == ()


def test_hooks_status_lines_and_servers_are_active(tmp_path):
    settings = {
        "hooks": {
            "PreToolUse": [{"matcher": "Bash", "hooks": [{"type": "command", "command": "./a.sh"}]}],
            "Stop": [{"hooks": [{"command": ["./b.sh", "x"]}, {"command": "./c.sh", "args": ["./d.sh"]}]}],
            "PostToolUse": "nonsense",
        },
        "statusLine": {"type": "command", "command": "./e.sh"},
        "mcpServers": {
            "one": {"command": "node", "args": ["./f.js"]},
            "two": {"command": "./g", "cwd": "sub"},
            "three": {"url": "https://example.com/x"},
            "four": None,
        },
        "model": "./h.sh",
    }
    names = [*(f"{letter}.sh" for letter in "abcde"), "f.js", "sub/g"]
    assert active_files(settings, str(tmp_path)) == tuple(f"{tmp_path}/{name}" for name in names)
    assert active_files({}, str(tmp_path)) == ()


@pytest.mark.parametrize(
    ("command", "script", "text", "loaded"),
    [
        ("python3 tools/check.py", "tools/check.py", "import os, helper\n", ["tools/helper.py", "tools/json.py"]),
        (
            "tools/check",
            "tools/check",
            "#!/usr/bin/env python3\nfrom helper import x",
            ["tools/helper.py", "tools/json.py"],
        ),
        ("python3 -m tools.check", "tools/check.py", "", ["json/__init__.py", "tools/json.py"]),
        ("sh tools/check.sh", "tools/check.sh", '. ./lib\n"$(dirname "$0")"/more.sh', ["lib", "tools/more.sh"]),
        ("node tools/check.js", "tools/check.js", "const a = require('./helper')", ["tools/helper.js"]),
        ("node tools/check.mjs", "tools/check.mjs", "import a from '../lib.mjs'", ["lib.mjs"]),
    ],
)
def test_what_a_script_loads_is_named_with_it(tmp_path, command, script, text, loaded):
    names = [
        "lib",
        "lib.mjs",
        "tools/helper.py",
        "tools/helper.js",
        "tools/json.py",
        "tools/more.sh",
        "json/__init__.py",
    ]
    for name in (*names, "tools/other.py", "README.md"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / script).write_text(text)
    (tmp_path / script).chmod(0o755)
    assert set(files_named_by(command, str(tmp_path))) == {f"{tmp_path}/{name}" for name in (script, *loaded)}
