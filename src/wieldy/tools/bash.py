"""Bash: runs a command in a new shell, reports progress, and ends everything it started."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from wieldy.core.effects import CHANGES_FOLDER, CHANGES_SHELLS, Effects, Fetches, Reads, Runs, Writes
from wieldy.core.errors import FolderGone, Refusal, ToolFailure
from wieldy.core.programs import is_in_folders, project_folders
from wieldy.core.setting_keys import BASH_TIMEOUT_VARIABLES, default_of
from wieldy.core.text import truncate
from wieldy.core.threads import in_thread
from wieldy.core.tool import Doubt, Output, Progress, Tool, ToolContext
from wieldy.core.tool_decorator import drop_fields, load_description
from wieldy.core.workspace import UNKNOWN_HOME, Workspace

if TYPE_CHECKING:
    from wieldy.files.journal.command_snapshots import CommandSnapshot
    from wieldy.shell.effects.analysis import Analysis
    from wieldy.shell.running.background import BackgroundShell, BackgroundShells, ChangeWatch
    from wieldy.shell.running.launch import Confinement, Limits
    from wieldy.shell.running.shell import CommandResult, Shell
    from wieldy.shell.sandbox.launcher import Reading

DEFAULT_MS = default_of("bash.timeoutMs")
MAX_MS = 600_000
UNCONFINED_SUBMODULES = "git may run programs that a nested repository names, and nothing confines them here"


class Bash(Tool):
    """Runs a command line in bash."""

    name = "Bash"
    description, prompt = load_description(__file__)
    input_schema = {  # noqa: RUF012
        "type": "object",
        "properties": {
            "command": {"type": "string", "minLength": 1},
            "timeout": {"type": "integer", "minimum": 1, "description": f"ms; default {DEFAULT_MS}, at most {MAX_MS}"},
            "description": {"type": "string", "description": "what it does, in 5-10 words"},
            "run_in_background": {"type": "boolean"},
            "sandbox": {
                "type": "boolean",
                "description": "false: outside the sandbox, for what needs the network or was blocked; asks the user",
            },
        },
        "required": ["command"],
        "additionalProperties": False,
    }
    level = "dangerous"
    rules = "command"
    fails = {"command": ""}  # noqa: RUF012
    max_result_chars = 100_000
    # The command's own timeout must come before the engine's.
    timeout = 86_400.0

    def enabled(self, workspace: Workspace) -> bool | str:
        return os.name == "posix" or "commands need a Unix-like system"

    def translate(self, input: dict[str, Any]) -> dict[str, Any]:
        """Claude Code's field for leaving the sandbox, and Anthropic's for a new shell, which each command has here."""
        if not input.get("restart"):
            input = drop_fields(input, "restart")
        match input.get("dangerouslyDisableSandbox"):
            case False:
                return drop_fields(input, "dangerouslyDisableSandbox")
            case True if "sandbox" not in input:
                return {**drop_fields(input, "dangerouslyDisableSandbox"), "sandbox": False}
        return input

    def normalize(self, input: dict[str, Any], workspace: Workspace) -> dict[str, Any]:
        """Drop a leading `cd` to the current directory."""
        command = _drop_redundant_cd(input["command"], workspace.cwd)
        return input if command == input["command"] else {**input, "command": command}

    def effects(self, input: Mapping[str, Any], workspace: Workspace) -> Effects:
        """What a read-only command reads; for any other command only that it runs."""
        analysis = _analyze(input["command"], workspace.cwd, workspace)
        contained = analysis.verdict == "read_only"
        runs = Runs(input["command"], contained, _reason_to_leave(input, workspace), analysis)
        if not contained:
            return (runs,)
        # The parts are judged with the command.
        parts = [effect for effect in analysis.effects if not isinstance(effect, Runs)]
        if input.get("run_in_background"):
            return (runs, *parts, CHANGES_SHELLS)
        return (runs, *parts, CHANGES_FOLDER) if analysis.may_change_folder else (runs, *parts)

    def needs_permission(self, input: Mapping[str, Any], effects: Effects) -> bool:
        """Not for a read-only command."""
        return any(effect.opaque for effect in effects) or any(
            isinstance(effect, Writes | Fetches) for effect in effects
        )

    def destructive(self, input: Mapping[str, Any]) -> bool:
        """Undo cannot take back everything a command does."""
        return True

    async def check(self, input: Mapping[str, Any], ctx: ToolContext) -> Doubt | None:
        """Refuse what bash cannot run before anyone is asked about it."""
        if "\0" in input["command"]:
            raise Refusal("check", "The command contains a NUL byte, which bash cannot take.", "Let printf make it.")
        if not input["command"].strip():
            raise Refusal("check", "The command is empty.", "Send the command to run.")
        if _leaves_sandbox(input, ctx.workspace) and not ctx.workspace.setting("sandbox.allowUnsandboxed"):
            raise Refusal("check", "The settings keep commands in the sandbox.", "Leave out `sandbox: false`.")
        workspace = ctx.workspace
        if ctx.cwd != workspace.root and not await workspace.files.run(workspace.files.is_folder, ctx.cwd):
            raise FolderGone
        return None

    def show_use(self, input: Mapping[str, Any]) -> str:
        command = " ".join(str(input.get("command", "")).split())
        shown = truncate(command, 200)
        return f"{input['description']}: {shown}" if input.get("description") else shown

    async def run(self, args: Any, ctx: ToolContext) -> AsyncIterator[Progress | Output]:
        """Run the command; yields progress, then the result."""
        workspace = ctx.workspace
        launch = await _prepare(args, ctx)
        if args.get("run_in_background"):
            yield await _start_in_background(launch, ctx)
            return
        try:
            shell = await _start(launch, workspace)
        except BaseException:
            await _close(launch)
            raise
        run = ForegroundRun(shell, launch, _timeout_ms(args.get("timeout"), workspace) / 1000)
        try:
            while progress := await shell.next_progress(shell.started + run.timeout):
                yield Progress(
                    f"{progress.seconds:.0f} s, {progress.bytes} bytes\n{progress.last_lines}".rstrip(),
                    {"seconds": progress.seconds, "bytes": progress.bytes, "lastLines": progress.last_lines},
                )
            yield await _add_changes(await _finish(run, workspace), run, ctx)
        except asyncio.CancelledError:
            yield await _interrupt(run, workspace)
        finally:
            if not shell.exit.done() and not shell.in_background:
                await _interrupt(run, workspace)
            await _close(launch, goes_on=shell.in_background)


bash = Bash()


class Launch(Struct, frozen=True):
    """A command that is ready to start: where, how confined, with which variables, and what its result will say."""

    command: str
    cwd: str
    analysis: Analysis
    confine: Confinement | None
    env: Mapping[str, str]
    notices: tuple[str, ...]
    reading: Reading | None
    watch: ChangeWatch | None = None
    snapshot: CommandSnapshot | None = None


async def _prepare(args: Mapping[str, Any], ctx: ToolContext) -> Launch:
    """Confine a command, neutralize its environment and, in the foreground, look at what it may write."""
    workspace, command = ctx.workspace, args["command"]
    analysis = _analysis(command, ctx)
    reading = await _reading(args, analysis, ctx)
    watch = await _watch_protected_files(args, analysis, ctx)
    try:
        confine, sandbox_notice = (None, None) if reading else await _confinement(args, analysis, ctx, watch)
    except BaseException:
        if watch:
            watch.drop()
        raise
    notices = [sandbox_notice] if sandbox_notice else []
    if confine is None and reading is None and analysis.verdict == "read_only" and analysis.enters_submodules:
        raise ToolFailure(f"{UNCONFINED_SUBMODULES}, so nothing was run.", "Try again: the user will be asked.")
    env = await _neutral_environment(analysis, workspace, is_confined=reading is not None or confine is not None)
    snapshot = None
    if not args.get("run_in_background") and analysis.verdict != "read_only" and _undo_is_on(workspace):
        if not workspace.files.is_local:
            place = f"on {workspace.files.place}"
            notices.append(await _record_unwatched(ctx, f"commands change {place}", place))
        else:
            snapshot = await _take_snapshot(analysis, ctx)
    return Launch(command, ctx.cwd, analysis, confine, env, tuple(notices), reading, watch, snapshot)


async def _start(launch: Launch, workspace: Workspace, *, keeps_directory: bool | None = None) -> Shell:
    """Start a command on this machine or on the backend."""
    if keeps_directory is None:
        keeps_directory = not launch.analysis.may_change_folder
    shells = workspace.services.shells
    command, cwd, env = launch.command, launch.cwd, launch.env
    if workspace.files.is_local:
        return shells.start(
            command,
            cwd=cwd,
            extra_env=env,
            confine=launch.confine,
            keeps_directory=keeps_directory,
            reading=launch.reading,
            limits=_limits(launch.analysis, workspace),
        )
    return await shells.start_remote(command, cwd=cwd, extra_env=env, keeps_directory=keeps_directory)


async def _start_in_background(launch: Launch, ctx: ToolContext) -> Output:
    workspace = ctx.workspace
    try:
        _background(workspace).require_room()
        shell = await _start(launch, workspace, keeps_directory=False)
    except BaseException:
        await _close(launch)
        raise
    background = _background(workspace).adopt(shell, launch.command, watch=launch.watch)
    notices = list(launch.notices)
    if launch.analysis.verdict != "read_only" and _undo_is_on(workspace):
        notices.append(await _record_unwatched(ctx, "it changes", "in the background"))
    return _started_output(background, notices)


class ForegroundRun(Struct, frozen=True):
    """A command in the foreground, and what its result depends on."""

    shell: Shell
    launch: Launch
    timeout: float


async def _finish(run: ForegroundRun, workspace: Workspace) -> Output:
    """The output of a command that has exited or reached its timeout."""
    from wieldy.shell.running.exit_notes import (
        end_notes,
        explain_exit_code,
        hidden_variable_notes,
        leftover_notes,
        limit_notes,
    )
    from wieldy.shell.running.session import update_working_directory
    from wieldy.shell.running.shell import collect_result, stop_and_collect

    shell, crowded = run.shell, []
    if shell.exit.done():
        result = await collect_result(shell)
    elif workspace.setting("bash.backgroundOnTimeout") and _background(workspace).has_room:
        return _moved_to_background(_adopt(run, workspace, shell.capture.total), run)
    else:
        result = await stop_and_collect(shell, "timed out")
        if workspace.setting("bash.backgroundOnTimeout"):
            crowded.append(
                "it was not moved to the background, where as many shells run as `bash.maxBackground` allows"
            )
    meaning = explain_exit_code(run.launch.command, result.code) if result.code is not None else None
    notices = [*run.launch.notices, *end_notes(result, meaning, run.timeout, run.launch.command)]
    notices += [*crowded, *limit_notes(shell, result)]
    if run.launch.confine:
        is_failure = meaning is None or meaning.is_error
        notices += _sandbox_notes(run.launch, result, workspace, is_answer=not is_failure and result.code != 0)
    if notice := await workspace.files.run(update_working_directory, workspace, run.launch.cwd, result.directory):
        notices.append(notice)
    task = None
    if result.leftovers and not shell.reader.eof.done() and result.reason == "exited":
        task = _adopt(run, workspace, result.total_bytes).id
    elif result.leftovers and run.launch.watch:
        run.launch.watch.outlive(shell.running)
    notices += leftover_notes(result, task)
    notices += hidden_variable_notes(workspace.services.shells.hidden_variables, run.launch.command, result.text)
    return _result_output(result, notices, meaning is None or meaning.is_error, workspace, task)


def _adopt(run: ForegroundRun, workspace: Workspace, position: int) -> BackgroundShell:
    """Move a command to the background, with what looks after its protected files."""
    return _background(workspace).adopt(run.shell, run.launch.command, position=position, watch=run.launch.watch)


async def _close(launch: Launch, *, goes_on: bool = False) -> None:
    """Look at protected files and at everything else for the last time. A second call does nothing."""
    if launch.watch and not goes_on:
        await launch.watch.finish()
    if launch.snapshot:
        await launch.snapshot.record_changes()


async def _interrupt(run: ForegroundRun, workspace: Workspace) -> Output:
    from wieldy.shell.running.shell import stop_and_collect

    result = await stop_and_collect(run.shell, "interrupted")
    notices = [*run.launch.notices, "interrupted: the command and everything it had started were ended"]
    notices += await run.launch.watch.finish() if run.launch.watch else []
    return _result_output(result, notices, True, workspace)


def _result_output(
    result: CommandResult, notices: list[str], is_error: bool, workspace: Workspace, task: str | None = None
) -> Output:
    text = "\n".join((result.text.rstrip("\n"), *(f"[{notice}]" for notice in notices))).strip("\n")
    data = {
        "output": result.text,
        "stdout": result.stdout,
        "stderr": result.stderr,
        "notices": notices,
        "exitCode": result.code,
        "interrupted": result.reason == "interrupted",
        "timedOut": result.reason == "timed out",
        "isImage": False,
        "seconds": round(result.seconds, 3),
        "bytes": result.total_bytes,
        "cwd": workspace.cwd,
        "backgroundTaskId": task,
        "persistedOutputPath": result.path,
    }
    return Output(text, data, is_error)


def _moved_to_background(background: BackgroundShell, run: ForegroundRun) -> Output:
    note = (
        f"still running after {run.timeout:g} s; it continues in the background as {background.id}. "
        "Read on with BashOutput, end it with KillShell"
    )
    stdout = run.shell.capture.excerpt().text.rstrip("\n")
    return _background_output(background, stdout, (*run.launch.notices, note), {"timedOut": True})


def _started_output(background: BackgroundShell, notices: Sequence[str]) -> Output:
    pid = f" (pid {background.pid})" if background.pid else ""
    text = f"Started in the background as {background.id}{pid}. Read its output with BashOutput, end it with KillShell."
    data = {"output": "", "stdout": "", "interrupted": False}
    return _background_output(background, text, notices, data)


def _background_output(
    background: BackgroundShell, text: str, notices: Sequence[str], data: Mapping[str, Any]
) -> Output:
    shell = {"stderr": None, "exitCode": None, "backgroundTaskId": background.id, "pid": background.pid}
    data = {"output": text, "stdout": text, "notices": list(notices), **shell, **data}
    return Output("\n".join((text, *(f"[{notice}]" for notice in notices))).strip("\n"), data)


def _background(workspace: Workspace) -> BackgroundShells:
    return workspace.services.background_shells


def _leaves_sandbox(input: Mapping[str, Any], workspace: Workspace) -> bool:
    return input.get("sandbox") is False and workspace.setting("sandbox.enabled")


def _reason_to_leave(input: Mapping[str, Any], workspace: Workspace) -> str:
    """Why a command is to run outside the sandbox; empty if it is not."""
    if not _leaves_sandbox(input, workspace):
        return ""
    return workspace.services.sandbox.reason_to_leave(input["command"])


def _is_open(args: Mapping[str, Any], analysis: Analysis, workspace: Workspace) -> bool:
    """Whether a command runs outside the sandbox of the settings."""
    is_enabled = workspace.setting("sandbox.enabled") and not _leaves_sandbox(args, workspace)
    return not is_enabled or workspace.services.sandbox.excludes(analysis)


async def _reading(args: Mapping[str, Any], analysis: Analysis, ctx: ToolContext) -> Reading | None:
    """How the confined launcher starts a command that only reads; None for any other, and where another sandbox is in force."""
    workspace = ctx.workspace
    if analysis.verdict != "read_only" or not workspace.files.is_local:
        return None
    # The sandbox has a temp folder of its own, with what other commands put there.
    is_open = _is_open(args, analysis, workspace)
    if not is_open and (await workspace.services.sandbox.wrapper()).mechanism == "bubblewrap":
        return None
    shells = workspace.services.shells
    if not shells.is_confining and not await in_thread(shells.can_confine):
        return None
    from wieldy.shell.sandbox.launcher import Reading

    return Reading(_hidden_paths(analysis, ctx), analysis.sees_processes)


def _hidden_paths(analysis: Analysis, ctx: ToolContext) -> tuple[str, ...]:
    """What a command that only reads must not read: secrets that it does not name, and what rules deny by name."""
    from wieldy.shell.sandbox.policy import secret_paths

    reads = [effect.path for effect in analysis.effects if isinstance(effect, Reads)]
    named = [f"{path}/" for path in (*reads, *map(ctx.resolved, reads))]
    secrets = [path for path in secret_paths(ctx.workspace) if not any(name.startswith(f"{path}/") for name in named)]
    find = getattr(ctx.judge, "denied_paths", None)
    return (*secrets, *(find() if find is not None else ()))


def _limits(analysis: Analysis, workspace: Workspace) -> Limits:
    """The limits of a command: it has some if it was proven harmless, because such commands run unasked."""
    from wieldy.shell.running.launch import NO_LIMITS, Limits, default_memory_mb

    if analysis.verdict == "unknown":
        return NO_LIMITS
    memory = workspace.setting("bash.maxMemoryMb")
    return Limits(
        default_memory_mb() if memory is None else memory,
        workspace.setting("bash.maxFileMb"),
        workspace.setting("bash.maxProcesses"),
    )


async def _watch_protected_files(args: Mapping[str, Any], analysis: Analysis, ctx: ToolContext) -> ChangeWatch | None:
    """Look at the protected files before a command that may write; None for one that only reads, and on a backend."""
    workspace = ctx.workspace
    if analysis.verdict == "read_only" or not workspace.files.is_local:
        return None
    files, sandboxed = workspace.services.protected_files, not _is_open(args, analysis, workspace)
    return await files.watch_command(ctx.judge, analysis, sandboxed=sandboxed)


async def _confinement(
    args: Mapping[str, Any], analysis: Analysis, ctx: ToolContext, watch: ChangeWatch | None
) -> tuple[Confinement | None, str | None]:
    """The sandbox of a command, and a notice if the settings ask for one that does not work."""
    workspace = ctx.workspace
    sandbox = workspace.services.sandbox
    if _is_open(args, analysis, workspace):
        if analysis.verdict == "read_only":
            return await sandbox.reading_confinement(_hidden_paths(analysis, ctx)), None
        return await sandbox.shield(workspace.original_roots) if workspace.original_roots else None, None
    if (await sandbox.wrapper()).mechanism == "none":
        where = "on this system" if workspace.files.is_local else f"on {workspace.files.place}"
        if workspace.setting("sandbox.failIfUnavailable"):
            raise ToolFailure(f"No sandbox works {where} and the settings require one, so nothing was run.")
        return None, f"no sandbox works {where}: the command ran unconfined"
    hidden, read_only = await _guarded_files(analysis, ctx)
    folder = str(workspace.services.shells.folder)
    mounts = watch.mounts if watch else ()
    confine = await sandbox.confinement(
        also_writable=(folder,),
        hidden=hidden,
        read_only=(*read_only, *mounts),
        writes_nothing=analysis.verdict == "read_only",
    )
    return confine, None


async def _guarded_files(analysis: Analysis, ctx: ToolContext) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What a program with unknown effects must not read, and what it must not write; known effects were all judged."""
    find = getattr(ctx.judge, "guarded_files", None)
    if analysis.verdict != "unknown" or find is None:
        return (), ()
    from wieldy.shell.sandbox.policy import extra_writable

    files = await in_thread(find, extra_writable(ctx.workspace))
    return files.hidden, files.read_only


def _sandbox_notes(launch: Launch, result: CommandResult, workspace: Workspace, *, is_answer: bool) -> list[str]:
    """What the sandbox kept a command from, and what to do instead. `is_answer`: its exit code is an answer, not a failure."""
    from wieldy.shell.sandbox.sandbox import blocked_note, find_blocked, hidden_processes_note

    command, analysis = launch.command, launch.analysis
    sandbox = workspace.services.sandbox
    may_leave = workspace.setting("sandbox.allowUnsandboxed")
    programs = [part.program for part in analysis.parts if part.program]
    if sandbox.hides_processes_from(programs):
        sandbox.note_blocked(command, "other processes")
        return [hidden_processes_note(may_leave=may_leave)]
    if is_answer or (analysis.verdict == "read_only" and result.code == 0):
        return []  # it showed what a file says
    what = find_blocked(
        result.text,
        code=result.code,
        program=programs[-1] if programs else None,
        home=workspace.home,
        roots=workspace.roots,
    )
    if what is None:
        return []
    sandbox.note_blocked(command, what)
    return [blocked_note(what, may_leave=may_leave)]


def _analyze(command: str, cwd: str, workspace: Workspace) -> Analysis:
    from wieldy.shell.effects.analysis import analyze

    analysis = analyze(command, cwd=cwd, home=workspace.home or UNKNOWN_HOME, root=workspace.root)
    if analysis.verdict == "read_only" and analysis.enters_submodules and not workspace.services.shells.may_confine:
        return replace(analysis, verdict="unknown", problems=(UNCONFINED_SUBMODULES,))
    return analysis


def _analysis(command: str, ctx: ToolContext) -> Analysis:
    """The analysis that the call was judged by."""
    for effect in () if ctx.plan is None else ctx.plan.effects:
        if isinstance(effect, Runs) and effect.command == command and effect.analysis is not None:
            return effect.analysis
    return _analyze(command, ctx.cwd, ctx.workspace)


async def _neutral_environment(analysis: Analysis, workspace: Workspace, *, is_confined: bool) -> dict[str, str]:
    """Variables that keep commands with known effects from running what the project names: programs, versions, modules."""
    on_host = workspace.is_on_host
    if analysis.verdict == "unknown":
        variables = {}
    else:
        # `pip list` asks its server now and then whether it is up to date.
        variables = {"GOTOOLCHAIN": "local", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
        # The command was judged by the names of its programs. A relative folder of PATH could be any folder; one in a
        # project, such as that of an active virtual environment, is searched only by what can change nothing.
        may_search_project = is_confined and analysis.verdict == "read_only" and not analysis.sees_processes
        search_path = workspace.search_path
        projects = [] if may_search_project else project_folders(workspace.env, workspace.roots)
        folders = [folder for folder in search_path if os.path.isabs(folder) and not is_in_folders(folder, projects)]
        if on_host and folders != search_path:
            variables["PATH"] = os.pathsep.join(folders)
        if pythons := analysis.neutral_pythons:
            from wieldy.shell.running.neutral_python import neutral_python_environment

            roots = (workspace.root, *workspace.extra_roots)
            surrounding = {**workspace.env, **workspace.setting("env")}
            variables |= neutral_python_environment(pythons, roots, surrounding=surrounding, on_host=on_host)
    if on_host and any(part.program == "rg" for part in analysis.parts):
        from wieldy.shell.running.launch import RIPGREP_CONFIG

        variables["RIPGREP_CONFIG_PATH"] = RIPGREP_CONFIG
    if repositories := analysis.neutral_git_folders:
        from wieldy.core.git import neutral_git_environment

        variables |= await in_thread(
            neutral_git_environment, *repositories, surrounding=workspace.env if on_host else {}, files=workspace.files
        )
        if on_host and workspace.home and "GIT_CONFIG_GLOBAL" not in workspace.env:
            from wieldy.shell.sandbox.policy import without_credentials

            settings = os.path.join(workspace.home, ".gitconfig")
            if copy := await in_thread(without_credentials, settings, workspace.session_dir):
                variables["GIT_CONFIG_GLOBAL"] = copy
    return variables


async def _take_snapshot(analysis: Analysis, ctx: ToolContext) -> CommandSnapshot:
    """Snapshot what the command may write, for undo."""
    workspace = ctx.workspace
    from wieldy.files.journal.command_snapshots import CommandSnapshot

    written = tuple(effect.path for effect in analysis.effects if isinstance(effect, Writes))
    return await CommandSnapshot.take(
        workspace,
        written if analysis.verdict == "known" else None,
        call_id=ctx.call_id,
        tool="Bash",
        turn=ctx.message_id,
        ended_file=workspace.services.shells.guardian.ended_file,
        folder=ctx.cwd,
    )


def _undo_is_on(workspace: Workspace) -> bool:
    return bool(workspace.setting("journal.enabled") and workspace.setting("bash.snapshot"))


async def _add_changes(output: Output, run: ForegroundRun, ctx: ToolContext) -> Output:
    """Say what undo does not cover and which protected files were put aside, and let the person take these in."""
    from wieldy.files.journal.entries import Uncovered

    watch, snapshot, notes, data = run.launch.watch, run.launch.snapshot, [], output.data
    if watch is not None:
        await watch.check()  # first: what is put aside is no change of the command
    if snapshot is not None:
        reason = "the command continues in the background, where its changes are not watched"
        goes_on = data.get("backgroundTaskId") is not None
        await snapshot.record_changes((Uncovered(ctx.workspace.root, reason, False),) if goes_on else ())
        notes += snapshot.notes
        uncovered = [{"path": each.path, "reason": each.reason, "changed": each.changed} for each in snapshot.uncovered]
        data = {**data, "changedFiles": list(snapshot.changed_paths), "uncovered": uncovered}
    if watch is not None:
        put_aside = await (watch.report(ask=True) if run.shell.in_background else watch.finish(ask=True))
        data = {**data, "notices": [*data.get("notices", ()), *put_aside]} if put_aside else data
        notes += put_aside
    content = "\n".join((str(output.content), *(f"[{note}]" for note in notes))).lstrip("\n")
    return Output(content, data, output.is_error)


async def _record_unwatched(ctx: ToolContext, what: str, where: str) -> str:
    """Record that undo does not cover what a command changes; returns a notice."""
    from wieldy.files.journal.command_snapshots import record_unwatched
    from wieldy.files.journal.entries import Uncovered

    uncovered = Uncovered(ctx.workspace.root, f"changes of a command {where} are not watched", False)
    await record_unwatched(ctx.workspace, uncovered, call_id=ctx.call_id, tool="Bash", turn=ctx.message_id)
    return f"undo does not cover what {what}"


def _drop_redundant_cd(command: str, cwd: str) -> str:
    if not command.startswith("cd "):
        return command
    import shlex

    for spelling in dict.fromkeys((cwd, shlex.quote(cwd), f'"{cwd}"')):
        head = f"cd {spelling} && "
        if command.startswith(head) and command[len(head) :].strip():
            return command[len(head) :]
    return command


def _timeout_ms(requested: int | None, workspace: Workspace) -> int:
    variables = (workspace.env.get(name, "") for name in BASH_TIMEOUT_VARIABLES)
    chosen = next((int(value) for value in variables if value.isdecimal() and int(value) > 0), None)
    default = chosen or workspace.setting("bash.timeoutMs")
    return min(requested, max(MAX_MS, default)) if requested else default
