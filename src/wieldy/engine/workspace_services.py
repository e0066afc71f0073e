"""`WorkspaceServices`: what lives as long as a workspace, each made at first use from the collaborators that it names."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from msgspec import Struct

from wieldy.core.events import Event
from wieldy.core.user_questions import QuestionHandler, UserQuestions
from wieldy.core.workspace import Workspace

if TYPE_CHECKING:
    from wieldy.core.provider import CompletionFunction
    from wieldy.files.editing.read_state import ReadState
    from wieldy.files.journal.command_snapshots import CommandSnapshots
    from wieldy.files.journal.journal import Journal
    from wieldy.files.reading.read_file import RecentReads
    from wieldy.mcp.manager import McpServers
    from wieldy.mcp.transport import McpRelay
    from wieldy.policy.permissions.protected_watch import ProtectedFiles
    from wieldy.shell.backends.local import LocalBackend
    from wieldy.shell.running.background import BackgroundShells
    from wieldy.shell.running.session import ShellSession
    from wieldy.shell.sandbox.sandbox import Sandbox
    from wieldy.tools.skills import Skills
    from wieldy.tools.subagents import AgentDefinition, AgentTypes, StartSubagent, SubagentAccess, SubagentRegistry
    from wieldy.tools.todo_write import TodoList
    from wieldy.tools.toolset import Activations, Toolset
    from wieldy.web.browser import BrowserSession
    from wieldy.web.fetch import Fetcher
    from wieldy.web.page import PageCache, Summarizer
    from wieldy.web.proxy import SandboxProxy
    from wieldy.web.search import SearchService, SearchServices

T = TypeVar("T")


class HostServices(Struct, frozen=True, eq=False):
    """What the program around a toolbox brings to its tools. A session adds its models and subagents.

    `question_handler` shows the questions of AskUser and of MCP servers. `summarizer` answers questions about web pages.
    `search_service` returns a web search that comes before those of the settings. `side_model` answers MCP sampling.
    `start_subagent` starts the agents of Agent and Architect. `on_activated` gets the tools that are sent in full from now on.
    `agents` are types of subagents beside those of the files. `mcp_relay` carries messages to the MCP servers of type `sdk`,
    which run inside the program.
    """

    question_handler: QuestionHandler | None = None
    summarizer: Summarizer | None = None
    search_service: Callable[[], SearchService | None] | None = None
    side_model: CompletionFunction | None = None
    start_subagent: StartSubagent | None = None
    subagent_depth: int = 0
    on_activated: Callable[[tuple[str, ...]], None] | None = None
    mcp_relay: McpRelay | None = None
    agents: tuple[AgentDefinition, ...] = ()


class _Service(Generic[T]):
    """An attribute that is made at first use. A subagent has the `own` ones to itself and shares the others of its parent.

    Those `of_root` belong to the folders of a workspace: a subagent with a copy of the project has its own.
    """

    def __init__(self, make: Callable[[WorkspaceServices], T], *, own: bool = False, of_root: bool = False) -> None:
        self._make = make
        self._own = own
        self._of_root = of_root
        self._name = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, services: None, owner: type) -> _Service[T]: ...
    @overload
    def __get__(self, services: WorkspaceServices, owner: type) -> T: ...
    def __get__(self, services: WorkspaceServices | None, owner: type) -> T | _Service[T]:
        if services is None:
            return self
        is_own = self._own or (self._of_root and services.has_own_root)
        if services.parent is not None and not is_own:
            value: T = getattr(services.parent, self._name)
        else:
            value = services.create(self._name, self._make)
        return value


def own(make: Callable[[WorkspaceServices], T]) -> _Service[T]:
    """State of one conversation: never shared with a parent."""
    return _Service(make, own=True)


def shared(make: Callable[[WorkspaceServices], T]) -> _Service[T]:
    """One for a workspace and all subagents in it."""
    return _Service(make)


def shared_root(make: Callable[[WorkspaceServices], T]) -> _Service[T]:
    """One for the folders of a workspace and all subagents that work there, not for those with a copy."""
    return _Service(make, of_root=True)


class WorkspaceServices:
    """The services of one workspace: `workspace.services`. With `parent`, those of a subagent; `has_own_root` if in a copy.

    `make_toolset` builds the tools of requests, `while_asking` is entered while a question waits for the person. Modules
    are imported at first use, because most programs need a few of them.
    """

    def __init__(
        self,
        workspace: Workspace,
        host: HostServices,
        *,
        parent: WorkspaceServices | None = None,
        has_own_root: bool = False,
        make_toolset: Callable[[Workspace, Activations], Toolset] | None = None,
        while_asking: Callable[[str], AbstractAsyncContextManager[object]] = nullcontext,
    ) -> None:
        self.parent = parent
        self.has_own_root = has_own_root
        self._workspace = workspace
        self._host = host
        self._make_toolset = make_toolset
        self._while_asking = while_asking
        self._lock = threading.RLock()  # tools that work in threads ask for services, too
        self._made: list[str] = []

    def create(self, name: str, make: Callable[[WorkspaceServices], T]) -> T:
        """Make a service, once. From then on it is a plain attribute."""
        with self._lock:
            if name not in self.__dict__:
                self.__dict__[name] = make(self)
                self._made.append(name)
            value: T = self.__dict__[name]
            return value

    def existing(self, name: str) -> Any:
        """A service of this conversation that was made already; else None."""
        return self.__dict__.get(name) if name in self._made else None

    async def aclose(self) -> None:
        """Close the services that were made here and can be closed, newest first. Raises the first failure at the end."""
        failure: Exception | None = None
        while self._made:
            service = self.__dict__.pop(self._made.pop())
            close = getattr(service, "aclose", None)
            try:
                if close is not None:
                    await close()
            except Exception as error:
                failure = failure or error
        if failure is not None:
            raise failure

    # Files

    @shared_root
    def journal(self) -> Journal:
        from wieldy.files.journal.journal import Journal

        return Journal(self._workspace)

    @shared_root
    def command_snapshots(self) -> CommandSnapshots:
        from wieldy.files.journal.command_snapshots import CommandSnapshots

        return CommandSnapshots(self._workspace, self.journal)

    @own
    def read_state(self) -> ReadState:
        from wieldy.files.editing.read_state import ReadState

        return ReadState(files=self._workspace.files)

    @own
    def recent_reads(self) -> RecentReads:
        from wieldy.files.reading.read_file import RecentReads

        return RecentReads()

    # Shell

    @shared_root
    def shells(self) -> ShellSession:
        from wieldy.shell.running.session import ShellSession

        self.protected_files  # noqa: B018 - made first, so that it is closed after the last shell has ended
        return ShellSession(self._workspace)

    @shared_root
    def background_shells(self) -> BackgroundShells:
        from wieldy.shell.running.background import BackgroundShells

        return BackgroundShells(self._workspace, self.shells)

    @shared
    def local_backend(self) -> LocalBackend:
        from wieldy.shell.backends.local import LocalBackend

        return LocalBackend()

    @shared_root
    def sandbox(self) -> Sandbox:
        from wieldy.shell.sandbox.sandbox import Sandbox

        return Sandbox(self._workspace, lambda: self.sandbox_proxy)

    @shared_root
    def protected_files(self) -> ProtectedFiles:
        from wieldy.policy.permissions.protected_watch import ProtectedFiles

        return ProtectedFiles(self._workspace)

    @shared
    def sandbox_proxy(self) -> SandboxProxy:
        from wieldy.web.proxy import SandboxProxy

        return SandboxProxy(self._workspace, self.fetcher)

    # Web

    @shared
    def fetcher(self) -> Fetcher:
        from wieldy.web.fetch import Fetcher

        return Fetcher(self._workspace)

    @shared
    def page_cache(self) -> PageCache:
        from wieldy.web.page import PageCache

        return PageCache()

    @shared
    def summarizer(self) -> Summarizer | None:
        return self._host.summarizer

    @shared
    def search_services(self) -> SearchServices:
        from wieldy.web.search import SearchServices

        return SearchServices(self._workspace, lambda: self.fetcher, self._host.search_service)

    @shared
    def browser(self) -> BrowserSession:
        from wieldy.web.browser import BrowserSession

        return BrowserSession(self._workspace, self.fetcher)

    # Tools of a conversation

    @own
    def toolset(self) -> Toolset:
        assert self._make_toolset is not None, "this workspace has no toolbox"
        return self._make_toolset(self._workspace, self.activations)

    @own
    def activations(self) -> Activations:
        from wieldy.tools.toolset import Activations

        return Activations(self._host.on_activated)

    @own
    def todo_list(self) -> TodoList:
        from wieldy.tools.todo_write import TodoList

        return TodoList()

    @shared
    def skills(self) -> Skills:
        from wieldy.tools.skills import Skills

        return Skills(self._workspace)

    @shared
    def mcp_servers(self) -> McpServers:
        from wieldy.mcp.manager import McpServers

        return McpServers(self._workspace, self.user_questions, self.side_model, self._host.mcp_relay)

    # People, models, subagents

    @shared
    def user_questions(self) -> UserQuestions:
        return UserQuestions(self._host.question_handler, while_waiting=self._while_asking)

    @shared
    def side_model(self) -> CompletionFunction | None:
        return self._host.side_model

    @shared
    def agent_types(self) -> AgentTypes:
        from wieldy.tools.subagents import AgentTypes

        return AgentTypes(self._workspace, self._host.agents)

    @shared
    def subagent_registry(self) -> SubagentRegistry:
        from wieldy.tools.subagents import SubagentRegistry

        return SubagentRegistry(self._workspace)

    @own
    def subagent_access(self) -> SubagentAccess:
        from wieldy.tools.subagents import SubagentAccess

        host = self._host
        return SubagentAccess(self._workspace, start=host.start_subagent, depth=host.subagent_depth)


def open_workspace(
    root: str | os.PathLike[str],
    *,
    session_dir: str | os.PathLike[str],
    settings: Mapping[str, Any] | None = None,
    extra_roots: tuple[str, ...] = (),
    env: Mapping[str, str] | None = None,
    emit: Callable[[Event], None] = lambda event: None,
    host: HostServices | None = None,
) -> Workspace:
    """A workspace with services and without a toolbox, for code that uses them directly."""
    return Workspace(
        root,
        session_dir=session_dir,
        settings=settings,
        extra_roots=extra_roots,
        env=env,
        emit=emit,
        services=lambda workspace: WorkspaceServices(workspace, host or HostServices()),
    )
