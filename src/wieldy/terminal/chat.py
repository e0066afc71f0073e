"""The plain interactive session: a line prompt, streamed answers, tool calls, and questions answered in place."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from wieldy.agent.session import Session
from wieldy.console import Style, StyledText, write
from wieldy.core.decision import Answer, Question
from wieldy.core.errors import SessionError
from wieldy.core.events import Event, Notice, RunEnded
from wieldy.core.state_dirs import state_home
from wieldy.terminal.commands import COMMANDS, ExitChat, send_mcp_prompt
from wieldy.terminal.questions import NoAnswer, TerminalQuestions, ask_permission
from wieldy.terminal.view import View
from wieldy.workspace_services import HostServices

if TYPE_CHECKING:
    from prompt_toolkit import PromptSession

NO_MODEL = "There is no model to talk to. You can still run tools with /call and !; see /help."


class Chat:
    """One session at a terminal."""

    def __init__(
        self, open_session: Callable[..., Session], *, first_prompt: str | None = None, resume: str | None = None
    ) -> None:
        self._open_session = open_session
        self._first_prompt = first_prompt
        self._prompt = create_prompt()
        self._use_session(self._create_session(resume))
        self._interrupted = False

    async def run(self) -> int:
        """Read and handle lines until the user leaves. Returns the exit code."""
        try:
            await self.session.__aenter__()
            self._greet()
            while True:
                line = await self._read_line()
                if line is None:
                    return 0
                try:
                    with self._interruptible():
                        await self._handle(line)
                except ExitChat:
                    return 0
                except Exception as error:  # a failed command does not end the session
                    self.say(" ".join(str(error).split()) or type(error).__name__, "red")
        finally:
            await self.session.aclose()

    def say(self, text: str, *styles: Style) -> None:
        """Print a line."""
        write(StyledText(text, styles))

    async def resume(self, session_id: str) -> None:
        """Switch to another session."""
        session = self._create_session(session_id)
        await self.session.aclose()
        await session.__aenter__()
        self._use_session(session)
        self._say_resumed()

    async def send(self, prompt: str) -> None:
        """Send a prompt to the model, if there is one, and show the run."""
        if not self._has_model():
            self.say(NO_MODEL, "yellow")
            return
        async for event in self.session.run(prompt):
            if isinstance(event, Notice):  # printed by the subscription
                continue
            write(*self._view.show(event), end="", flush=True)
            if isinstance(event, RunEnded) and not event.is_error:
                write("")

    def _create_session(self, resume: str | None) -> Session:
        host = HostServices(question_handler=TerminalQuestions(self._read_answer))
        return self._open_session(ask=self._ask_permission, resume=resume, host=host)

    def _use_session(self, session: Session) -> None:
        self.session = session
        self._view = View(session.box.catalog.find)
        session.box.subscribe(self._print_notice)

    def _has_model(self) -> bool:
        try:
            return self.session.provider is not None
        except SessionError:
            return False

    def _greet(self) -> None:
        box = self.session.box
        self.say(f"wieldy in {box.workspace.root} ({box.policy.mode} mode). /help lists the commands.", "dim")
        if self.session.messages:
            self._say_resumed()
        for problem in (*box.settings.errors, *box.settings.warnings, *box.hook_problems):
            self.say(str(problem), "red")
        try:
            _ = self.session.provider
        except SessionError as error:
            self.say(NO_MODEL, "yellow")
            self.say(str(error), "dim")
        if box.settings.pending:
            self.say(f"{len(box.settings.pending)} setting(s) wait for consent: wieldy permissions trust", "yellow")

    def _say_resumed(self) -> None:
        self.say(f"resumed {self.session.id}: {len(self.session.messages)} messages", "dim")

    async def _read_line(self) -> str | None:
        """Return the next line; None when the user leaves."""
        if self._first_prompt is not None:
            prompt, self._first_prompt = self._first_prompt, None
            return prompt
        warned = False
        while True:
            try:
                line = await self._prompt.prompt_async("> ", handle_sigint=True)
            except KeyboardInterrupt:
                if warned:
                    return None
                warned = True
                self.say("press Ctrl-C again to exit", "dim")
                continue
            except EOFError:
                return None
            if line.strip():
                return line

    async def _handle(self, line: str) -> None:
        text = line.strip()
        if text.startswith("!"):
            await COMMANDS["/call"].run(self, f"Bash command={text[1:].strip()}")
        elif text.startswith("/"):
            name, _, rest = text.partition(" ")
            command = COMMANDS.get(name)
            if name.startswith("/mcp__"):
                await send_mcp_prompt(self, name, rest.strip())
            elif command is None:
                self.say(f"there is no command {name}; /help lists them", "red")
            else:
                await command.run(self, rest.strip())
        else:
            await self.send(text)

    @contextmanager
    def _interruptible(self) -> Iterator[None]:
        """Handle Ctrl-C while something runs; at the prompt, prompt_toolkit handles it."""
        self._interrupted = False
        self._handle_sigint()
        try:
            yield
        finally:
            asyncio.get_running_loop().remove_signal_handler(signal.SIGINT)

    def _handle_sigint(self) -> None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGINT, self._interrupt)

    def _interrupt(self) -> None:
        """Abort the run; a second Ctrl-C leaves."""
        if self._interrupted:
            raise KeyboardInterrupt
        self._interrupted = True
        self.session.abort()

    async def _print_notice(self, event: Event) -> None:
        if isinstance(event, Notice):
            self.say(f"  {event.text}", "dim")

    async def _ask_permission(self, question: Question) -> Answer:
        return await ask_permission(question, self._read_answer)

    async def _read_answer(self, prompt: str) -> str:
        try:
            return await self._prompt.prompt_async(prompt, handle_sigint=True)
        except (KeyboardInterrupt, EOFError):
            self.session.abort()
            raise NoAnswer from None
        finally:
            self._handle_sigint()


def create_prompt() -> PromptSession[str]:
    """Create a line prompt with the history of earlier sessions; a history that cannot be saved lasts for this one."""
    from prompt_toolkit import PromptSession
    from prompt_toolkit.history import FileHistory

    class TolerantHistory(FileHistory):
        def load_history_strings(self) -> Iterable[str]:
            try:
                return super().load_history_strings()
            except OSError:
                return []

        def store_string(self, string: str) -> None:
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                super().store_string(string)
            except OSError:
                pass

    path = state_home() / "history"
    return PromptSession(history=TolerantHistory(str(path)))
