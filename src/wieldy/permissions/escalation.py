"""Options by which a program does more than a rule for it means: writes a file, runs another program, works elsewhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from wieldy.permissions.runtime_names import WITH_SUBCOMMANDS, argument_words

if TYPE_CHECKING:
    from wieldy.shell.policy.command_part import CommandPart

# Options by which a program writes a file, runs another program or works elsewhere. Long ones may be abbreviated.
_ESCALATING = {
    "git": "--output --ext-diff --upload-pack --receive-pack --exec --extcmd --open-files-in-pager -O --template --config "
    "--git-dir --work-tree --exec-path --separate-git-dir",
    "go": "-exec -toolexec -vettool -modfile -overlay -C -o",
    "cargo": "--config --manifest-path --target-dir -Z -C --artifact-dir",
    "npm": "--prefix -C --script-shell --node-options --userconfig --globalconfig",
    "pnpm": "--dir -C --script-shell --node-options",
    "yarn": "--cwd --script-shell",
    "make": "-f --file --makefile -C --directory -I --include-dir --eval SHELL",
    "sort": "-o --output --compress-program -T",
    "rg": "--pre",
    "tar": "--checkpoint-action --to-command -I --use-compress-program -F --info-script --new-volume-script --rsh-command",
    "pytest": "-p -c --rootdir --confcutdir --config-file --basetemp",
    "eslint": "-c --config --rulesdir --resolve-plugins-relative-to -o --output-file --parser -f --format",
    "prettier": "--plugin --config",
    "mypy": "--config-file --python-executable",
    "ruff": "--config --output-file",
    "jest": "--config -c --rootDir --setupFiles",
    "mvn": "-f --file -s --settings",
}
ESCALATING_OPTIONS: Mapping[str, Sequence[str]] = {name: text.split() for name, text in _ESCALATING.items()}


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
        if word.text not in specifier and any(is_option(word.text, option) for option in options):
            return word.text
    return None


def is_option(text: str, option: str) -> bool:
    """Whether a word is this option, perhaps abbreviated or with its value."""
    name = text.partition("=")[0]
    if option.startswith("--"):
        return name.startswith("--") and len(name) > 3 and option.startswith(name)
    return name == option or (len(option) == 2 and text.startswith(option))
