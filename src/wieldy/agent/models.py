"""The models of a session: the main one, the small one for side requests, and those of subagents."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AsyncExitStack

from wieldy.agent.records import SessionHeader
from wieldy.core.errors import SessionError
from wieldy.core.events import Notice
from wieldy.core.option_checks import require_model
from wieldy.core.provider import Provider
from wieldy.engine.toolbox import Toolbox
from wieldy.models.catalog import MODEL_ALIASES, DefaultModel, configured_name, default_model, pick, with_provider
from wieldy.tools.subagents.definitions import AgentDefinition


class SessionModels:
    """Picks the models by name when they are first needed, and closes them with the session."""

    def __init__(
        self,
        box: Toolbox,
        model: str | Provider | None,
        small: str | Provider | None,
        base_url: str | None,
        header: Callable[[], SessionHeader | None] = lambda: None,
        fallback: str | Provider | None = None,
    ) -> None:
        require_model("model", model)
        require_model("small_model", small)
        self._box = box
        self._option = model
        self._small_option = small
        self._fallback_option = fallback
        self._base_url = base_url
        self._header = header  # of the session that is resumed
        self._configured = model
        self._main: Provider | None = None
        self._small: Provider | None = None
        self._replaced: list[Provider] = []

    @property
    def main(self) -> Provider:
        """The model of the conversation. Raises `SessionError` where none can be had."""
        if self._main is None:
            if self._option is not None and not isinstance(self._option, str):
                self._main = self._option
            else:
                model, url = self.name_and_url()
                window = self._box.settings.get("contextWindow")
                self._main = pick(model, base_url=url, env=self._box.workspace.env, context_window=window)
            if self._fallback_option:
                from wieldy.models.catalog import FallbackModel

                self._main = FallbackModel(self._main, self._pick_beside(self._fallback_option, self._main))
        return self._main

    def switch(self, model: str | Provider | None) -> Provider:
        """Replace the main model; None is the configured one. Raises `SessionError` and keeps the old one."""
        before, option = self._main, self._option
        self._main, self._option = None, self._configured if model is None else model
        try:
            provider = self.main
        except SessionError:
            self._main, self._option = before, option
            raise
        if before is not None and before is not provider:
            self._replaced.append(before)  # a request may still be under way
        return provider

    @property
    def name(self) -> str:
        """The name of the main model, as far as it is known."""
        return self._main.model if self._main is not None else str(self._option or "")

    @property
    def has_small(self) -> bool:
        """Whether a small model is configured."""
        return bool(self._small_name())

    def small(self) -> Provider:
        """The small model, or the main one where none is configured. Both of one provider share the base URL."""
        if self._small is None:
            name = self._small_name()
            self._small = self._pick_beside(name, self.main) if name else self.main
        return self._small

    def _pick_beside(self, model: str | Provider, main: Provider) -> Provider:
        """A second model; one of the same provider as the main one has its base URL."""
        if not isinstance(model, str):
            return model
        _, url = self.name_and_url()
        name = model if url else with_provider(model)
        same_provider = name.partition("/")[0] == main.name or "/" not in name
        return pick(name, base_url=url if same_provider else None, env=self._box.workspace.env)

    def name_and_url(self) -> tuple[str | None, str | None]:
        """The configured name of the main model, and its base URL. A resumed session keeps those it had."""
        settings, env = self._box.settings, self._box.workspace.env
        url = self._base_url or settings.get("baseUrl")
        header = self._header()
        if not self._option and header is not None and header.configured:
            return header.configured, self._base_url or header.base_url or None
        if self._option is not None and not isinstance(self._option, str):
            return None, url
        return configured_name(self._option or env.get("WIELDY_MODEL") or settings.get("model"), url, env), url

    def recorded_name_and_url(self) -> tuple[str, str]:
        """What the transcript keeps of `name_and_url`; empty for a model object."""
        name, url = self.name_and_url()
        return name or "", url or "" if name else ""

    @property
    def default(self) -> DefaultModel | None:
        """The default model, where nobody named one and a key in the environment chose it."""
        settings, env = self._box.settings, self._box.workspace.env
        resumed = (header := self._header()) is not None and header.configured
        if self._option or resumed or env.get("WIELDY_MODEL") or settings.get("model") or self.name_and_url()[1]:
            return None
        return default_model(env)

    async def aclose(self) -> None:
        """Close connections."""
        providers = {id(each): each for each in (*self._replaced, self._small, self._main) if each is not None}
        async with AsyncExitStack() as stack:
            for provider in providers.values():
                stack.push_async_callback(provider.aclose)

    def _small_name(self) -> str | Provider | None:
        box = self._box
        return self._small_option or box.workspace.env.get("WIELDY_SMALL_MODEL") or box.settings.get("smallModel")


class SubagentModels:
    """Picks the models of subagents by their definitions, given the name and base URL of the session's model."""

    def __init__(self, name_and_url: tuple[str | None, str | None], box: Toolbox) -> None:
        self._session_model, self._base_url = name_and_url
        self._box = box

    def pick(self, definition: AgentDefinition) -> Provider | None:
        """The model that a definition names; None for the session's own.

        A project's file may choose among the models of the session's provider; only the user's may choose another provider.
        """
        name = self._name(definition)
        if name is None or name == self._session_model:
            return None
        try:
            same_provider = name.partition("/")[0] == str(self._session_model).partition("/")[0]
            return pick(name, base_url=self._base_url if same_provider else None, env=self._box.workspace.env)
        except SessionError as error:
            text = f"The agent {definition.name} asks for the model {definition.model}, which cannot be had: {error}"
            self._box.events.emit(Notice(text=text))
            return None

    def _name(self, definition: AgentDefinition) -> str | None:
        model, session_model = definition.model, self._session_model
        if model is None or session_model is None or "/" not in session_model:
            return None
        provider = session_model.partition("/")[0]
        if "/" not in model:
            if model in MODEL_ALIASES and provider != "anthropic":
                return None
            return f"{provider}/{MODEL_ALIASES.get(model, model)}"
        if model.partition("/")[0] != provider and definition.origin == "project":
            return None
        return model
