"""Bash: a command in a new shell, watched while it runs, ended with everything it started."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from wieldy.core.effects import Effects, Fetches, Runs, Writes, is_opaque
from wieldy.core.errors import Refusal, ToolFailure
from wieldy.core.threads import in_thread
from wieldy.core.tool import Doubt, Output, Progress, Tool, ToolContext
from wieldy.core.tool_decorator import load_description
from wieldy.core.truncate import truncate
from wieldy.core.workspace import Workspace

if TYPE_CHECKING:
    from wieldy.files.journal.command_snapshots import Witness
    from wieldy.shell.policy.analysis import Analysis
    from wieldy.shell.running.background import BackgroundShell, BackgroundShells
    from wieldy.shell.running.launch import Confine
    from wieldy.shell.running.shell import Ran, Shell

DEFAULT_MS = 120_000
MOST_MS = 600_000
ENDINGS = "wieldy.shell.running.exit_notes"
"""The module that needs all others that are needed when a command ends."""


class Bash(Tool):
    """Runs a command line in bash."""

    name = "Bash"
    description, prompt = load_description(__file__)
    input_schema = {  # noqa: RUF012
        "type": "object",
        "properties": {
            "command": {"type": "string", "minLength": 1},
            "timeout": {"type": "integer", "minimum": 1, "description": f"ms; default {DEFAULT_MS}, at most {MOST_MS}"},
            "description": {"type": "string", "description": "what it does, in 5-10 words"},
            "run_in_background": {"type": "boolean"},
        },
        "required": ["command"],
        "additionalProperties": False,
    }
    max_result_chars = 100_000
    # The call's own limit ends it; the engine's must not come first.
    timeout = 86_400.0

    async def enabled(self, workspace: Workspace) -> bool | str:
        """Only where there can be a bash."""
        return os.name == "posix" or "commands need a Unix-like system"

    def normalize(self, input: dict[str, Any], workspace: Workspace) -> dict[str, Any]:
        """Without a leading `cd` to where the shell is anyway."""
        command = _without_idle_cd(input["command"], workspace.cwd)
        return input if command == input["command"] else {**input, "command": command}

    def effects(self, input: Mapping[str, Any], workspace: Workspace) -> Effects:
        """What a command reads that is proven to read only; anything, for another."""
        analysis = _analysis(input["command"], workspace)
        if analysis.verdict != "read_only":
            return (Runs(input["command"]),)
        # Its parts are judged with it: declared beside it, each would be analysed once more.
        touched = [effect for effect in analysis.effects if not isinstance(effect, Runs)]
        return (Runs(input["command"], contained=True), *touched)

    def needs_permission(self, input: Mapping[str, Any], effects: Effects) -> bool:
        """Not for a command that is proven to read only."""
        return any(map(is_opaque, effects)) or any(isinstance(effect, Writes | Fetches) for effect in effects)

    def destructive(self, input: Mapping[str, Any]) -> bool:
        """A command can do what no undo takes back."""
        return True

    async def check(self, input: Mapping[str, Any], ctx: ToolContext) -> Doubt | None:
        """A command bash cannot be given is refused before anyone is asked about it."""
        if "\0" in input["command"]:
            raise Refusal("check", "The command holds a NUL byte, which bash cannot take. Let printf make it.")
        if not input["command"].strip():
            raise Refusal("check", "The command is empty. Send the command to run.")
        return None

    def show_use(self, input: Mapping[str, Any]) -> str:
        """The command itself, and what it is for."""
        command = " ".join(str(input.get("command", "")).split())
        shown = truncate(command, 200)
        return f"{input['description']}: {shown}" if input.get("description") else shown

    async def run(self, args: Any, ctx: ToolContext) -> AsyncIterator[Progress | Output]:
        """Run the command; yields signs of life, then the result."""
        from wieldy.shell.running.shells import ShellSession, starting_point

        workspace, command = ctx.workspace, args["command"]
        notices = [notice] if (notice := starting_point(workspace)) else []
        confine, sandbox_notice = await _confinement(command, workspace)
        notices += [sandbox_notice] if sandbox_notice else []
        if args.get("run_in_background"):
            yield _started(_background(workspace).start(command, cwd=workspace.cwd, confine=confine), notices)
            return
        started_in = workspace.cwd
        analysis = _analysis(command, workspace)
        witness = await _witness(analysis, workspace) if analysis.verdict != "read_only" else None
        extra = await _reading(analysis, workspace) if analysis.verdict == "read_only" else None
        shell = workspace.service(ShellSession).start(
            command, cwd=started_in, extra=extra, confine=confine, stays=_stays(analysis)
        )
        if ENDINGS not in sys.modules or witness:
            asyncio.get_running_loop().call_soon(_foresee_the_end, witness)
        limit = _limit_ms(args.get("timeout"), workspace) / 1000
        job = Job(shell, command, limit, started_in, tuple(notices), confine is not None)
        try:
            while pulse := await shell.pulse(shell.started + limit):
                yield Progress(
                    f"{pulse.seconds:.0f} s, {pulse.bytes} bytes\n{pulse.last_lines}".rstrip(),
                    {"seconds": pulse.seconds, "bytes": pulse.bytes, "lastLines": pulse.last_lines},
                )
            output = await _conclusion(job, workspace)
            yield await _with_changes(output, witness, ctx)
        except asyncio.CancelledError:
            yield await _interruption(job, workspace)
        finally:
            if not shell.exit.done() and not shell.in_background:
                await _interruption(job, workspace)
            if witness:
                await witness.after(ctx.call_id, "Bash", ctx.message_id)


bash = Bash()


class Job(Struct, frozen=True):
    """A command in the foreground, and what is needed to give account of it."""

    shell: Shell
    command: str
    limit: float
    started_in: str
    notices: tuple[str, ...]
    sandboxed: bool


def _foresee_the_end(witness: Witness | None) -> None:
    """Load what is needed when the command ends, now that it runs and there is nothing else to do."""
    import wieldy.shell.running.exit_notes

    if witness is not None:
        import wieldy.files.journal.journal  # noqa: F401 - for what it leaves behind


async def _conclusion(job: Job, workspace: Workspace) -> Output:
    from wieldy.shell.running.exit_notes import ending_notes, leftover_notes, meaning
    from wieldy.shell.running.shell import cut_short, finished
    from wieldy.shell.running.shells import arrive

    shell = job.shell
    if shell.exit.done():
        ran = await finished(shell)
    elif workspace.setting("bash.background_on_timeout", False):
        return _went_on(_background(workspace).adopt(shell, job.command, seen=shell.capture.total), job)
    else:
        ran = await cut_short(shell, "timed out")
    ending = meaning(job.command, ran.code) if ran.code is not None else None
    notices = [*job.notices, *ending_notes(ran, ending, job.limit, job.command, sandboxed=job.sandboxed)]
    if moved := arrive(workspace, job.started_in, ran.directory):
        notices.append(moved)
    task = None
    if ran.leftovers and not shell.drain.ended.done() and ran.how == "exited":
        task = _background(workspace).adopt(shell, job.command, seen=ran.total_bytes).id
    notices += leftover_notes(ran, task)
    return _output(ran, notices, ending is None or ending.is_error, workspace, task)


async def _interruption(job: Job, workspace: Workspace) -> Output:
    from wieldy.shell.running.shell import cut_short

    ran = await cut_short(job.shell, "interrupted")
    notices = [*job.notices, "interrupted: the command and everything it had started were ended"]
    return _output(ran, notices, True, workspace)


def _output(ran: Ran, notices: list[str], is_error: bool, workspace: Workspace, task: str | None = None) -> Output:
    text = "\n".join((ran.text.rstrip("\n"), *(f"[{notice}]" for notice in notices))).strip("\n")
    data = {
        "stdout": ran.text,
        "stderr": "\n".join(notices),
        "exitCode": ran.code,
        "interrupted": ran.how == "interrupted",
        "timedOut": ran.how == "timed out",
        "isImage": False,
        "seconds": round(ran.seconds, 3),
        "bytes": ran.total_bytes,
        "cwd": workspace.cwd,
        "backgroundTaskId": task,
        "persistedOutputPath": ran.path,
    }
    return Output(text, data, is_error)


def _went_on(background: BackgroundShell, job: Job) -> Output:
    said = job.shell.capture.excerpt().text.rstrip("\n")
    note = (
        f"still running after {job.limit:g} s; it goes on in the background as {background.id}. "
        "Read on with BashOutput, end it with KillShell"
    )
    text = "\n".join((said, *(f"[{notice}]" for notice in (*job.notices, note)))).strip("\n")
    return Output(text, {"stdout": said, "exitCode": None, "timedOut": True, "backgroundTaskId": background.id})


def _started(background: BackgroundShell, notices: list[str]) -> Output:
    text = f"Started in the background as {background.id}. Read its output with BashOutput, end it with KillShell."
    data = {"stdout": "", "exitCode": None, "interrupted": False, "backgroundTaskId": background.id}
    return Output("\n".join((text, *(f"[{notice}]" for notice in notices))), data)


def _background(workspace: Workspace) -> BackgroundShells:
    from wieldy.shell.running.background import BackgroundShells

    return workspace.service(BackgroundShells)


async def _confinement(command: str, workspace: Workspace) -> tuple[Confine | None, str | None]:
    """How the command is held within bounds, and what has to be said where it cannot be."""
    if not workspace.setting("sandbox.enabled", False) or _is_excluded(command, workspace):
        return None, None
    from wieldy.shell.running.shells import ShellSession
    from wieldy.shell.sandbox.sandbox import Sandbox

    sandbox = workspace.service(Sandbox)
    if (await sandbox.wrapper()).mechanism == "none":
        if workspace.setting("sandbox.failIfUnavailable", False):
            raise ToolFailure("No sandbox works on this system and the settings require one, so nothing was run.")
        return None, "no sandbox works on this system: the command ran unconfined"
    return await sandbox.confinement(also_writable=(str(workspace.service(ShellSession).folder),)), None


def _analysis(command: str, workspace: Workspace) -> Analysis:
    from wieldy.shell.policy.analysis import analyze

    home = workspace.env.get("HOME") or os.path.expanduser("~")
    return analyze(command, cwd=workspace.cwd, home=home, root=workspace.root)


def _stays(analysis: Analysis) -> bool:
    """Whether a command is certain to end in the folder where it starts."""
    return analysis.verdict == "read_only" and all(part.program != "cd" for part in analysis.parts)


async def _reading(analysis: Analysis, workspace: Workspace) -> dict[str, str] | None:
    """What keeps git, trusted to read only, from being made to do more by the configuration of a repository."""
    folders = dict.fromkeys([cwd for part in analysis.parts if part.program == "git" for cwd in part.cwds])
    if not folders:
        return None
    from wieldy.shell.running.neutral_git import git_neutral_environment

    return await in_thread(git_neutral_environment, *folders, surrounding=workspace.env)


async def _witness(analysis: Analysis, workspace: Workspace) -> Witness | None:
    """Who keeps what undo will need of a command that does not only read; nobody where undo is off."""
    if not workspace.setting("journal.enabled", True) or not workspace.setting("bash.snapshot", True):
        return None
    from wieldy.files.journal.command_snapshots import Witness

    written = tuple(effect.path for effect in analysis.effects if isinstance(effect, Writes))
    return await Witness.before(workspace, written if analysis.verdict == "known" else workspace.roots)


async def _with_changes(output: Output, witness: Witness | None, ctx: ToolContext) -> Output:
    if witness is None:
        return output
    await witness.after(ctx.call_id, "Bash", ctx.message_id)
    content = f"{output.content}\n[{witness.trouble}]" if witness.trouble else output.content
    return Output(content, {**output.data, "changedFiles": list(witness.changed)}, output.is_error)


def _is_excluded(command: str, workspace: Workspace) -> bool:
    """Whether every program of a command is named as one that runs outside the sandbox."""
    excluded = workspace.setting("sandbox.excludedCommands", list[str]())
    if not excluded:
        return False
    analysis = _analysis(command, workspace)
    return not analysis.problems and all({part.program, *part.wrappers} <= {*excluded} for part in analysis.parts)


def _without_idle_cd(command: str, cwd: str) -> str:
    if not command.startswith("cd "):
        return command
    import shlex

    for spelled in dict.fromkeys((cwd, shlex.quote(cwd), f'"{cwd}"')):
        head = f"cd {spelled} && "
        if command.startswith(head) and command[len(head) :].strip():
            return command[len(head) :]
    return command


def _limit_ms(asked: int | None, workspace: Workspace) -> int:
    by_user = workspace.env.get("WIELDY_BASH_TIMEOUT_MS", "")
    usual = int(by_user) if by_user.isdecimal() and int(by_user) else workspace.setting("bash.timeout_ms", DEFAULT_MS)
    return min(asked, max(MOST_MS, usual)) if asked else usual
