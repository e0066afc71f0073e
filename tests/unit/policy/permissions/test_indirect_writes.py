"""What comes into a folder unnamed, with another folder or an archive, does not slip past the protection of its files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from wieldy.core.decision import Decision

EVERYTHING = [{"allow": ["Bash"]}, {"mode": "bypassPermissions"}]


def guarded(decision: Decision) -> bool:
    return decision.behavior == "ask" and any(reason.kind == "guard" for reason in decision.reasons)


@pytest.mark.parametrize("given", EVERYTHING)
@pytest.mark.parametrize(
    "command",
    [
        "cp -r evil/. .",
        "cp -a evil/. repo",
        "cp -rT evil .",
        "cp -r evil/.* .",
        "mv evil/.* .",
        "cp -r missing/. .",
        "rsync -a evil/ .",
        "rsync -a evil/ repo",
        "rsync -a host:evil/ .",
        "cd evil && rsync -a ./ ..",
        "tar xf x.tar",
        "tar -xzf x.tgz",
        "tar --extract --file x.tar",
        "tar xf x.tar -C repo",
        "tar xf x.tar --directory=..",
        "unzip x.zip",
        "unzip -o x.zip -d .",
        "7z x a.7z",
        "cpio -id < x",
    ],
)
def test_what_may_bring_protected_files_is_asked_about(
    judge, called, root: str, given: dict[str, object], command: str
) -> None:
    os.makedirs(f"{root}/evil/.wieldy")
    os.makedirs(f"{root}/repo/.git")
    assert guarded(judge(**given).decide(called("Bash", command)))


@pytest.mark.parametrize(
    "command",
    [
        "cp -r good/. .",
        "cp -r good/* .",
        "cp -rT good fresh",
        "rsync -a good/ .",
        "rsync -a good .",
        "rsync -a evil/ host:x",
        "tar xf x.tar -C fresh",
        "tar xf x.tar -C good",
        "mkdir fresh && cd fresh && tar xf ../x.tar",
        "tar cf x.tar .",
        "tar tf x.tar",
        "unzip -l x.zip",
        "unzip x.zip -d fresh",
        "7z x a.7z -ofresh",
    ],
)
def test_what_brings_none_raises_no_question(judge, called, root: str, command: str) -> None:
    Path(root, "good").mkdir()
    Path(root, "good", "a").write_text("x")
    decision = judge(mode="bypassPermissions").decide(called("Bash", command))
    assert decision.behavior == "allow", decision.reasons


def test_a_rule_that_spells_the_command_out_means_what_it_brings(judge, called) -> None:
    assert judge(allow=["Bash(tar xf x.tar)"]).decide(called("Bash", "tar xf x.tar")).behavior == "allow"
    assert guarded(judge(allow=["Bash(tar:*)"]).decide(called("Bash", "tar xf x.tar")))
