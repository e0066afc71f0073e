"""Guards hold in bypass mode, whatever spelling, link, glob or tool destroys or reaches what they protect."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture
def repository(root: str) -> str:
    os.makedirs(f"{root}/.git/hooks")
    os.makedirs(f"{root}/src")
    for name in (".git/config", "a.txt"):
        Path(root, name).write_text("x\n")
    return root


@pytest.mark.parametrize(
    "command",
    [
        "find ~ -exec rm {} +",
        "find . -delete",
        r"find . -type f -exec rm -f {} \;",
        "find . -name '*' -delete",
        "find . -iname '*' -delete",
        "find . -path './*' -delete",
        "find . -regex '.*' -delete",
        "find . ! -name '*.py' -delete",
        "find . -mtime -1000 -delete",
        "find . -name '[.]git' -exec rm -rf {} +",
        "find . -mindepth 1 -maxdepth 1 ! -name src -exec rm -rf {} +",
        "find . -name x -o -name '*' -delete",
        "find ~ -name '*' -exec shred {} +",
        "find . -type f | xargs rm",
        # The project lies below the starting point.
        "find .. -name 'proj*' -exec rm -rf {} +",
        "find / -type d -name project -exec rm -r {} +",
        "find .. -path '../project/*' -delete",
        "find .. -regex '.*/project/.*' -type f -delete",
        "find * -delete",
        "find ../p* -type f -delete",
        "find . -exec sudo rm -rf {} +",
        """find . -name '.g*' -exec sh -c 'rm -rf "$1"' _ {} ';'""",
        "find . -name '.g*' -exec mv {} /elsewhere ';'",
        "find . -type f -exec truncate -s 0 {} +",
        'for f in .g*; do rm -rf "$f"; done',
        "for f in *; do rm -rf $f; done",
        'for f in ../*; do rm -rf -- "$f"; done',
        "for f in [.]git x; do mv $f /elsewhere; done",
        "shopt -s dotglob; rm -rf ?git",
        "bash -O dotglob -c 'rm -rf *git'",
        "rm -rf ${HOME%x}",
        'for f in *; do rm -rf "./$f/"; done',
        'for d in */; do rm -rf "$d/.git"; done',
        'rm -rf "${PWD%/}"',
        "rm -rf ~somebody",
        "rm -rf $(dirname $PWD/x)",
        "rm -rf $(echo .git)",
        "rm -rf /$x",
        "tar --remove-files -cf ../a.tar .git",
        "zip -qmr ../a.zip .",
        "rm -rf [.]git",
        "rm -rf .[g]it",
        "rm -rf ./{*,.*}",
        "rm -rf */",
        "rm -rf ??*",
        "rm -rf **/*",
        "rm -rf ../pro*",
        "rm -rf ../p[a-z]oject",
        "rm -rf /ho*",
        "rm -rf .gi$x",
        "rm -rf $x.git",
        'rm -rf "$x"/.git',
        "shopt -s extglob; rm -rf !(x)",
        "mv [.]git x",
        "git clean -xfd",
        "git clean -fdx -enone",
        "git -c clean.requireForce=false clean -d",
        "ls | xargs rm -rf",
        'rm -rf "$(pwd)"',
        "rm -rf `pwd`",
        "rm -rf $(git rev-parse --show-toplevel)",
        "rm -rf ${x:-~}",
        "rm -rf ${x:-$HOME}",
        "rm -rf /home",
        "rm -rf /root/",
        "rm -rf /opt",
        "rm -rf /Users",
        "git push --force",
        "git push -f origin x",
        "git push origin +x",
        "git push --force-with-lease origin main",
        "git stash clear",
        "git stash drop stash@{1}",
        "mv -t /elsewhere ~",
        "mv --target-directory=/elsewhere .",
        # Where it is known only when it runs: an empty variable is the home folder.
        'cd "$x"; rm -rf *',
        "pushd / && rm -rf ./*",
        "env -C / rm -rf .",
        "popd; find . -delete",
        # Behind programs that are not understood.
        "env --chdir=.. rm -rf ./*",
        "sudo --unknown rm -rf ~",
        "unheard-of --option rm -rf .git",
        "unheard-of -- find ~ -delete",
        "unheard-of mkfs.ext4 /dev/sda1",
        # Names that other programs list.
        "rm -rf $(ls -A)",
        "rm -rf `ls`",
        "rm -rf $(git ls-files)",
        "git ls-files -z | xargs -0 rm -f",
        "ls -A | xargs rm -r",
        'set -- *; rm -rf "$@"',
        'a=(*); rm -rf "${a[@]}"',
        "fd -t f -x rm",
        "fdfind . --exec-batch rm -rf",
        # Work and history that git keeps.
        "git push origin :main",
        "git push --delete origin main",
        "git push --prune origin",
        "git reflog expire --expire=now --all",
        "git gc --prune=now",
        "git prune",
        "git filter-repo --path x",
        "git submodule deinit -f --all",
        "git worktree remove --force ../tree",
        "git checkout HEAD a.txt",
        "git checkout *",
        "git read-tree -u --reset HEAD",
        "git checkout-index -fa",
        "git reset --merge",
        "parted -s /dev/sda mklabel gpt",
        "sgdisk -Z /dev/sda",
    ],
)
def test_destruction_is_asked_about_in_every_mode(judge, called, repository: str, command: str) -> None:
    decision = judge(mode="bypassPermissions", allow=["Bash"]).decide(called("Bash", command))
    assert decision.behavior == "ask", decision.reasons
    assert any(reason.kind == "guard" for reason in decision.reasons)


@pytest.mark.parametrize(
    "command",
    [
        "rm -rf ${x:-/}",
        "rm -rf /e*",
        "rm -rf /[e]tc",
        "rm -rf /{etc,usr}",
        "rm -rf /*",
        "dd if=x of=/dev/disk0",
        "echo b > /proc/sysrq-trigger",
    ],
)
def test_what_may_be_the_system_is_refused(judge, called, command: str) -> None:
    assert judge(mode="bypassPermissions").decide(called("Bash", command)).behavior == "deny"


@pytest.mark.parametrize(
    "command",
    [
        "cp a.txt .g*/config",
        "rm .g*/config",
        "echo x > .g*/config",
        "echo x >> .gi?/config",
        "echo x > [.]git/config",
        "echo x > .git/h*/x",
        "echo x > .g$y/config",
        "echo x > .e*",
        "{ echo x; } > .husk*/pre-commit",
        "echo x | tee .vsc*/tasks.json",
        "git diff --output=.git/config",
        "git diff --outp .git/config",
        "git log -p --output=.git/hooks/x",
        "git -C .git show --output=config",
        "git stash show -p --output=.git/config",
        "git format-patch -o .git/hooks HEAD",
        "git archive --output=.git/config HEAD",
        "git bundle create .git/config HEAD",
        "git config -f .git/config x.y z",
        "tar xf a.tar -C .git/hooks",
        "unzip a.zip -d .git",
        "xxd -r a.txt .git/config",
        "perl -i -pe s/x/y/ .git/config",
        "perl -pi -e s/x/y/ .g*/config",
        "ed .git/config",
        "ln -s .git g; echo x > g/config",
        "ln -s ../.git src/g; echo x > src/g/config",
        "ln -s .git/hooks h && cp a.txt h/pre-commit",
    ],
)
def test_protected_files_are_seen_through_globs_links_archives_and_editors(
    judge, called, repository: str, command: str
) -> None:
    decision = judge(mode="bypassPermissions", allow=["Bash"]).decide(called("Bash", command))
    assert decision.behavior == "ask", decision.reasons


@pytest.mark.parametrize(
    "command",
    [
        "find . -name '*.pyc' -delete",
        "find . -name '*.pyc' -exec rm {} +",
        "find . -name '*.pyc' | xargs rm",
        "find . -name .git -prune -o -name '*.o' -delete",
        "find . -type d -name __pycache__ -exec rm -rf {} +",
        "find . -type d -empty -delete",
        "find .. -name '*.pyc' -delete",
        "find .. -name '*.md' -exec rm {} +",
        "find . -name '*.orig' -exec mv {} src ';'",
        "find . -type f -exec grep -n 'rm -rf' {} +",
        "find .. -maxdepth 2 -name node_modules -exec rm -rf {} +",
        "for f in src/*; do rm -rf $f; done",
        "for f in *.o; do rm -rf $f; done",
        "for d in */build; do rm -rf $d; done",
        "rm -rf $(dirname src/build/x)",
        "tar --remove-files -cf a.tar src",
        "find src -type f -delete",
        "find . -path './src/*' -name '*.log' -delete",
        "rm -rf src/*",
        "rm -rf s*",
        "rm -f *.pyc",
        "git clean -dxn",
        "git push",
        "git push --delete origin feature",
        "git checkout main",
        "git checkout -b side main",
        "git gc",
        "unheard-of rm -rf build",
        "docker run --rm alpine rm -rf /data",
        "npm run rm -- -rf x",
        "git worktree remove ../tree",
        "parted -l",
        "fd -e pyc -x rm",
        "ls src | xargs wc -l",
        "git ls-files '*.pyc' | xargs rm",
        'cd "$x" && rm -rf build',
        "rm -rf $(ls src/build)",
        'rm -rf "$x"',
        "git push --force-with-lease origin feature",
        "git stash pop",
        "mv a.txt src/",
        "mv -t src a.txt",
        "rm -rf src/build",
        "rm -rf /opt/x/y",
        "cp *.txt src",
        "perl -i -pe s/x/y/ a.txt",
        "ln -s a.txt b",
        "echo x > out*.txt",
        'echo x > "$f"',
        'echo x > "$folder"/config',
        "git diff --output=src/changes.txt",
        "git archive -o a.tar HEAD",
        "git config user.name x",
        "echo x > .env.example",
        "echo x > .claude/worktrees/a/x.py",
    ],
)
def test_everyday_work_is_not_asked_about(judge, called, repository: str, command: str) -> None:
    decision = judge(mode="bypassPermissions").decide(called("Bash", command))
    assert decision.behavior == "allow", decision.reasons


def test_the_settings_of_a_work_tree_stay_protected(judge, called, repository: str) -> None:
    policy = judge(mode="bypassPermissions")
    for name in (".claude/settings.json", ".claude/worktrees/a/.claude/settings.json", ".claude/worktrees/a/.git"):
        assert policy.decide(called("Write", f"{repository}/{name}")).behavior == "ask", name
    assert policy.decide(called("Write", f"{repository}/.env.local")).behavior == "ask"
