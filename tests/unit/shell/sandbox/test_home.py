"""Of the home folder, a sandboxed command sees what tools need, and no secrets."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.unit.shell.sandbox.test_sandbox import either, needs_bubblewrap, place, ran

from wieldy import Toolbox
from wieldy.shell.sandbox.sandbox import find_blocked

pytestmark = pytest.mark.asyncio

NAMED = (
    ".pgpass .my.cnf .s3cfg .boto .vault-token .netrc .cargo/credentials.toml .claude/.credentials.json .codex/auth.json "
    ".config/rclone/rclone.conf .terraform.d/credentials.tfrc.json .password-store/x.gpg .local/share/keyrings/login.keyring "
    ".bash_history .zsh_history .m2/settings.xml .config/pdm/config.toml "
    ".coursier/credentials.properties .docker/config.json .kube/config .config/gh/hosts.yml .ssh/id_rsa "
    ".aws/credentials "
    ".config/google-chrome/Default/Cookies .mozilla/firefox/x/logins.json .gnupg/secring.gpg .git-credentials .npmrc "
    ".sbt/1.0/credentials.sbt .nuget/NuGet.Config .hex/hex.config .poetry/auth.toml .config/pnpm/rc .config/nix/netrc "
    ".julia/logs/repl_history.jl .local/share/jupyter/runtime/kernel.json "
    ".cache/huggingface/token .gem/credentials .config/unknown/token Documents/letter.txt"
)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    home = tmp_path / "home"
    for name in NAMED.split():
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text("the secret\n")
    for name in (".cargo/bin/tool", ".nvm/versions/node/v22/bin/tool2", ".local/bin/tool3", "apps/bin/tool4"):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text("#!/bin/sh\necho ran ${0##*/}\n")
        (home / name).chmod(0o755)
    (home / ".cargo/registry").mkdir()
    (home / ".cargo/registry/crate").write_text("a crate\n")
    return home


READ = "import sys\nfor name in sys.argv[1:]:\n  try: print(open(name).read())\n  except OSError as e: print(name, e.strerror)\n"


@either
async def test_no_secret_of_the_home_folder_can_be_read(tmp_path, home, mechanism):
    workspace = place(tmp_path, mechanism)
    Path(workspace.root, "read.py").write_text(READ)
    result = await ran(
        workspace, f"{sys.executable} -I -S read.py {' '.join(str(home / name) for name in NAMED.split())}"
    )
    assert result.text.count("\n") >= len(NAMED.split())
    assert "the secret" not in result.text


@either
async def test_toolchains_and_what_path_names_work(tmp_path, home, mechanism):
    folders = [home / ".cargo/bin", home / ".nvm/versions/node/v22/bin", home / ".local/bin", home / "apps/bin"]
    path = os.pathsep.join([*map(str, folders), os.environ["PATH"]])
    workspace = place(tmp_path, mechanism, variables={"PATH": path})
    result = await ran(workspace, f"tool; tool2; tool3; tool4; cat {home}/.cargo/registry/crate")
    assert result.text == "ran tool\nran tool2\nran tool3\nran tool4\na crate\n"


@either
@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
async def test_git_knows_the_person_but_not_their_credentials(tmp_path, home, mechanism):
    (home / ".gitconfig").write_text(
        "[user]\n\tname = Ann\n\temail = ann@example.com\n[alias]\n\tst = status\n"
        '[http "https://x"]\n\textraheader = AUTHORIZATION: basic c2VjcmV0\n'
        '[url "https://ann:ghp_secret@github.com/"]\n\tinsteadOf = https://github.com/\n[init]\n\tdefaultBranch = trunk\n'
        "[sendemail]\n\tsmtpPass = secret\n"
    )
    workspace = place(tmp_path, mechanism)
    subprocess.run(["git", "init", "-q", workspace.root], check=True)
    command = (
        f"git commit -q --allow-empty -m x && git log --format='%an <%ae>'; git config --list; cat {home}/.gitconfig"
    )
    result = await ran(workspace, command)
    assert result.text.startswith("Ann <ann@example.com>\n")
    assert "init.defaultbranch=trunk" in result.text
    assert "c2VjcmV0" not in result.text
    assert "ghp_secret" not in result.text
    assert "smtppass" not in result.text.lower()


@either
async def test_a_plain_gitconfig_is_shown_as_it_is(tmp_path, home, mechanism):
    (home / ".gitconfig").write_text("[user]\n\tname = Ann\n")
    result = await ran(place(tmp_path, mechanism), f"cat {home}/.gitconfig; git config user.name")
    assert result.text == "[user]\n\tname = Ann\nAnn\n"


@either
async def test_a_python_environment_of_the_project_works(tmp_path, home, mechanism):
    workspace = place(tmp_path, mechanism)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", f"{workspace.root}/env"], check=True)
    result = await ran(workspace, "env/bin/python -c 'import sys, ssl, json; print(sys.prefix)'")
    assert result.text == f"{workspace.root}/env\n"


@either
async def test_a_project_in_the_home_folder_is_all_there(tmp_path, home, mechanism):
    workspace = place(tmp_path, mechanism, variables={"HOME": str(tmp_path)})
    Path(workspace.root, "file").write_text("mine\n")
    result = await ran(workspace, f"cat {workspace.root}/file && echo x > made && cat made; cat {tmp_path}/outside/x")
    assert result.text.startswith("mine\nx\n")


@either
@pytest.mark.parametrize("grant", ["~", "~/Documents"])
async def test_more_of_it_can_be_shown(tmp_path, home, mechanism, grant):
    result = await ran(
        place(tmp_path, mechanism, allowRead=[grant]), f"cat {home}/Documents/letter.txt; cat {home}/.pgpass"
    )
    assert result.text.startswith("the secret\n")
    assert result.text.count("the secret") == 1


@needs_bubblewrap
async def test_nothing_is_lost_in_a_folder_that_only_seems_to_be_home(tmp_path, home):
    result = await ran(place(tmp_path, "bubblewrap"), "echo x > ~/made; mkdir ~/.config/new; ls -A ~")
    assert "Read-only file system" in result.text
    missing = "cat: /home/ann/.config/x: No such file or directory"
    assert find_blocked(missing, code=1, home="/home/ann", roots=["/home/ann/p"]) == f"a file: “{missing}”"
    missing = "cat: /home/ann/p/x: No such file or directory"
    assert find_blocked(missing, code=1, home="/home/ann", roots=["/home/ann/p"]) is None
    assert "Documents" not in result.text
    assert not (home / "made").exists()


async def test_git_shows_no_credentials_of_the_home_folder_outside_a_sandbox_either(tmp_path, home, monkeypatch):
    (home / ".gitconfig").write_text(
        '[user]\n\tname = Ann\n[http "https://x"]\n\textraheader = AUTHORIZATION: basic hidden\n'
    )
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("GIT_CONFIG_GLOBAL", raising=False)
    monkeypatch.setenv("WIELDY_HOME", str(tmp_path / "state"))
    (tmp_path / "project").mkdir()
    async with Toolbox(tmp_path / "project", settings={}) as box:
        for command in ("git config --list", "git config --global --list", "git var -l"):
            result = await box.call("Bash", command=command)
            assert "user.name=Ann" in result.text, command
            assert "hidden" not in result.text, command
