"""One interactive session, whatever draws it: its start, prompts and their images, the queue, questions, stopping."""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import unquote

from wieldy.agent.session import Session
from wieldy.core.decision import Answer, Question
from wieldy.core.errors import SessionError, WieldyError
from wieldy.core.events import Event, RunEnded, Steered
from wieldy.core.logs import log
from wieldy.core.outcome import Image
from wieldy.core.state_dirs import state_home
from wieldy.core.text import plural
from wieldy.core.threads import in_thread
from wieldy.engine.workspace_services import HostServices
from wieldy.faces.terminal.desktop import StatusCommand, TurnNotifier
from wieldy.faces.terminal.questions import (
    Choice,
    Inquiry,
    InquiryQuestions,
    Reply,
    permission_answer,
    permission_inquiry,
)
from wieldy.faces.terminal.text import Row, TextSpan, to_line
from wieldy.faces.terminal.view_model import Block, LineBlock, SpansBlock, ViewModel
from wieldy.models.catalog import NO_MODEL

if TYPE_CHECKING:
    from wieldy.agent.loop import Prompt
    from wieldy.agent.session import Session
    from wieldy.core.outcome import ToolResult
    from wieldy.policy.settings.offers import Offer

NO_MODEL_NOTE = "There is no model to talk to; /model NAME sets one. /call and ! still run tools."
NAMED_PROMPT_SECONDS = 30.0
MODES_FOR_MODELS = ("plan", "dontAsk")
MODE_CYCLE = ("default", "acceptEdits", "plan")

# Set while a command of the person's own runs: it never asks.
_by_person: ContextVar[bool] = ContextVar("by_person", default=False)


class Surface(Protocol):
    """What draws a chat and reads its keys."""

    def refresh(self, *, at_once: bool = False) -> None:
        """Something that can be seen has changed; `at_once`: the person waits for it."""

    async def ask(self, inquiry: Inquiry) -> Reply | None:
        """Ask the person; None when they leave the question."""

    async def page(self, text: str) -> None:
        """Show a long text in the pager."""

    def set_draft(self, text: str) -> None:
        """Put a text into the input box."""

    def exit(self) -> None:
        """End the session."""


class Chat:
    """A session with its view model and its queue. Commands and surfaces work on it."""

    def __init__(
        self, open_session: Callable[..., Session], *, first_prompt: str | None = None, resume: str | None = None
    ) -> None:
        self._open_session = open_session
        self.first_prompt = first_prompt
        self.queue: deque[str] = deque()
        self.steering: list[str] = []  # handed in, not yet heard by the model
        self.surface: Surface  # sets itself when it is made
        self._use_session(self._create_session(resume))
        self._work: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._run_ended = asyncio.Event()
        self._stopped = False
        self._notes: list[str] = []
        self.named_prompts: dict[str, str] = {}
        self.notifier = TurnNotifier(lambda: str(self.session.box.workspace.setting("notifications")))
        # A lambda, since the surface is not there yet.
        self.status_command = StatusCommand(lambda: self.session, lambda: self.surface.refresh())  # noqa: PLW0108

    async def __aenter__(self) -> Chat:
        await self.session.__aenter__()
        self.session.box.subscribe(self._on_event)
        self.show(*start_blocks(self.session))
        if self.session.messages:
            self.show_conversation()
        self._start(self._find_named_prompts())
        self._start(make_offers(self))
        self.status_command.refresh()
        if self.first_prompt is not None:
            self.submit(self.first_prompt)
        return self

    async def __aexit__(self, *exception: object) -> None:
        self.queue.clear()
        self.session.abort("the session was closed")
        for task in (*self._tasks, *([self._work] if self._work else [])):
            task.cancel()
        if pending := [task for task in (*self._tasks, self._work) if task is not None and not task.done()]:
            await asyncio.wait(pending, timeout=5)
        await self.status_command.aclose()
        await self.session.aclose()

    # What the person does

    @property
    def busy(self) -> bool:
        """Whether a prompt or a command is being worked on."""
        return self._work is not None and not self._work.done()

    @property
    def stopping(self) -> bool:
        """Whether the run was told to stop and has not ended yet."""
        return self.busy and self._stopped

    def submit(self, text: str) -> None:
        """Handle a line: now, or after what is running."""
        from wieldy.faces.terminal.commands import find_command

        self.notifier.on_activity()
        command = find_command(text)
        if command is not None and command.while_running and self.busy:
            self._start(self._handle(text))
        elif self.busy:
            self.queue.append(text)
            self._stopped = False
        else:
            self._stopped = False
            self._work = asyncio.get_running_loop().create_task(self._work_off(text))
            self._work.add_done_callback(lambda work: self.surface.refresh())
        self.surface.refresh()

    def send_queue(self) -> bool:
        """Send what was queued and kept by a stop; false where there is nothing to send."""
        if self.busy or not self.queue:
            return False
        self.submit(self.queue.popleft())
        return True

    def take_back(self) -> str | None:
        """Take the last queued message back, to edit it."""
        text = self.queue.pop() if self.queue else None
        self.surface.refresh()
        return text

    def steer(self, text: str) -> None:
        """Hand a message in after the running tool instead of after the whole run."""
        if not self.session.running:
            self.submit(text)
            return
        self.session.steer(text)
        self.steering.append(text)
        self.surface.refresh()

    def stop(self) -> bool:
        """Stop the run in front; the queue stays and is not sent. False where nothing runs."""
        if not self.busy:
            return False
        self._stopped = True
        if self.session.running:
            self.session.abort()
        elif self._work is not None:
            self.session.abort()
            self._work.cancel()
        self.surface.refresh()
        return True

    def cycle_mode(self) -> None:
        policy = self.session.box.policy
        position = MODE_CYCLE.index(policy.mode) if policy.mode in MODE_CYCLE else -1
        policy.mode = MODE_CYCLE[(position + 1) % len(MODE_CYCLE)]
        self.status_command.refresh()
        self.surface.refresh()

    # What commands use

    def say(self, text: str, *styles: str) -> None:
        """Show a line, or several."""
        self.show(LineBlock(text, " ".join(styles)))

    def show(self, *blocks: Block) -> None:
        self.view.show(*blocks)
        self.surface.refresh()

    async def send(self, prompt: str, *, shown: str | None = None) -> None:
        """Send a prompt to the model, if there is one, and wait for the end of the run; `shown` is what the screen shows."""
        self.view.start_run(shown if shown is not None else prompt, time.time())
        if not self.has_model:
            self.view.running = False
            problem = model_problem(self.session)
            self.say(NO_MODEL_NOTE if problem == NO_MODEL else f"{problem}. {OTHER_MODEL}")
            return
        content = await self._prompt_content(prompt)
        self._run_ended.clear()
        self.surface.refresh()
        async for _ in self.session.run(content, stream_deltas=False):
            pass  # the subscription shows them
        await self._run_ended.wait()

    async def choose(self, title: str, lines: Sequence[str], options: Sequence[str]) -> int | None:
        """Let the person choose one of several options; None when they leave."""
        choices = [Choice(to_line(option, 300), number) for number, option in enumerate(options)]
        body = [[TextSpan(to_line(line))] for line in lines]
        reply = await self.surface.ask(Inquiry(title, body, choices, stops_run=False))
        return None if reply is None else int(reply[0].value)

    def tell_model(self, text: str) -> None:
        self._notes.append(text)

    async def call(self, name: str, input: Any) -> ToolResult:
        """Call a tool for the person: it never asks, and its output is shown at length.

        The modes that refuse instead of asking are meant for the model. Deny rules hold for the person, too.
        """
        policy = self.session.box.policy
        mode = policy.mode
        token = _by_person.set(True)
        if mode in MODES_FOR_MODELS:
            policy.mode = "default"
        try:
            return await self.session.box.call(name, input)
        finally:
            _by_person.reset(token)
            if mode in MODES_FOR_MODELS and policy.mode == "default":
                policy.mode = mode

    async def resume(self, session_id: str | None) -> None:
        """Switch to another session; None is a new one with the same model."""
        name, url = self.session.model_choice
        same_model = {"model": name, "base_url": url} if session_id is None and name is not None else {}
        session = self._create_session(session_id, **same_model)
        await self.session.aclose()
        await session.__aenter__()
        self._use_session(session)
        self._notes.clear()
        session.box.subscribe(self._on_event)
        if session_id is not None:
            self.show_conversation()

    def show_conversation(self) -> None:
        """Show the conversation of a session that was resumed."""
        from wieldy.faces.terminal.view_model import conversation_blocks

        self.show(*conversation_blocks(self.session.messages, self.view.format, self.session.conversation.errors))
        self.say(f"resumed {self.session.id}: {plural(len(self.session.messages), 'message')}", "dim")

    def paste_image(self, insert: Callable[[str], None]) -> None:
        """Take the image on the clipboard: its path goes into the draft, or a line says why there is none."""
        self._start(self._paste_image(insert))

    async def _paste_image(self, insert: Callable[[str], None]) -> None:
        from wieldy.faces.terminal.desktop import paste_image

        workspace = self.session.box.workspace
        image = await paste_image(state_home(workspace.env) / "images", workspace.env)
        if isinstance(image, str):
            self.say(image)
        else:
            insert(f"'{image}' ")
            self.surface.refresh()

    @property
    def has_model(self) -> bool:
        try:
            return self.session.provider is not None
        except SessionError:
            return False

    # Inside

    def _create_session(self, resume: str | None, **more: Any) -> Session:
        host = HostServices(question_handler=InquiryQuestions(self._ask))
        return self._open_session(ask=self._ask_permission, resume=resume, host=host, **more)

    def _use_session(self, session: Session) -> None:
        self.session = session
        self.view = ViewModel(session.box.catalog.find, session.box.workspace.root)

    async def _on_event(self, event: Event) -> None:
        try:
            self.view.apply(event)
        except Exception as error:  # the run continues, and its end must be noticed
            log.exception("the view failed on %s", event.kind)
            self.say(f"this could not be shown: {event.kind}: {type(error).__name__}: {error}", "red")
        self.notifier.observe(event)
        self.status_command.observe(event)
        if isinstance(event, Steered) and self.steering:
            self.steering.pop(0)
        elif isinstance(event, RunEnded):
            self.queue.extendleft(reversed(event.unsent))
            self.steering.clear()
            self._run_ended.set()
        self.surface.refresh(at_once=isinstance(event, RunEnded))

    async def _work_off(self, text: str) -> None:
        """Handle a line, then those that were queued meanwhile."""
        while True:
            await self._handle(text)
            if self._stopped or not self.queue:
                return
            text = self.queue.popleft()
            self.surface.refresh()

    async def _handle(self, line: str) -> None:
        """Handle one line. A failed command does not end the session."""
        from wieldy.faces.terminal.commands import ExitChat, run_line

        try:
            await run_line(self, line)
        except ExitChat:
            self.queue.clear()
            self.surface.exit()
        except asyncio.CancelledError:
            if not self._stopped:
                raise
            self.say("■ interrupted", "yellow")
        except Exception as error:
            self.say(" ".join(str(error).split()) or type(error).__name__, "red")

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _ask(self, inquiry: Inquiry) -> Reply | None:
        """Ask for a run, which stops when the person leaves the question."""
        reply = await self.surface.ask(inquiry)
        self.notifier.on_activity()
        if reply is None:
            self.stop()
        return reply

    async def _ask_permission(self, question: Question) -> Answer:
        if _by_person.get():
            return Answer(True)
        inquiry = permission_inquiry(question, self.view.format)
        return permission_answer(inquiry, question, await self._ask(inquiry))

    async def _find_named_prompts(self) -> None:
        """List the skills, command files and prompts of servers, for completion."""
        from wieldy.faces.terminal.named_prompts import list_named_prompts

        try:
            await self.session.box.connected(NAMED_PROMPT_SECONDS)
            prompts = await list_named_prompts(self)
        except (WieldyError, OSError):
            return
        self.named_prompts = {usage.partition(" ")[0]: about for usage, about in prompts.items()}

    async def _prompt_content(self, prompt: str) -> Prompt:
        """The prompt with the images that it names, and with what the person did since the last one."""

        blocks: list[dict[str, Any]] = [{"type": "text", "text": prompt}]
        for path in image_paths(prompt, self.session.box.workspace.cwd):
            result = await self.call("Read", {"file_path": path})
            blocks += [block.as_wire() for block in result.content if isinstance(block, Image)]
        notes, self._notes = self._notes, []
        blocks += [{"type": "text", "text": f"<system-reminder>{note}</system-reminder>"} for note in notes]
        return prompt if len(blocks) == 1 else blocks


HINTS = "/help lists the commands · @ names a file · ! runs a command"
SET_UP_MODEL = """There is no model to talk to. /call and ! still run tools. To set one up:
  a key           ANTHROPIC_API_KEY=… wieldy       or OPENAI_API_KEY, …
  a local server  WIELDY_MODEL=ollama/NAME wieldy  or --base-url URL
  neither         wieldy demo                      a recorded session"""
OTHER_MODEL = "/model NAME chooses another model. /call and ! still run tools."


def start_blocks(session: Session) -> list[Block]:
    """Version, model, folder, mode, sandbox and three hints; then what is wrong or waits for the person."""
    from wieldy import __version__

    box = session.box
    rows: list[Row] = [
        (TextSpan("wieldy", "bold"), TextSpan(f" {__version__}", "dim")),
        _row("model", _describe_model(session)),
        _row("folder", _shorten_home(str(box.workspace.root))),
        _row("mode", box.policy.mode),
        _row("sandbox", _describe_sandbox(session)),
    ]
    blocks: list[Block] = [SpansBlock(tuple(rows)), LineBlock(HINTS, "dim")]
    settings = box.settings
    blocks += [LineBlock(str(problem), "red") for problem in (*settings.errors, *settings.warnings, *box.hook_problems)]
    if (problem := model_problem(session)) == NO_MODEL:
        blocks.append(LineBlock(SET_UP_MODEL, gap=True))
    elif problem:
        blocks += [LineBlock(f"The model cannot be used: {problem}", "red", gap=True), LineBlock(OTHER_MODEL)]
    return blocks


def _row(name: str, text: str) -> Row:
    return (TextSpan(f"  {name:<8} ", "dim"), TextSpan(text))


def _describe_model(session: Session) -> str:
    if problem := model_problem(session):
        return "none" if problem == NO_MODEL else f"{session.model_name}, which cannot be used"
    default = session.default_model
    return f"{default.name} ({default.variable} is set)" if default is not None else session.model_name


def model_problem(session: Session) -> str:
    """Why there is no model to talk to; empty where there is one."""
    try:
        _ = session.provider
    except SessionError as error:
        return str(error)
    return ""


def _describe_sandbox(session: Session) -> str:
    setting = session.box.workspace.setting
    if setting("sandbox.enabled") is not True:
        return "off: commands ask first"
    return "on: commands in it need no question" if setting("sandbox.autoAllow") else "on"


def _shorten_home(path: str) -> str:
    home = os.path.expanduser("~")
    return f"~{path[len(home) :]}" if path == home or path.startswith(home + os.sep) else path


async def make_offers(chat: Chat) -> None:
    """Offer what the person has not decided yet: Claude Code's settings, the sandbox. A choice is kept."""
    from wieldy.policy.settings.offers import claude_offer, sandbox_offer

    box = chat.session.box
    try:
        await _make_offer(chat, claude_offer(box.settings, box.workspace.env))
        await _make_offer(chat, await sandbox_offer(box.settings, box.workspace))
    except (WieldyError, OSError) as error:
        chat.say(str(error), "red")


async def _make_offer(chat: Chat, offer: Offer | None) -> None:
    if offer is None or (choice := await chat.choose(offer.question, offer.lines, ("yes", "no"))) is None:
        return
    file = await in_thread(offer.store, choice == 0)
    await chat.session.box.reload()
    chat.say(offer.replies[choice].format(file=_shorten_home(str(file))), "dim")


IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".gif", ".webp")
MAX_IMAGES = 10
# A path as terminals paste a dropped file: quoted, with escaped blanks, or as a URL; and `@path` as it is completed.
_PROMPT_PATH = re.compile(r"""'([^'\n]+)'|"([^"\n]+)"|((?:\\.|[^\s'"\\])+)""")


def image_paths(prompt: str, folder: str) -> list[str]:
    """The images of existing files that a prompt names, as absolute paths, each once."""
    if not any(suffix in prompt.lower() for suffix in IMAGE_SUFFIXES):
        return []
    paths: dict[str, None] = {}
    for match in _PROMPT_PATH.finditer(prompt):
        text = match[1] or match[2] or re.sub(r"\\(.)", r"\1", match[3] or "")
        text = text.removeprefix("@").strip("'\"").rstrip(",;:)?!.")
        if text.startswith("file://"):
            text = unquote(text.removeprefix("file://"))
        if not text.lower().endswith(IMAGE_SUFFIXES):
            continue
        path = os.path.join(folder, os.path.expanduser(text))
        if os.path.isfile(path):
            paths.setdefault(os.path.normpath(path))
    return list(paths)[:MAX_IMAGES]
