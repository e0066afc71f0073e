"""Which model a kind of sub-agent talks to, where its file names another than the session's."""

from __future__ import annotations

from wieldy.agents.definition import Definition
from wieldy.core.event import Notice
from wieldy.core.failure import SessionError
from wieldy.core.provider import Provider
from wieldy.toolbox import Toolbox

FAMILY = {"haiku": "claude-haiku-5-5", "opus": "claude-opus-5-5", "sonnet": "claude-sonnet-5-5"}


class Models:
    """Picks models for a session whose own was asked for by the name `wanted`, at the address `base_url`."""

    def __init__(self, wanted: tuple[str | None, str | None], box: Toolbox) -> None:
        self._wanted, self._base_url = wanted
        self._box = box

    def of(self, definition: Definition) -> Provider | None:
        """The model that a kind of agent names; None for the session's own.

        A project's file may choose among the models of the session's provider; only the user's own may go to another.
        """
        name = self._name(definition)
        if name is None or name == self._wanted:
            return None
        from wieldy.providers.pick import pick

        try:
            same = name.partition("/")[0] == str(self._wanted).partition("/")[0]
            return pick(name, base_url=self._base_url if same else None, env=self._box.workspace.env)
        except SessionError as why:
            text = f"The agent {definition.name} asks for the model {definition.model}, which cannot be had: {why}"
            self._box.events.emit(Notice(text=text))
            return None

    def _name(self, definition: Definition) -> str | None:
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
