"""A setting by which git runs programs is written like a hook: it is asked about whatever the mode; other settings are not."""

from __future__ import annotations

import pytest

from wieldy.core.effects import Writes
from wieldy.shell.effects.analysis import analyze


def written(command: str) -> list[str]:
    effects = analyze(command, cwd="/w/p", home="/h").effects
    return [effect.path for effect in effects if isinstance(effect, Writes)]


@pytest.mark.parametrize(
    ("command", "path"),
    [
        ("git config core.hooksPath x", "/w/p/.git/config"),
        ("git config core.HooksPath x", "/w/p/.git/config"),
        ("git config set core.hooksPath x", "/w/p/.git/config"),
        ("git config --add core.sshCommand 'ssh -x'", "/w/p/.git/config"),
        ("git config --global core.hooksPath x", "/h/.gitconfig"),
        ("git config -f other core.hooksPath x", "/w/p/other"),
        ("git config --file=other core.hooksPath x", "/w/p/other"),
        ("git -C sub config core.fsmonitor ./x", "/w/p/sub/.git/config"),
        ("git -c a.b=c config core.hooksPath x", "/w/p/.git/config"),
        ("git config alias.z '!ls'", "/w/p/.git/config"),
        ('git config alias.z "$x"', "/w/p/.git/config"),
        ("git config filter.x.smudge ./x", "/w/p/.git/config"),
        ("git config credential.helper ./x", "/w/p/.git/config"),
        ("git config include.path x", "/w/p/.git/config"),
        ("git config init.templateDir x", "/w/p/.git/config"),
    ],
)
def test_a_setting_that_names_a_program_writes_the_file_of_settings(command: str, path: str) -> None:
    assert written(command) == [path]


@pytest.mark.parametrize(
    "command",
    [
        "git config user.name x",
        "git config core.hooksPath",
        "git config --get core.hooksPath",
        "git config --unset core.hooksPath",
        "git config alias.st status",
        "git config core.pager cat",
        "git config core.fsmonitor true",
        "git config pull.rebase true",
        "git config remote.origin.url x",
    ],
)
def test_any_other_setting_is_as_before(command: str) -> None:
    assert written(command) == []
