"""A `.git` that came with an archive makes git read nothing of the person unasked."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from wieldy.policy.permissions import repository_links
from wieldy.policy.permissions.repository_links import outside_reads

COMMANDS = ["git log", "git status", "git config -l", "git -C . show", "cd src && git log -p", "git worktree list"]


def git(folder: str | Path, *words: str) -> None:
    identity = ("-c", "user.name=n", "-c", "user.email=e@host.example", "-c", "protocol.file.allow=always")
    env = {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null"}
    subprocess.run(["git", *identity, *words], cwd=folder, check=True, capture_output=True, env=env)


def make(folder: str) -> None:
    os.makedirs(f"{folder}/src", exist_ok=True)
    Path(folder, "src/a.py").write_text("x = 1\n")
    Path(folder, ".env").write_text("SECRET=1\n")
    git(folder, "init", "-q")
    git(folder, "add", "src")
    git(folder, "commit", "-qm", "first")


@pytest.fixture
def private(home: str) -> str:
    make(f"{home}/private")
    Path(home, ".netrc").write_text("password\n")
    return f"{home}/private"


@pytest.fixture
def repository(root: str) -> str:
    make(root)
    return root


def link(name: str) -> Callable[[str, str], None]:
    def attack(root: str, home: str) -> None:
        path = Path(root, ".git", name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        path.symlink_to(f"{home}/.netrc")

    return attack


def link_folder(name: str) -> Callable[[str, str], None]:
    def attack(root: str, home: str) -> None:
        path = Path(root, ".git", name)
        if path.exists():
            path.rename(Path(root, "moved"))
        path.symlink_to(f"{home}/private/.git/{name}")

    return attack


def content(name: str, text: str) -> Callable[[str, str], None]:
    def attack(root: str, home: str) -> None:
        path = Path(root, ".git", name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.replace("HOME", home))

    return attack


def forged_work_tree(root: str, home: str) -> None:
    git(f"{home}/private", "worktree", "add", "-q", f"{home}/other")
    Path(root, ".git").rename(Path(root, "moved"))
    Path(root, ".git").write_text(f"gitdir: {home}/private/.git/worktrees/other\n")


def forged_common(root: str, home: str) -> None:
    Path(root, ".git").rename(Path(root, "moved"))
    (Path(root, "claim") / "HEAD").parent.mkdir()
    Path(root, "claim/HEAD").write_text("ref: refs/heads/master\n")
    Path(root, "claim/gitdir").write_text(f"{root}/.git\n")
    Path(root, "claim/commondir").write_text(f"{home}/private/.git\n")
    Path(root, ".git").write_text("gitdir: claim\n")


def forged_submodule(root: str, home: str) -> None:
    Path(root, ".git").rename(Path(root, "moved"))
    Path(root, ".git").write_text(f"gitdir: {home}/private/.git\n")


def submodule_of(root: str, home: str) -> None:
    """A submodule whose folder names the work tree, as git makes it, and another repository beside."""
    module = Path(root, ".git/modules/src")
    module.mkdir(parents=True)
    (module / "HEAD").write_text("ref: refs/heads/main\n")
    (module / "config").write_text("[core]\n\tworktree = ../../../src\n")
    (module / "gitdir").write_text(f"{root}/src/.git\n")
    (module / "commondir").write_text(f"{home}/private/.git\n")
    Path(root, "src/.git").write_text("gitdir: ../.git/modules/src\n")


def nested_include(key: str, value: str) -> Callable[[str, str], None]:
    def attack(root: str, home: str) -> None:
        content("more", f"[a]\n{key} = {value}\n")(root, home)
        content("config", "[include]\n\tpath = more\n")(root, home)

    return attack


def include_through_a_link(root: str, home: str) -> None:
    Path(home, "sub").mkdir()
    Path(root, "linked").symlink_to(f"{home}/sub")
    content("config", "[include]\n\tpath = ../linked/../.netrc\n")(root, home)


def common_behind_a_blank(root: str, home: str) -> None:
    """A folder whose name ends in a blank, beside one without."""
    forged_common(root, home)
    Path(root, "claim").rename(Path(root, "claim "))
    Path(root, "claim").mkdir()
    Path(root, ".git").write_text("gitdir: claim \n")


def linked_git(root: str, home: str) -> None:
    Path(root, ".git").rename(Path(root, "moved"))
    Path(root, ".git").symlink_to(f"{home}/private/.git")


def linked_settings(value: str, name: str) -> Callable[[str, str], None]:
    """A setting that names a link of the work tree, as git reads the value."""

    def attack(root: str, home: str) -> None:
        Path(root, name).symlink_to(f"{home}/.netrc")
        content("config", f"[core]\n\texcludesFile = {value}\n")(root, home)

    return attack


def broken_include(root: str, home: str) -> None:
    Path(home, "broken").write_text("[[\n")
    content("config", "[include] path = HOME/broken\n")(root, home)


ATTACKS = {
    **{
        name: link(name)
        for name in (
            *(
                "info/grafts",
                "shallow",
                "MERGE_HEAD",
                "rebase-merge/head-name",
                "worktrees/x/gitdir",
                "config",
                "FETCH_HEAD",
            ),
            *(
                "objects/info/alternates",
                "refs/heads/topic/deep",
                "packed-refs",
                "info/exclude",
                "logs/HEAD",
                "config.worktree",
            ),
        )
    },
    **{f"{name}/": link_folder(name) for name in ("objects", "refs", "info", "logs")},
    "alternates": content("objects/info/alternates", "HOME/private/.git/objects\n"),
    "include": content("config", "[core]\n\tbare = false\n[include]\n\tpath = HOME/.netrc\n"),
    "includeIf": content("config", '[includeIf "gitdir:/"]\n\tpath = "HOME/.netrc" # x\n'),
    "excludes": content("config", "[core]\n\texcludesFile = HOME/.netrc\n"),
    "ignored revisions": content("config", "[blame]\n\tignoreRevsFile = HOME/.netrc\n"),
    "one line": content("config", "[include] path = HOME/.netrc\n"),
    "one line of a file": content("config", "[blame]ignoreRevsFile=HOME/.netrc\n"),
    "continued line": content("config", "[include]\n\tpath = \\\nHOME/.netrc\n"),
    "continued comment": content("config", "[include]\n# x \\\npath = HOME/.netrc\n"),
    "quoted comment": content("config", '[include]\n\tpath = "HOME/private/.git/../../"".netrc" ; x\n'),
    "carriage return": content("config", "[include]\r\npath = HOME/.netrc\r\n"),
    "nested include": nested_include("path", "HOME/.netrc"),
    "nested file": nested_include("ignoreRevsFile", "HOME/.netrc"),
    "include through a link": include_through_a_link,
    "blanks in quotes": linked_settings('" a "', " a "),
    "escaped tab": linked_settings("a\\tb", "a\tb"),
    "tab as in git 2.45": linked_settings("a\tb", "a\tb"),
    "tab as before": linked_settings("a\tb", "a b"),
    "text behind a NUL": linked_settings("a\0b", "a"),
    "no ASCII blank": linked_settings("a\xa0", "a\xa0"),
    "broken include": broken_include,
    "skip list": content("config", "[fsck]\n\tskipList = HOME/.netrc\n"),
    "work tree": forged_work_tree,
    "common folder": forged_common,
    "common folder behind a blank": common_behind_a_blank,
    "submodule": forged_submodule,
    "linked folder": linked_git,
}


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=list(ATTACKS))
def test_what_git_would_read_elsewhere_is_asked_about(judge, called, private, repository, home, attack) -> None:
    for command in COMMANDS[:-1]:
        assert judge().decide(called("Bash", command)).behavior == "allow"
    attack(repository, home)
    for command in COMMANDS:
        decision = judge().decide(called("Bash", command))
        assert decision.behavior == "ask", (command, decision.reasons)
        denied = judge(mode="bypassPermissions", deny=[f"Read(/{home}/**)"]).decide(called("Bash", command))
        assert denied.behavior == "deny", (command, denied.reasons)


UNCERTAIN = {
    "prefix": ("config", "[include]\n\tpath = %(prefix)/../HOME/.netrc\n"),
    "broken settings": ("config", "[include\n\tpath = HOME/.netrc\n"),
    "late include": ("config", "#" * 1_100_000 + "\n[include]\n\tpath = HOME/.netrc\n"),
    "escaped alternates": ("objects/info/alternates", '"\\057HOME/private/.git/objects"\n'),
}


@pytest.mark.parametrize("name", UNCERTAIN)
def test_what_cannot_be_told_is_asked_about(judge, called, private, repository, home, name) -> None:
    content(*UNCERTAIN[name])(repository, home)
    for command in COMMANDS:
        assert judge().decide(called("Bash", command)).behavior == "ask"
        denied = judge(mode="bypassPermissions", deny=[f"Read(/{home}/**)"])
        assert denied.decide(called("Bash", command)).behavior == "ask"


def test_a_submodule_does_not_borrow_another_repository(judge, called, private, repository: str, home: str) -> None:
    commands = ("git -C src log -p", "cd src && git log")
    submodule_of(repository, home)
    for command in commands:
        assert judge().decide(called("Bash", command)).behavior == "ask"
        rules = [f"Read(/{home}/private/**)"]
        assert judge(mode="bypassPermissions", deny=rules).decide(called("Bash", command)).behavior == "deny"


@pytest.mark.timeout(20)
@pytest.mark.parametrize("name", ["objects/info/alternates", "config"])
def test_names_that_lead_back_to_themselves_are_followed_once(repository: str, name: str) -> None:
    line = ".\n" if name.endswith("alternates") else "[include] path = config\n"
    Path(repository, ".git", name).write_text(line * 5_000)
    assert list(outside_reads(repository)) == []


def test_settings_may_name_files_of_the_project(judge, called, repository: str) -> None:
    Path(repository, ".git/config").write_text("[include] path = ../.gitsettings\n[blame] ignoreRevsFile = revs\n")
    Path(repository, "revs").touch()
    Path(repository, ".gitsettings").touch()
    assert judge().decide(called("Bash", "git blame src/a.py")).behavior == "allow"
    assert judge(deny=["Read(revs)"]).decide(called("Bash", "git blame src/a.py")).behavior == "deny"


def test_a_denied_file_of_the_project_is_not_read_through_a_link(judge, called, repository: str) -> None:
    Path(repository, ".git/info/grafts").symlink_to("../../.env")
    assert judge().decide(called("Bash", "git log")).behavior == "allow"
    for mode in ("default", "bypassPermissions"):
        assert judge(deny=["Read(.env)"], mode=mode).decide(called("Bash", "git log")).behavior == "deny"


def test_work_trees_and_submodules_stay_unasked(judge, called, private: str, repository: str, home: str) -> None:
    git(repository, "worktree", "add", "-q", f"{repository}/trees/one")
    git(repository, "submodule", "add", "-q", private, "lib")
    Path(repository, ".git/hooks").rename(Path(repository, "shared-hooks"))
    Path(repository, ".git/hooks").symlink_to("../shared-hooks")
    for command in (
        "git status",
        "git -C trees/one log",
        "git -C lib log -p",
        "cd lib && git status",
        "git -C lib/src log",
    ):
        decision = judge().decide(called("Bash", command))
        assert decision.behavior == "allow", (command, decision.reasons)
    assert list(outside_reads(f"{repository}/lib")) == list(outside_reads(f"{repository}/trees/one")) == []


def test_a_change_is_seen_in_spite_of_the_memory(repository: str, home: str) -> None:
    assert list(outside_reads(repository)) == []
    assert repository_links._cache
    Path(repository, ".git/refs/heads/x").symlink_to(f"{home}/.netrc")
    assert list(outside_reads(repository)) == [f"{home}/.netrc"]
    Path(repository, ".git/refs/heads/x").unlink()
    Path(repository, ".git/config").write_text("[core]\n\texcludesFile = /etc/passwd\n")
    assert list(outside_reads(repository)) == ["/etc/passwd"]


def test_too_many_folders_are_asked_about(judge, called, repository: str) -> None:
    for number in range(repository_links.MAX_PLACES + 1):
        os.mkdir(f"{repository}/.git/refs/heads/{number}")
    decision = judge().decide(called("Bash", "git log"))
    assert decision.behavior == "ask"
    assert any("too many" in reason.text for reason in decision.reasons)
