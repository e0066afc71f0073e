"""What can be read of a session at any time, and what can be changed between two requests: its mode and its model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from wieldy.agent.loop import AgentLoop
from wieldy.agent.models import SessionModels
from wieldy.agent.records import ModelChanged, QuestionDeferred
from wieldy.agent.runs import SessionRuns
from wieldy.agent.session_setup import SessionSetup
from wieldy.agent.transcript import Conversation, Transcript
from wieldy.agent.transcript_store import EarlierSession
from wieldy.core.provider import Provider, ToolSpec
from wieldy.engine.toolbox import Toolbox

if TYPE_CHECKING:
    from wieldy.models.catalog import DefaultModel


class SessionState:
    """The part of a session that runs nothing: its conversation, its model and mode, the tools it offers."""

    box: Toolbox
    transcript: Transcript
    _models: SessionModels
    _setup: SessionSetup
    _runs: SessionRuns
    _loop: AgentLoop | None
    _earlier: EarlierSession | None

    @property
    def id(self) -> str:
        """The id to resume this session by."""
        return self.box.id

    @property
    def conversation(self) -> Conversation:
        return self.transcript.conversation

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The conversation in the form of the Anthropic Messages API."""
        return [message.as_dict() for message in self.conversation.copy().settle()]

    @property
    def provider(self) -> Provider:
        """The model in use. Raises `SessionError` where none can be had."""
        return self._models.main

    @property
    def model_choice(self) -> tuple[str | None, str | None]:
        """The model as it is configured, with its provider, and its base URL; None for a model object."""
        return self._models.name_and_url()

    @property
    def default_model(self) -> DefaultModel | None:
        """The model in use, where nobody named one and a key in the environment chose it."""
        return self._models.default

    @property
    def model_name(self) -> str:
        """The name of the model, as far as it is known."""
        return self._models.name

    @property
    def running(self) -> bool:
        return self._runs.running

    @property
    def ready(self) -> bool:
        """Whether the session has a model and knows its tools."""
        return self._loop is not None

    @property
    def offered(self) -> list[str]:
        """The tools the model is offered, once the session is ready."""
        return [offer.name for offer in self._setup.prefix.offers]

    @property
    def tool_specs(self) -> tuple[ToolSpec, ...]:
        """The definitions of the tools that the model is offered, once the session is ready."""
        return self._setup.prefix.offers

    @property
    def system_prompt(self) -> tuple[str, ...]:
        """The parts of the system prompt, once the session is ready."""
        return self._setup.prefix.system

    @property
    def pending(self) -> list[QuestionDeferred]:
        """The questions that are still to be answered, each with its `id` and `as_dict()`."""
        return self.conversation.open_questions() if self._earlier is None else self._earlier.pending()

    @property
    def mode(self) -> str:
        """The permission mode. Setting it counts from the next call on; an unknown or disabled one raises `ValueError`."""
        return self.box.mode

    @mode.setter
    def mode(self, name: str) -> None:
        self.box.mode = name

    def set_model(self, model: str | Provider | None) -> None:
        """Use another model from the next request on; None is the configured one. Raises `SessionError`."""
        provider = self._models.switch(model)
        if self._loop is not None:
            self._loop.switch(provider, ModelChanged(provider.model, *self._models.recorded_name_and_url()))
