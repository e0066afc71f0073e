"""The plain interactive session: a line prompt, streamed answers, tools as they run, questions answered in place."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from wieldy.agent.session import Session
from wieldy.core.decision import Answer, Question
from wieldy.core.errors import SessionError
from wieldy.core.events import Event, Notice, RunEnded
from wieldy.core.user_questions import UserQuestions
from wieldy.terminal.commands import COMMANDS, Leave, prompted
from wieldy.terminal.questions import Paint, line_prompt
from wieldy.terminal.view import View

if TYPE_CHECKING:
    from prompt_toolkit import PromptSession

NO_MODEL = "There is no model to talk to; tools run by hand with /call and !. /help says more."


class Chat:
    """One person and one session at a terminal."""

    def __init__(
        self, open_session: Callable[..., Session], *, first: str | None = None, resume: str | None = None
    ) -> None:
        self._open_session = open_session
        self._first = first
        self._paint = Paint.for_stream()
        self._prompt: PromptSession[str] = line_prompt()
        self.session = self._seated(open_session(ask=self._ask, resume=resume))
        self._view = View(self.session.box.catalog.find, self._paint)
        self._leaving = False

    async def run(self) -> int:
        """Talk until the person leaves. Returns the exit code."""
        stop_notices = self.session.box.subscribe(self._notice)
        try:
            await self.session.__aenter__()
            self._greet()
            while True:
                line = await self._line()
                if line is None:
                    return 0
                try:
                    with self._interruptible():
                        await self._take(line)
                except Leave:
                    return 0
                except Exception as problem:  # whatever it is, the conversation is not lost for it
                    self.say(" ".join(str(problem).split()) or type(problem).__name__, "red")
        finally:
            stop_notices()
            await self.session.aclose()

    def say(self, text: str, *styles: str) -> None:
        """Write a line."""
        print(self._paint(text, *styles))  # type: ignore[arg-type]

    async def resume(self, session_id: str) -> None:
        """Go on with another session."""
        following = self._seated(self._open_session(ask=self._ask, resume=session_id))
        await self.session.aclose()
        self.session = await following.__aenter__()
        self._view = View(following.box.catalog.find, self._paint)
        following.box.subscribe(self._notice)
        self._say_resumed()

    async def turn(self, prompt: str) -> None:
        """Say something to the model and show what comes of it."""
        async for event in self.session.run(prompt):
            if isinstance(event, Notice):
                continue
            sys.stdout.write(self._view.show(event))
            sys.stdout.flush()
            if isinstance(event, RunEnded) and not event.is_error:
                sys.stdout.write("\n")

    def has_model(self) -> bool:
        """Whether there is anybody to talk to."""
        try:
            return self.session.provider is not None
        except SessionError:
            return False

    def _say_resumed(self) -> None:
        self.say(f"going on with {self.session.id}: {len(self.session.messages)} messages", "dim")

    def _greet(self) -> None:
        box = self.session.box
        self.say(f"wieldy in {box.workspace.root} ({box.policy.mode} mode). /help lists what you can type.", "dim")
        if self.session.messages:
            self._say_resumed()
        for problem in (*box.settings.errors, *box.hook_problems):
            self.say(str(problem), "red")
        if not self.has_model():
            try:
                _ = self.session.provider
            except SessionError as how:
                self.say(NO_MODEL, "yellow")
                self.say(str(how), "dim")
        if box.settings.pending:
            self.say(
                f"{len(box.settings.pending)} setting(s) wait for consent: wieldy permissions trust",
                "yellow",
            )

    async def _line(self) -> str | None:
        """What the person types next; None when they leave."""
        if self._first is not None:
            first, self._first = self._first, None
            return first
        warned = False
        while True:
            try:
                line = await self._prompt.prompt_async("> ", handle_sigint=True)
            except KeyboardInterrupt:
                if warned:
                    return None
                warned = True
                self.say("Ctrl-C once more leaves", "dim")
                continue
            except EOFError:
                return None
            if line.strip():
                return line

    async def _take(self, line: str) -> None:
        text = line.strip()
        if text.startswith("!"):
            await COMMANDS["/call"].run(self, f"Bash command={text[1:].strip()}")
        elif text.startswith("/"):
            name, _, rest = text.partition(" ")
            command = COMMANDS.get(name)
            if name.startswith("/mcp__"):
                await prompted(self, name, rest.strip())
            elif command is None:
                self.say(f"there is no {name}; /help lists what there is", "red")
            else:
                await command.run(self, rest.strip())
        else:
            await self.told(text)

    async def told(self, text: str) -> None:
        """Say something to the model, if there is one."""
        if self.has_model():
            await self.turn(text)
        else:
            self.say(NO_MODEL, "yellow")

    @contextmanager
    def _interruptible(self) -> Iterator[None]:
        """Ctrl-C is ours while something runs, and the prompt's while it waits: it takes the signal over each time."""
        self._leaving = False
        self._catch()
        try:
            yield
        finally:
            asyncio.get_running_loop().remove_signal_handler(signal.SIGINT)

    def _catch(self) -> None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGINT, self._interrupt)

    def _interrupt(self) -> None:
        """Ctrl-C while something runs: the first stops it, the second leaves."""
        if self._leaving:
            raise KeyboardInterrupt
        self._leaving = True
        self.session.abort()

    async def _notice(self, event: Event) -> None:
        if isinstance(event, Notice):
            self.say(f"  {event.text}", "dim")

    def _seated(self, session: Session) -> Session:
        """A session whose model may ask the person here."""
        from wieldy.terminal.questions import AtTerminal

        session.box.workspace.service(UserQuestions).handler = AtTerminal(self._ask_line)
        return session

    async def _ask(self, question: Question) -> Answer:
        from wieldy.terminal.questions import put

        return await put(question, self._ask_line)

    async def _ask_line(self, prompt: str) -> str:
        try:
            return await self._prompt.prompt_async(prompt, handle_sigint=True)
        except (KeyboardInterrupt, EOFError):
            from wieldy.terminal.questions import Unanswered

            self.session.abort()
            raise Unanswered from None
        finally:
            self._catch()
