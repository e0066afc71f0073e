"""Suggests the narrowest rule that would have allowed something, and checks which rules are fit to be saved."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from functools import lru_cache

from msgspec import Struct

from wieldy.core.effects import Reads, Writes
from wieldy.core.text import truncate
from wieldy.policy.permissions.paths import PathResolver, ResolvedPath, is_below, path_key
from wieldy.policy.permissions.patterns import CommandPattern, escape_command, escape_path
from wieldy.policy.permissions.rules import Origin, Rule, RuleError, parse
from wieldy.policy.permissions.ruleset import ToolRules, path_pattern
from wieldy.policy.permissions.runtime_names import INTERPRETER, SHELL, names_script
from wieldy.shell.effects.programs.spec import word_set

MAX_RULES = 5
MAX_RULE_CHARS = 120

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


def for_command(program: str | None, text: str, *, exact: bool = False) -> str | None:
    """Suggest a rule for one simple command: its words up to the sub-command where that is safe, else just this command."""
    # Of a page of text only the first words can make a rule; the cache need not hold the rest.
    return _for_command(program, text[: 2 * MAX_RULE_CHARS], exact)


@lru_cache(maxsize=256)
def _for_command(program: str | None, text: str, exact: bool) -> str | None:
    words = text.split(" ")
    start = next((word for word in words if not _ASSIGNMENT.fullmatch(word)), "")
    if program is None and start:
        return None
    if start in SHELL_KEYWORDS or (start and not _WORD.fullmatch(start) and not _PROGRAM_PATH.fullmatch(start)):
        return None
    if _reads_program_from_stdin(words):
        return None
    prefix = None if exact else _safe_prefix(words)
    if prefix is not None:
        rule = f"Bash({prefix}:*)"
        return rule if len(rule) <= MAX_RULE_CHARS else None
    specifier = escape_command(text)
    rule = f"Bash({specifier})"
    return rule if parse_savable(rule) and CommandPattern(specifier).matches(text) else None


def _reads_program_from_stdin(words: list[str]) -> bool:
    """Whether an interpreter is given no script: a rule for `sh` would allow whatever is piped into it."""
    names = [word.rpartition("/")[2] for word in words]
    for index, name in enumerate(names):
        if SHELL.fullmatch(name) or (INTERPRETER.fullmatch(name) and not name.endswith("make")):
            return not names_script(words[index + 1 :])
    return False


def _safe_prefix(words: list[str]) -> str | None:
    if words[0] in SAFE_PREFIXES:
        return words[0]
    for count in (1, 2):
        prefix, name = " ".join(words[:count]), words[count] if len(words) > count else ""
        is_script = prefix in SCRIPT_RUNNERS and _SUBCOMMAND.fullmatch(name) is not None
        if is_script or name in SAFE_SUBCOMMANDS.get(prefix, ()):
            return f"{prefix} {name}"
    return None


def for_path(effect: Reads | Writes, resolved: ResolvedPath, paths: PathResolver) -> str | None:
    """Suggest a rule for this very file, or for its folder if it is read outside the project; none for a symlink or a home."""
    if len(resolved.spellings) > 1:
        return None
    path = resolved.real
    if paths.is_folder(path):
        # A rule for a folder is one for all that is in it.
        if not _may_be_offered(path, paths):
            return None
    elif isinstance(effect, Reads) and not resolved.inside and _may_be_offered(os.path.dirname(path), paths):
        path = os.path.dirname(path)
    return _rule_for(path, effect, resolved, paths)


def _may_be_offered(folder: str, paths: PathResolver) -> bool:
    """Whether a folder is small enough in meaning: not a home, nothing that holds one, nothing hidden in one, no top folder."""
    if folder.count("/") < 2 or is_below(paths.home, folder) or is_below(paths.root, folder):
        return False
    is_hidden = any(name.startswith(".") for name in folder.split("/"))
    return not is_hidden and os.path.dirname(folder) not in ("/home", "/Users")


def _rule_for(path: str, effect: Reads | Writes, resolved: ResolvedPath, paths: PathResolver) -> str | None:
    root = paths.project
    is_inside = is_below(path, root) and path != root
    name = path[len(root) :].lstrip("/") if is_inside else path
    rule = parse_savable(f"{'Edit' if isinstance(effect, Writes) else 'Read'}(/{escape_path(name)})", root)
    if rule is None or rule.kind != "path":
        return None
    literal = path_pattern(rule, paths).literal
    if literal is None or path_key(literal, resolved.folds_case) != path_key(path, resolved.folds_case):
        return None
    return rule.text


@lru_cache(maxsize=256)
def for_host(host: str | None) -> str | None:
    return _if_effective(f"WebFetch(domain:{host})", lambda rules: rules.for_host(host or "")) if host else None


@lru_cache(maxsize=256)
def for_tool(name: str) -> str | None:
    return _if_effective(name, lambda rules: rules.for_tool(name))


def _if_effective(text: str, look_up: Callable[[ToolRules], Rule | None]) -> str | None:
    """Return the rule if it can be saved and does what it is for."""
    rule = parse_savable(text)
    return text if rule is not None and look_up(ToolRules((rule,), "allow")) is not None else None


def parse_savable(text: str, root: str | None = None) -> Rule | None:
    """Parse a rule fit for a settings file: short, one line, readable again, and not itself a piece of script."""
    if len(text) > MAX_RULE_CHARS or "<<" in text or not text.isprintable():
        return None
    try:
        rule = parse(text, "allow", Origin("session", folder=root))
    except RuleError:
        return None
    if rule.kind == "command" and (rule.specifier or "").split(" ")[0].removesuffix(":*") in SHELL_KEYWORDS:
        return None
    return rule if rule.text == text else None


class SavableRules(Struct, frozen=True):
    """Rules to save, and a line about each that is not worth saving."""

    rules: tuple[Rule, ...]
    refused: tuple[str, ...] = ()


def select_savable_rules(texts: Sequence[str], root: str) -> SavableRules:
    """Pick the rules to save after a "don't ask again", at most five."""
    rules: list[Rule] = []
    refused: list[str] = []
    for text in dict.fromkeys(texts):
        rule = parse_savable(text, root)
        if rule is None:
            refused.append(f"`{truncate(text, 60)}` would make no useful rule: it was not saved")
        elif len(rules) == MAX_RULES:
            refused.append(f"more than {MAX_RULES} rules for one call: `{text}` was not saved")
        else:
            rules.append(rule)
    return SavableRules(tuple(rules), tuple(refused))
