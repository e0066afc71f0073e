"""`provider/name` → a model: which API it speaks, at which address, with which key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from wieldy.core.errors import MissingKey, SessionError
from wieldy.core.provider import Provider
from wieldy.models.catalog import PROVIDERS, ProviderRecord, configured_name

if TYPE_CHECKING:
    from wieldy.models.endpoint import HttpModel

NO_MODEL = (
    "no model is set: set a key such as ANTHROPIC_API_KEY or OPENAI_API_KEY, or name a model with --model "
    '(such as ollama/qwen3-coder), with WIELDY_MODEL, or with {"model": "…"} in your settings'
)


def pick(
    model: str | None, *, base_url: str | None, env: Mapping[str, str], context_window: int | None = None
) -> Provider:
    """Make the provider of a model by its name, by `WIELDY_MODEL`, or by the key in the environment. Raises `SessionError`."""
    name = configured_name(model or env.get("WIELDY_MODEL"), base_url, env)
    if not name:
        raise SessionError(NO_MODEL)
    if name.startswith("script:"):
        from wieldy.models.script import Script

        return Script.load(name.removeprefix("script:"))
    provider, slash, rest = name.partition("/")
    if not slash or provider not in PROVIDERS:
        if base_url is None:
            known = ", ".join(PROVIDERS)
            raise SessionError(
                f"`{name}` names no provider: write provider/name with one of {known}, or give --base-url"
            )
        provider, rest = ("anthropic" if "claude" in name else "openai"), name
    if not rest:
        raise SessionError(f"`{name}` names no model: write {provider}/name")
    record = PROVIDERS[provider]
    credential, url = record.credential(env), record.address(env, base_url)
    if credential is None and url == record.url and not record.is_local:
        raise MissingKey(f"no key for {provider}: set {record.key_variable}")
    # None lets the Messages API take its token from the environment; a server without a key of its own gets none.
    api_key = None if credential and credential == record.token_variable else env.get(record.key_variable, "")
    chosen = _model_class(record, url)(rest, api_key=api_key, base_url=url, env=env, context_window=context_window)
    chosen.key_source = credential or "none"
    return chosen


def _model_class(record: ProviderRecord, url: str) -> type[HttpModel]:
    if record.api == "anthropic":
        from wieldy.models.anthropic import Anthropic

        return Anthropic
    if record.api == "responses" or (record.api == "openai" and _is_openai(url)):
        from wieldy.models.openai_responses import OpenAIResponses

        return OpenAIResponses
    from wieldy.models.openai_chat import OpenAIChat

    return OpenAIChat


def _is_openai(url: str) -> bool:
    return (urlsplit(url).hostname or "").lower() == "api.openai.com"
