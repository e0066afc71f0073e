"""A toolbox as the tools of other frameworks. The adapters are above the toolbox, and are found by name."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from wieldy.core.errors import MissingExtra


class FrameworkAdapters:
    """Gives `as_…` methods to a toolbox."""

    def _require_open(self) -> None:
        raise NotImplementedError

    def as_pydantic_ai(self) -> Any:
        """A toolset for pydantic-ai: `Agent(toolsets=[box.as_pydantic_ai()])`. Needs the extra `pydantic-ai`."""
        return self._adapter("adapters.pydantic_ai", "pydantic-ai").WieldyToolset(self)

    def as_pydantic_ai_workspace(self) -> Any:
        """A workspace backend for pydantic-ai: `agent.run(…, workspace=box.as_pydantic_ai_workspace())`."""
        return self._adapter("adapters.pydantic_ai_workspace", "pydantic-ai").WieldyWorkspaceBackend(self)

    def as_openai_agents(self) -> Any:
        """A list of function tools for the OpenAI Agents SDK: `Agent(tools=…)`. Needs the extra `openai-agents`."""
        return self._adapter("adapters.openai_agents", "openai-agents").WieldyFunctionTools(self)

    def as_langchain(self) -> Any:
        """A list of LangChain tools: `create_agent(model, tools=…)`. Needs the extra `langchain`."""
        return self._adapter("adapters.langchain", "langchain").make_tools(self)

    def as_claude_sdk(self, name: str = "wieldy") -> Any:
        """An SDK MCP server for `ClaudeAgentOptions(mcp_servers={name: …})`. Needs the extra `claude-sdk`."""
        return self._adapter("headless.claude_sdk", "claude-sdk").ClaudeSdkServer(self, name)

    def _adapter(self, name: str, extra: str) -> Any:
        self._require_open()
        try:
            return import_module(f"wieldy.faces.{name}")
        except ImportError as error:
            raise MissingExtra(f"{error}; install it with: pip install 'wieldy[{extra}]'") from None
