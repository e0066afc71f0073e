"""The models a session talks to: the one it works with, and the small one it asks in passing."""

from __future__ import annotations

from wieldy.core.errors import SessionError
from wieldy.core.events import Notice
from wieldy.core.provider import Provider
from wieldy.subagents.definitions import AgentDefinition
from wieldy.toolbox import Toolbox


class SessionModels:
    """Picked by name when they are first needed, and closed with the session where they were picked here."""

    def __init__(
        self, box: Toolbox, model: str | Provider | None, small: str | Provider | None, base_url: str | None
    ) -> None:
        self._box = box
        self._wanted = model
        self._small_wanted = small
        self._base_url = base_url
        self._large: Provider | None = None
        self._small: Provider | None = None

    @property
    def large(self) -> Provider:
        """The model in use. Raises `SessionError` where none can be had."""
        if self._large is None:
            self._large = self._picked()
        return self._large

    @property
    def name(self) -> str:
        """What the model is called, as far as that is known."""
        return self._large.model if self._large is not None else str(self._wanted or "")

    @property
    def has_small(self) -> bool:
        """Whether a small model is named."""
        return bool(self._small_named())

    def small(self) -> Provider:
        """The small model, at the address of the large one where both are of one house; the large one where none is named."""
        if self._small is None:
            self._small = self._picked_small()
        return self._small

    def named(self) -> tuple[str | None, str | None]:
        """The name by which the model is asked for, and the address it is asked for at."""
        settings, env = self._box.settings, self._box.workspace.env
        url = self._base_url or settings.get("baseUrl")
        if self._wanted is not None and not isinstance(self._wanted, str):
            return None, url
        return self._wanted or env.get("WIELDY_MODEL") or settings.get("model"), url

    async def aclose(self) -> None:
        """Let go of connections."""
        for provider in {id(each): each for each in (self._large, self._small) if each is not None}.values():
            await provider.aclose()

    def _picked(self) -> Provider:
        if self._wanted is not None and not isinstance(self._wanted, str):
            return self._wanted
        from wieldy.providers.registry import pick

        model, url = self.named()
        window = self._box.settings.get("contextWindow")
        return pick(model, base_url=url, env=self._box.workspace.env, context_window=window)

    def _picked_small(self) -> Provider:
        name = self._small_named()
        if not name:
            return self.large
        if not isinstance(name, str):
            return name
        from wieldy.providers.registry import pick

        _, url = self.named()
        same = name.partition("/")[0] == self.large.name or "/" not in name
        return pick(name, base_url=url if same else None, env=self._box.workspace.env)

    def _small_named(self) -> str | Provider | None:
        box = self._box
        return self._small_wanted or box.workspace.env.get("WIELDY_SMALL_MODEL") or box.settings.get("smallModel")


FAMILY = {"haiku": "claude-haiku-5-5", "opus": "claude-opus-5-5", "sonnet": "claude-sonnet-5-5"}


class SubagentModels:
    """Picks models for a session whose own was asked for by the name `wanted`, at the address `base_url`."""

    def __init__(self, wanted: tuple[str | None, str | None], box: Toolbox) -> None:
        self._wanted, self._base_url = wanted
        self._box = box

    def of(self, definition: AgentDefinition) -> Provider | None:
        """The model that a kind of agent names; None for the session's own.

        A project's file may choose among the models of the session's provider; only the user's own may go to another.
        """
        name = self._name(definition)
        if name is None or name == self._wanted:
            return None
        from wieldy.providers.registry import pick

        try:
            same = name.partition("/")[0] == str(self._wanted).partition("/")[0]
            return pick(name, base_url=self._base_url if same else None, env=self._box.workspace.env)
        except SessionError as why:
            text = f"The agent {definition.name} asks for the model {definition.model}, which cannot be had: {why}"
            self._box.events.emit(Notice(text=text))
            return None

    def _name(self, definition: AgentDefinition) -> str | None:
        asked, own = definition.model, self._wanted
        if asked is None or own is None or "/" not in own:
            return None
        house = own.partition("/")[0]
        if "/" not in asked:
            if asked in FAMILY and house != "anthropic":
                return None
            return f"{house}/{FAMILY.get(asked, asked)}"
        if asked.partition("/")[0] != house and definition.origin == "project":
            return None
        return asked
