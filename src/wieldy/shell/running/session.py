"""All shells of a workspace: how they start, how their processes are tagged, and how they end together."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable, Mapping
from functools import cached_property, partial
from pathlib import Path

from wieldy.core.backend import spawn_on
from wieldy.core.errors import ToolFailure
from wieldy.core.state_dirs import make_private_folder
from wieldy.core.threads import in_thread
from wieldy.core.workspace import Workspace
from wieldy.shell.running.guardian import Guardian
from wieldy.shell.running.launch import (
    MAX_ARGUMENT_BYTES,
    NO_LIMITS,
    STARTUP_FILE_VARIABLES,
    Confinement,
    Limits,
    Program,
    StartedProcess,
    bash_command,
    command_environment,
    find_bash,
    launch,
    scrub_secrets,
    start_program,
)
from wieldy.shell.running.output import OutputCapture
from wieldy.shell.running.process_tag import TAG_NUMBER_VARIABLE, tag_numbers, tag_process
from wieldy.shell.running.reaper import ProcessTree, end_tree
from wieldy.shell.running.shell import READ_BYTES, CommandFiles, OutputReader, Shell, may_detach
from wieldy.shell.sandbox.launcher import LAUNCHER, Reading

CLOSE_TIMEOUT = 2.0
# Where the guardian writes when all commands of a session had ended, after the death of its process.
ENDED_FILE = "commands-ended"


class ShellSession:
    """The shells of a workspace: `workspace.services.shells`. Each gets a tag by which its processes are found."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace
        self.token = os.urandom(8).hex()
        self.results = workspace.session_dir / "tool-results"
        self.guardian = Guardian(self.token, str(workspace.session_dir / ENDED_FILE))
        self.hidden_variables: tuple[str, ...] = ()
        """The variables that look like secrets and that the last command did not get."""
        self._open: set[Shell] = set()
        self._count = 0
        self._closed = False

    @cached_property
    def _buffer(self) -> bytearray:
        """The buffer that all output is read into, made at the first command."""
        return bytearray(READ_BYTES)

    @cached_property
    def folder(self) -> Path:
        """Where commands report the directory they ended in. Raises `ToolFailure`."""
        folder = self.workspace.session_dir / "shell"
        try:
            make_private_folder(folder)
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise ToolFailure(
                f"The folder {folder} cannot be made: {reason}. Nothing was run. WIELDY_HOME moves the state folder."
            ) from error
        return folder

    def start(
        self,
        command: str,
        *,
        cwd: str,
        extra_env: Mapping[str, str] | None = None,
        confine: Confinement | None = None,
        keeps_directory: bool = False,
        reading: Reading | None = None,
        limits: Limits = NO_LIMITS,
    ) -> Shell:
        """Start a command. Raises `ToolFailure` if bash cannot be started.

        With `keeps_directory` the command is known to end where it started, so bash need not report that. The confined
        launcher starts what is only `reading`.
        """
        if self._closed:
            raise ToolFailure("The session is over; no more commands can be run.")
        text = _encode(command)
        self._count += 1
        tag = f"{self.token}.{self._count}."
        setting = self.workspace.setting
        kept, variables, separate = setting("bash.keepEnv"), setting("env"), setting("bash.separateStderr")
        surrounding, self.hidden_variables = scrub_secrets(self.workspace.env, kept)
        own = {name: str(value) for name, value in variables.items()}
        own |= extra_env or {}
        has_startup_file = not STARTUP_FILE_VARIABLES.isdisjoint(own) or not STARTUP_FILE_VARIABLES.isdisjoint(
            surrounding
        )
        needs_preamble = not keeps_directory or has_startup_file or may_detach(text)
        start: Callable[[Program], StartedProcess] = start_program
        folder = self.folder
        if reading is not None:
            start = partial(
                LAUNCHER.start,
                hidden=reading.hidden,
                limits=limits.resources(),
                sees_processes=reading.sees_processes,
            )
            folder = Path(LAUNCHER.temp)
            if b"TMPDIR" not in text:
                own = {"TMPDIR": LAUNCHER.temp} | own  # for here-documents and sorting
        report = folder / f"{tag}cwd" if needs_preamble else None
        env = command_environment(surrounding, tag=tag, at_exit=_report_command(report) if report else None) | own
        if needs_preamble:
            env[TAG_NUMBER_VARIABLE] = str(tag_numbers(tag).start)
        # A sandboxed command may write to the folder of reports, but never to what another command will execute.
        script = self.folder.with_name(f"{tag}sh") if len(text) > MAX_ARGUMENT_BYTES else None
        argv = bash_command(find_bash(surrounding.get("PATH")), text, script)
        # With the path of a symlink in PWD, `cd ..` would lead elsewhere than the analysis says.
        env["PWD"] = cwd
        if confine:
            argv, env = confine(argv, env)
        self.guardian.ensure_running()  # before the command, so that no command can outlive us
        try:
            process, pipes = launch(argv, cwd=cwd, env=env, pipes=2 if separate else 1, start=start)
        except OSError as problem:
            reason = problem.strerror if os.path.isdir(cwd) else f"the folder {cwd} is gone"
            raise ToolFailure(f"bash could not be started: {reason}. Nothing was run.") from None
        # Too late for children bash has by now, but a command without preamble starts none that hide.
        tag_process(process.pid, tag)
        if reading is None:
            limits.apply(process.pid)
        make_reader = partial(OutputReader, pipes, self._captures(separate=separate), self._buffer)
        files = CommandFiles(report, script, cwd)
        shell = Shell(
            text,
            tag,
            process,
            make_reader,
            files,
            on_exit=self._report_exit,
            on_close=self._open.discard,
            limits=limits,
        )
        self._open.add(shell)
        self.guardian.report_shell(shell.pid, running=True)
        return shell

    async def start_remote(
        self, command: str, *, cwd: str, extra_env: Mapping[str, str] | None = None, keeps_directory: bool = False
    ) -> Shell:
        """Start a command on the backend of the workspace. Raises `ToolFailure` if it cannot be started."""
        from wieldy.shell.running.remote_shell import RemoteShell, remote_command, remote_environment

        backend = self.workspace.files.backend
        assert backend is not None
        if self._closed:
            raise ToolFailure("The session is over; no more commands can be run.")
        text = _encode(command)
        self._count += 1
        given = backend.has_host_programs or self.workspace.env is not os.environ
        surrounding, self.hidden_variables = scrub_secrets(
            self.workspace.env if given else {}, self.workspace.setting("bash.keepEnv")
        )
        own = {name: str(value) for name, value in self.workspace.setting("env").items()} | dict(extra_env or {})
        if not backend.has_host_programs:
            own = surrounding | own
        report = None if keeps_directory else f"/tmp/.wieldy-{self.token}-{self._count}"
        argv = remote_command(backend, self.workspace, text, report)
        env = remote_environment(backend, surrounding, {**own, "PWD": cwd}, f"{self.token}.{self._count}.")
        separate = self.workspace.setting("bash.separateStderr")
        try:
            process = await spawn_on(backend, argv, cwd=cwd, env=env, separate_stderr=separate)
        except OSError as problem:
            raise ToolFailure(f"bash could not be started: {problem.strerror or problem}. Nothing was run.") from None
        pipes = [process.stdout] if process.stderr is None else [process.stdout, process.stderr]
        make_reader = partial(OutputReader, pipes, self._captures(separate=len(pipes) == 2), self._buffer)
        shell = RemoteShell(backend, text, process, make_reader, cwd=cwd, report=report, on_close=self._open.discard)
        self._open.add(shell)
        return shell

    def _captures(self, *, separate: bool) -> list[OutputCapture]:
        name = f"bash-{self.token[:6]}-{self._count}"
        names = (name, f"{name}-stdout", f"{name}-stderr") if separate else (name,)
        max_chars = max(self.workspace.setting("bash.maxOutputChars"), 1_000)
        return [OutputCapture(self.results / f"{each}.txt", max_chars=max_chars) for each in names]

    @property
    def may_confine(self) -> bool:
        """Whether the confined launcher is likely to start commands that only read."""
        return self.workspace.files.is_local and LAUNCHER.may_work

    @property
    def is_confining(self) -> bool:
        """Whether the confined launcher serves already."""
        return LAUNCHER.is_ready

    def can_confine(self) -> bool:
        """Whether the confined launcher works here, which it takes some milliseconds to start. Blocks."""
        return LAUNCHER.works(self)

    def warm_up(self) -> None:
        """Start what the first command will need."""
        if self.workspace.files.is_local and not self._closed:
            LAUNCHER.warm_up(self)
            self.guardian.ensure_running()

    async def aclose(self) -> None:
        """End everything that the commands of this workspace left running."""
        if self._closed:
            return
        self._closed = True
        if self._count:
            await self._end_all()
        await in_thread(self.guardian.stop)
        await in_thread(LAUNCHER.leave, self)

    def _report_exit(self, shell: Shell) -> None:
        self.guardian.report_shell(shell.pid, running=False)

    async def _end_all(self) -> None:
        if self.workspace.files.is_local:
            roots = frozenset(shell.pid for shell in self._open if not shell.exit.done())
            await in_thread(end_tree, ProcessTree(f"{self.token}.", roots))
        else:
            await asyncio.gather(*(shell.terminate() for shell in self._open))
        for shell in list(self._open):
            # A process that hangs in the kernel survives SIGKILL; it must not hold up the rest.
            await asyncio.wait((shell.exit,), timeout=CLOSE_TIMEOUT)
            await shell.close()
        if "folder" in vars(self):
            await in_thread(shutil.rmtree, self.folder, ignore_errors=True)


def _encode(command: str) -> bytes:
    try:
        text = command.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise ToolFailure(
            "The command contains half of a surrogate pair, which is no character.", "Send it without."
        ) from None
    if b"\0" in text:
        raise ToolFailure(
            "The command contains a NUL byte, which bash cannot take.", "Write it as $'\\\\0' or use printf."
        )
    return text


def _report_command(report: Path) -> str:
    """The command of the EXIT trap. It is silent under `set -x`, `set -C` and a DEBUG trap, and keeps the exit code."""
    quoted = os.fspath(report).replace("'", "'\\''")
    return f"{{ builtin pwd -P >| '{quoted}'; }} >/dev/null 2>&1"


def update_working_directory(workspace: Workspace, before: str, after: str | None) -> str | None:
    """Move the workspace to where a command ended, or back to its root with a notice if that is not allowed."""
    if after is None or after == before or not workspace.files.is_folder(after):
        return None
    real = workspace.files.realpath(after)
    if any(real == root or real.startswith(root.rstrip(os.sep) + os.sep) for root in workspace.roots):
        workspace.cwd = real
        return None
    workspace.cwd = workspace.root
    return f"The command ended in {real}, outside the allowed folders; the working directory is {workspace.root} again."
