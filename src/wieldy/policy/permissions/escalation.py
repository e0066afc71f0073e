"""Options by which a program does more than a rule for it means: writes a file, runs another program, works elsewhere."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from wieldy.shell.effects.interpreters import WITH_SUBCOMMANDS, argument_words

if TYPE_CHECKING:
    from wieldy.shell.effects.command_part import CommandPart

# Options by which a program writes a file, runs another program or works elsewhere. Long ones may be abbreviated; one that
# ends with a dot stands for all that begin with it.
_ESCALATING = {
    "git": "--output --ext-diff --upload-pack --receive-pack --exec --extcmd --open-files-in-pager -O --template --config "
    "--git-dir --work-tree --exec-path --separate-git-dir",
    "go": "-exec -toolexec -vettool -modfile -overlay -C -o -w -ldflags -gccgoflags",
    "cargo": "--config --manifest-path --target-dir -Z -C --artifact-dir",
    "npm": "--prefix -C --script-shell --node-options --userconfig --globalconfig --logs-dir --cache",
    "pnpm": "--dir -C --script-shell --node-options --config.",
    "yarn": "--cwd --script-shell",
    "make": "-f --file --makefile -C --directory -I --include-dir --eval SHELL",
    "sort": "-o --output --compress-program -T",
    "rg": "--pre",
    "tar": "--checkpoint-action --to-command -I --use-compress-program -F --info-script --new-volume-script --rsh-command",
    "pytest": "-p -c -o --rootdir --confcutdir --config-file --basetemp --override-ini --junitxml --junit-xml --log-file "
    "--pdbcls --pastebin",
    "eslint": "-c --config --rulesdir --resolve-plugins-relative-to -o --output-file --parser -f --format",
    "prettier": "--plugin --config",
    "mypy": "--config-file --python-executable --install-types --cache-dir --junit-xml --html-report",
    "pylint": "--init-hook --load-plugins --rcfile --output",
    "flake8": "--config --append-config --output-file",
    "pyright": "--pythonpath --venvpath --project -p",
    "mocha": "-r --require --config --file --reporter -R --node-option -n",
    "rspec": "-r --require -I --options -O --out -o",
    "rubocop": "-r --require --config -c --out -o --plugin",
    "pip": "--python --log --cache-dir --index-url --extra-index-url -i",
    "pip3": "--python --log --cache-dir --index-url --extra-index-url -i",
    "uv": "--python -p --directory --project --config-file --cache-dir",
    "kubectl": "--kubeconfig --server -s --proxy-url --cache-dir",
    "systemctl": "-H --host -M --machine --root",
    "ruff": "--config --output-file",
    "jest": "--config -c --rootDir --setupFiles",
    "mvn": "-f --file -s --settings -Djvm -DargLine",
}
ESCALATING_OPTIONS: Mapping[str, Sequence[str]] = {name: text.split() for name, text in _ESCALATING.items()}
# These run the code that they are given paths of.
TEST_RUNNERS = frozenset({"pytest", "py.test", "jest", "vitest", "mocha", "ava", "rspec", "bats", "phpunit"})
# With these, letters behind one dash are options of their own.
_CLUSTERING = frozenset({"git", "make", "sort", "tar", "pytest", "cargo"})
_CLUSTER = re.compile(r"-[A-Za-z0-9]+")
_PLAIN_ASSIGNMENT = re.compile(r"\w+[:+?]{0,2}=[\w.,/+:-]*")
_GOAL_OF_PLUGIN = re.compile(r"[^-].*:.*")


def escalating_option(part: CommandPart, specifier: str) -> str | None:
    """Find a word by which a program writes a file or runs another program, and which the rule itself does not name."""
    program = part.program or ""
    # A rule for all of git means all of git.
    is_for_program = program in WITH_SUBCOMMANDS and specifier.rstrip(":* ") == program
    options = ESCALATING_OPTIONS.get(program)
    if options is None or is_for_program:
        return None
    for word in argument_words(part):
        if word.dynamic and word.may_be_option:
            return word.source
        text = _with_usual_dashes(program, word.text)
        if word.text in specifier:
            continue
        if any(is_option(text, option) or _in_cluster(program, text, option) for option in options):
            return word.text
        if program == "make" and "=" in text and not text.startswith("-") and not _PLAIN_ASSIGNMENT.fullmatch(text):
            return word.text  # recipes run what variables hold, and `name!=command` runs at once
        if program == "mvn" and _GOAL_OF_PLUGIN.fullmatch(text):
            return word.text
    return None


def tested_paths(part: CommandPart, specifier: str) -> Iterator[str]:
    """Yield the paths, relative or absolute, that a rule for a test runner lets it run code from, but does not name itself."""
    words = [word.text for word in part.argv]
    start = next((index for index, text in enumerate(words) if text.rpartition("/")[2] in TEST_RUNNERS), None)
    # A rule for all of Python means all of Python.
    if start is None or words[start].rpartition("/")[2] not in specifier:
        return
    for text in words[start + 1 :]:
        path = text.partition("::")[0]
        if path and not text.startswith("-") and path not in specifier:
            yield path


def _with_usual_dashes(program: str, text: str) -> str:
    """An option as the table spells it: npm accepts any number of dashes, go one or two."""
    name = text.lstrip("-")
    if program in ("npm", "pnpm") and text.startswith("-") and len(name) > 1:
        return f"--{name}"
    return f"-{name}" if program == "go" and text.startswith("--") else text


def _in_cluster(program: str, text: str, option: str) -> bool:
    """Whether a short option stands among others, as `-O` in `-nO`."""
    return program in _CLUSTERING and len(option) == 2 and option[1] in text and bool(_CLUSTER.match(text))


def is_option(text: str, option: str) -> bool:
    """Whether a word is this option, perhaps abbreviated or with its value."""
    name = text.partition("=")[0]
    if option.endswith("."):
        return name.startswith(option)
    if option.startswith("--"):
        return name.startswith("--") and len(name) > 3 and option.startswith(name)
    return name == option or (len(option) == 2 and text.startswith(option))
