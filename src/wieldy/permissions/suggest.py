"""The narrowest rule that would have allowed something, where one is worth having."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache

from wieldy.core.effects import Reads, Writes
from wieldy.permissions import rules as command
from wieldy.permissions import rules as path_pattern
from wieldy.permissions.paths import PathResolver, ResolvedPath, below, key
from wieldy.permissions.rules import CommandPattern, Origin, Rule, RuleError, parse
from wieldy.permissions.ruleset import ToolRules

MOST_RULES = 5
LONGEST_RULE = 120

_WORD = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]*")
_PLAIN_PATH = re.compile(r"[A-Za-z0-9_./-]+")
_SUBCOMMAND = re.compile(r"[a-z][a-z0-9_:-]*")


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Programs whose first word says what they do: the rule names both.
WITH_SUBCOMMANDS = _words(
    "apt apt-get brew bun bundle cargo composer conda deno docker dotnet gcloud gh git go gradle helm hg jj just kubectl "
    "make mix mvn npm nx pip pip3 pipenv pnpm podman poetry rails rake rustup svn systemctl terraform tox turbo uv yarn"
)
# … and those whose second word does.
DEEPER = frozenset(
    {"npm run", "pnpm run", "yarn run", "bun run", "docker compose", "docker container", "docker image", "git remote"}
    | {"git stash", "git worktree", "gh pr", "gh issue", "gh run", "gh repo", "uv pip", "kubectl config", "deno task"}
)
# A prefix of these would allow anything, or anything to be lost: only the very command may be kept.
EXACT_ONLY = _words(
    "bash sh zsh dash ksh fish eval exec source . env xargs sudo doas su command builtin nohup timeout time nice setsid "
    "watch ionice flock stdbuf find python python3 node deno ruby perl php lua awk gawk sed osascript pwsh powershell "
    "npx bunx pnpx uvx pipx docker-compose ssh scp sftp rsync nc ncat curl wget rm rmdir mv dd shred truncate mkfs mount "
    "umount chmod chown chgrp kill pkill killall reboot shutdown crontab at parallel tee ln cp install "
    "export alias trap set unset declare"
)
DEEP_EXACT = frozenset({"npm exec", "uv run", "poetry run", "pipenv run", "bun x", "docker run", "docker exec"})
DEEP_EXACT |= {"kubectl exec", "git config", "npm install", "pip install", "cargo run", "go run", "podman run"}
KEYWORDS = _words("if then else elif fi for while until do done case esac in function select { } [ [[ ! coproc")


def for_command(program: str | None, text: str, *, exact: bool = False) -> str | None:
    """A rule for one simple command: its words up to the sub-command where that is safe to keep, else just this command."""
    # Of a page of text only the first words can make a rule; the rest need not be kept in memory.
    return _for_command(program, text[: 2 * LONGEST_RULE], exact)


@lru_cache(maxsize=256)
def _for_command(program: str | None, text: str, exact: bool) -> str | None:
    words = text.split(" ")
    if program is None or not words or words[0] in KEYWORDS or not _WORD.fullmatch(words[0]):
        return None
    stem = None if exact else _stem(words)
    if stem is not None:  # of plain words, so there is nothing in the rule that could be read otherwise
        return f"Bash({stem}:*)" if len(stem) + len("Bash(:*)") <= LONGEST_RULE else None
    rule = f"Bash({command.escaped(text)})"
    return rule if keepable(rule) and CommandPattern(rule[5:-1]).matches(text) else None


def _stem(words: list[str]) -> str | None:
    if words[0] in EXACT_ONLY:
        return None
    if words[0] not in WITH_SUBCOMMANDS:
        return words[0]
    deep = 2
    if " ".join(words[:2]) in DEEPER:
        deep = 3
    if " ".join(words[:2]) in DEEP_EXACT or len(words) < deep:
        return None
    return " ".join(words[:deep]) if all(_SUBCOMMAND.fullmatch(word) for word in words[1:deep]) else None


def for_path(effect: Reads | Writes, seen: ResolvedPath, paths: PathResolver) -> str | None:
    """A rule for this very file. A link takes two rules, so none is offered for it."""
    if len(seen.views) > 1:
        return None
    subject, path, root = "Edit" if isinstance(effect, Writes) else "Read", seen.real, paths.root
    inside = below(path, root) and path != root
    named = path[len(root) :].lstrip("/") if inside else path
    if inside and _PLAIN_PATH.fullmatch(named):
        return f"{subject}(/{named})" if len(subject) + len(named) + len("(/)") <= LONGEST_RULE else None
    anchored = "/" + path_pattern.escaped(named)
    rule = keepable(f"{subject}({anchored})", root)
    if rule is None or rule.kind != "path":
        return None
    found = path_pattern.resolve(rule.specifier or "", "allow", cwd=root, home=paths.home, folder=root).literal
    return rule.text if found is not None and key(found, seen.fold) == key(path, seen.fold) else None


@lru_cache(maxsize=256)
def for_host(host: str | None) -> str | None:
    """A rule for one host."""
    return _kept(f"WebFetch(domain:{host})", lambda shelf: shelf.for_host(host or "")) if host else None


@lru_cache(maxsize=256)
def for_tool(name: str) -> str | None:
    """A rule for a whole tool."""
    return _kept(name, lambda shelf: shelf.for_tool(name))


def _kept(text: str, look_up: Callable[[ToolRules], Rule | None]) -> str | None:
    """The rule, if it can be read back and does what it is for."""
    rule = keepable(text)
    return text if rule is not None and look_up(ToolRules((rule,), "allow")) is not None else None


def keepable(text: str, root: str | None = None) -> Rule | None:
    """A rule fit to be written to a settings file: short, one line, readable again, and not itself a piece of script."""
    if len(text) > LONGEST_RULE or "<<" in text or not text.isprintable():
        return None
    try:
        rule = parse(text, "allow", Origin("session", folder=root))
    except RuleError:
        return None
    if rule.kind == "command" and (rule.specifier or "").split(" ")[0].removesuffix(":*") in KEYWORDS:
        return None
    return rule if rule.text == text else None
