"""What is true of a program whatever it is called with; what one call does says its check in `registry`.

A program of which nothing is said has an empty profile: then a rule is offered for its exact command only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from wieldy.shell.effects.command_part import CommandPart
    from wieldy.shell.effects.words import Word


class Profile(Struct, frozen=True):
    """`subcommands`: its sub-command says what it does, and a rule names both. `starts`: after these the arguments are a command.

    `safe`: a rule for it with any further words may be offered. It reads, writes files that are judged anyway, or runs the
    project's own checks. `offers`: sub-commands, by the one before them, of which the same is true; `*` is any name of a script.
    `escalating`: options by which it writes a file, runs another program or works elsewhere. Long ones may be abbreviated; one
    that ends with a dot stands for all that begin with it. `clusters`: letters behind one dash are options of their own.
    `text_options`: their values are text for people. `runs_tests`: it runs the code that it is given paths of.
    `packs_operands`: it takes folders with all that is in them, but not with one of the sub-commands in `queries`.
    `packs_folder`: it takes the working directory without naming it, or reads the names of files from its input; `packing`: so
    do these sub-commands. `in_place`: the option by which it changes the files it is given; an empty one if it always does.
    `executes`: it runs commands for what it finds. `reads_history`: what it reads is not only what is on disk now.
    `streams`: it passes on what it reads and holds no more of it than a line, so that a later program which reads only the
    beginning ends it, as one does that `ends_its_input`. `sees_processes`: fully confined, it would not find whom a port or a
    file belongs to; `looks_for_processes`: it is about processes of others. `only_text`: it looks at nothing but its input and
    the files it is given. `obeys_project`: settings of the project make it run other programs. `quotes_ignore_files`: it prints
    lines of ignore files that it does not understand. A text is a list of words.
    """

    subcommands: bool = False
    starts: str = ""
    safe: bool = False
    offers: Mapping[str, str] = {}
    escalating: str = ""
    clusters: bool = False
    text_options: str = ""
    runs_tests: bool = False
    packs_operands: bool = False
    queries: str = ""
    packs_folder: bool = False
    packing: str = ""
    in_place: str | None = None
    executes: bool = False
    reads_history: bool = False
    streams: bool = False
    ends_its_input: bool = False
    sees_processes: bool = False
    looks_for_processes: bool = False
    only_text: bool = False
    obeys_project: bool = False
    quotes_ignore_files: bool = False


def _rows(names: str, profile: Profile) -> dict[str, Profile]:
    return dict.fromkeys(names.split(), profile)


PROFILES: Mapping[str, Profile] = {
    **_rows("7z 7za 7zz bsdtar rsync scp sftp zip", Profile(packs_operands=True)),
    **_rows("ack ack-grep ag pt rga sift ug ugrep", Profile(packs_folder=True)),
    **_rows(
        "apt apt-get brew composer dotnet gcloud gradle helm just rails rake rustup tox turbo",
        Profile(subcommands=True),
    ),
    **_rows("ava bats py.test", Profile(runs_tests=True)),
    **_rows("awk gawk", Profile(in_place=r"-i|--include")),
    **_rows(
        "basename black clang-format cmp df diff dirname du gofmt isort ls mkdir nl readlink realpath rmdir rustfmt "
        "shellcheck stat stylelint tac touch tsc yamllint",
        Profile(safe=True),
    ),
    **_rows("cat cut tr", Profile(safe=True, streams=True, only_text=True)),
    "head": Profile(safe=True, streams=True, ends_its_input=True, only_text=True),
    **_rows("grep tail wc", Profile(safe=True, only_text=True)),
    **_rows("uniq echo sleep true", Profile(only_text=True)),
    **_rows("lsof ss netstat", Profile(sees_processes=True, looks_for_processes=True)),
    **_rows("ps pgrep pkill killall fuser", Profile(looks_for_processes=True)),
    **_rows("base32 base64 fold hexdump od strings", Profile(streams=True)),
    "find": Profile(executes=True),
    "bun": Profile(subcommands=True, offers={"run": "*"}, starts="exec x", packing="pack publish"),
    **_rows("bundle nx", Profile(subcommands=True, starts="exec")),
    "cargo": Profile(
        subcommands=True,
        clusters=True,
        offers={"": "bench build check clippy doc fmt test tree"},
        escalating="--config --manifest-path --target-dir -Z -C --artifact-dir",
        packing="package publish",
    ),
    **_rows("conda pipenv", Profile(subcommands=True, starts="run")),
    **_rows("cpio pax", Profile(packs_operands=True, packs_folder=True)),
    "deno": Profile(subcommands=True, offers={"task": "*"}, starts="eval"),
    "docker": Profile(
        subcommands=True,
        offers={"": "images logs ps", "compose": "logs ps"},
        starts="exec run",
        packs_operands=True,
        queries="images info inspect logs ps pull restart start stop version",
    ),
    **_rows("ed emacs ex nano nvim patch sponge truncate vi vim", Profile(in_place=r"")),
    "eslint": Profile(
        safe=True,
        escalating="-c --config --rulesdir --resolve-plugins-relative-to -o --output-file --parser -f --format",
    ),
    "flake8": Profile(safe=True, escalating="--config --append-config --output-file"),
    "gh": Profile(
        subcommands=True,
        offers={"pr": "checks diff list view", "issue": "list view", "run": "list view", "repo": "view"},
        text_options="--body --notes --title -b -n -t",
    ),
    "git": Profile(
        reads_history=True,
        obeys_project=True,
        subcommands=True,
        clusters=True,
        offers={
            "": "add branch cherry-pick commit describe diff fetch log merge mv pull reflog rev-parse show status switch tag",
            "stash": "list push show",
            "worktree": "list",
            "remote": "show",
        },
        escalating=(
            "--output --ext-diff --upload-pack --receive-pack --exec --extcmd --open-files-in-pager -O --template "
            "--config --git-dir --work-tree --exec-path --separate-git-dir"
        ),
        text_options="--author --date --message -am -m",
        packing="archive bundle checkout-index clone fast-export format-patch worktree",
    ),
    "go": Profile(
        obeys_project=True,
        subcommands=True,
        offers={"": "build doc env fmt list test version vet"},
        escalating="-exec -toolexec -vettool -modfile -overlay -C -o -w -ldflags -gccgoflags",
    ),
    **_rows("hg jj svn", Profile(subcommands=True, text_options="--author --date --message -am -m")),
    "jest": Profile(runs_tests=True, safe=True, escalating="--config -c --rootDir --setupFiles"),
    "kubectl": Profile(
        subcommands=True,
        offers={"": "describe get logs top"},
        escalating="--kubeconfig --server -s --proxy-url --cache-dir",
        starts="exec run",
    ),
    "make": Profile(
        subcommands=True, clusters=True, escalating="-f --file --makefile -C --directory -I --include-dir --eval SHELL"
    ),
    "mix": Profile(subcommands=True, offers={"": "compile format test"}, starts="cmd run"),
    "mocha": Profile(
        runs_tests=True, safe=True, escalating="-r --require --config --file --reporter -R --node-option -n"
    ),
    "mvn": Profile(subcommands=True, escalating="-f --file -s --settings -Djvm -DargLine"),
    "mypy": Profile(
        safe=True, escalating="--config-file --python-executable --install-types --cache-dir --junit-xml --html-report"
    ),
    "npm": Profile(
        subcommands=True,
        offers={"": "ls outdated test view", "run": "*"},
        escalating="--prefix -C --script-shell --node-options --userconfig --globalconfig --logs-dir --cache",
        starts="dlx exec x",
        packing="pack publish",
    ),
    **_rows("perl ruby", Profile(in_place=r"-\w*i")),
    **_rows("phpunit vitest", Profile(runs_tests=True, safe=True)),
    **_rows(
        "pip pip3",
        Profile(
            subcommands=True,
            offers={"": "check list show"},
            escalating="--python --log --cache-dir --index-url --extra-index-url -i",
        ),
    ),
    "pnpm": Profile(
        subcommands=True,
        offers={"": "ls outdated test", "run": "*"},
        escalating="--dir -C --script-shell --node-options --config.",
        starts="dlx exec x",
        packing="pack publish",
    ),
    "podman": Profile(
        subcommands=True,
        starts="exec run",
        packs_operands=True,
        queries="images info inspect logs ps pull restart start stop version",
    ),
    "poetry": Profile(subcommands=True, offers={"": "check show"}, starts="run"),
    "prettier": Profile(safe=True, escalating="--plugin --config"),
    "pylint": Profile(safe=True, escalating="--init-hook --load-plugins --rcfile --output"),
    "pyright": Profile(safe=True, escalating="--pythonpath --venvpath --project -p"),
    "pytest": Profile(
        clusters=True,
        runs_tests=True,
        safe=True,
        escalating=(
            "-p -c -o --rootdir --confcutdir --config-file --basetemp --override-ini --junitxml --junit-xml "
            "--log-file --pdbcls --pastebin"
        ),
    ),
    "rg": Profile(escalating="--pre", quotes_ignore_files=True),
    "rspec": Profile(runs_tests=True, safe=True, escalating="-r --require -I --options -O --out -o"),
    "rubocop": Profile(safe=True, escalating="-r --require --config -c --out -o --plugin"),
    "ruff": Profile(safe=True, escalating="--config --output-file"),
    "sort": Profile(only_text=True, clusters=True, escalating="-o --output --compress-program -T"),
    "systemctl": Profile(subcommands=True, offers={"": "status"}, escalating="-H --host -M --machine --root"),
    "tar": Profile(
        clusters=True,
        escalating=(
            "--checkpoint-action --to-command -I --use-compress-program -F --info-script --new-volume-script "
            "--rsh-command"
        ),
        packs_operands=True,
    ),
    "terraform": Profile(subcommands=True, offers={"": "fmt validate"}),
    "uv": Profile(
        subcommands=True,
        offers={"pip": "check list show"},
        escalating="--python -p --directory --project --config-file --cache-dir",
        starts="run",
    ),
    "xxd": Profile(streams=True, in_place=r"-\w*r"),
    "yarn": Profile(
        subcommands=True,
        offers={"": "test", "run": "*"},
        escalating="--cwd --script-shell",
        starts="dlx exec x",
        packing="pack publish",
    ),
}
_NO_PROFILE = Profile()


def profile_of(program: str | None) -> Profile:
    return PROFILES.get(program or "", _NO_PROFILE)


def argument_words(part: CommandPart) -> Iterator[Word]:
    """Yield the arguments of a part without the text that is written for people, such as the message of a commit."""
    text_options = set(profile_of(part.program).text_options.split())
    is_text = False
    for word in part.argv[1:]:
        if not is_text and word.prefix.partition("=")[0] not in text_options - {word.text}:
            yield word
        is_text = word.kind == "literal" and word.text in text_options
