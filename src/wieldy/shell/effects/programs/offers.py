"""For which commands a rule is worth offering, and how much of the command it may leave open."""

from __future__ import annotations

import re

from wieldy.shell.effects.interpreters import INTERPRETER, SHELL, names_script
from wieldy.shell.effects.programs.spec import word_set

_WORD = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]*")
# A program by its path, in the project or from the root of the file system.
_PROGRAM_PATH = re.compile(r"(\./|/)?(?!\.\./)[\w.+@-]+(/(?!\.\./)[\w.+@-]+)*")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=\S*")
_SUBCOMMAND = re.compile(r"[a-z][a-z0-9_:-]*")
# A rule for these with any further words is safe to remember: they read, write files that are judged anyway, or run the
# project's own checks. Of every other program just the exact command is suggested.
SAFE_PREFIXES = word_set(
    "basename cat cmp cut df diff dirname du grep head ls mkdir nl readlink realpath rmdir stat tac tail touch tr wc "
    "black clang-format eslint flake8 gofmt isort jest mocha mypy phpunit prettier pylint pyright pytest rspec rubocop ruff "
    "rustfmt shellcheck stylelint tsc vitest yamllint"
)
_SAFE_SUBCOMMANDS = {
    "git": "add branch cherry-pick commit describe diff fetch log merge mv pull reflog rev-parse show status switch tag",
    "git stash": "list push show",
    "git worktree": "list",
    "git remote": "show",
    "cargo": "bench build check clippy doc fmt test tree",
    "go": "build doc env fmt list test version vet",
    "npm": "ls outdated test view",
    "pnpm": "ls outdated test",
    "yarn": "test",
    "docker": "images logs ps",
    "docker compose": "logs ps",
    "kubectl": "describe get logs top",
    "gh pr": "checks diff list view",
    "gh issue": "list view",
    "gh run": "list view",
    "gh repo": "view",
    "pip": "check list show",
    "pip3": "check list show",
    "uv pip": "check list show",
    "poetry": "check show",
    "mix": "compile format test",
    "terraform": "fmt validate",
    "systemctl": "status",
}
SAFE_SUBCOMMANDS = {prefix: word_set(names) for prefix, names in _SAFE_SUBCOMMANDS.items()}
# The scripts of a project, by any name.
SCRIPT_RUNNERS = frozenset({"npm run", "pnpm run", "yarn run", "bun run", "deno task"})
SHELL_KEYWORDS = word_set("if then else elif fi for while until do done case esac in function select { } [ [[ ! coproc")


def may_have_rule(program: str | None, words: list[str]) -> bool:
    """Whether a rule for the words of a simple command would mean one command."""
    start = next((word for word in words if not _ASSIGNMENT.fullmatch(word)), "")
    if start and (program is None or start in SHELL_KEYWORDS):
        return False
    if start and not _WORD.fullmatch(start) and not _PROGRAM_PATH.fullmatch(start):
        return False
    return not _reads_program_from_stdin(words)


def _reads_program_from_stdin(words: list[str]) -> bool:
    """Whether an interpreter is given no script: a rule for `sh` would allow whatever is piped into it."""
    names = [word.rpartition("/")[2] for word in words]
    for index, name in enumerate(names):
        if SHELL.fullmatch(name) or (INTERPRETER.fullmatch(name) and not name.endswith("make")):
            return not names_script(words[index + 1 :])
    return False


def safe_prefix(words: list[str]) -> str | None:
    """The first words of a command of which a rule may leave the rest open."""
    if words[0] in SAFE_PREFIXES:
        return words[0]
    for count in (1, 2):
        prefix, name = " ".join(words[:count]), words[count] if len(words) > count else ""
        is_script = prefix in SCRIPT_RUNNERS and _SUBCOMMAND.fullmatch(name) is not None
        if is_script or name in SAFE_SUBCOMMANDS.get(prefix, ()):
            return f"{prefix} {name}"
    return None
