"""`provider/name` → a model: which API it speaks, at which address, with which key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal
from urllib.parse import urlsplit

from msgspec import Struct

from wieldy.core.errors import MissingKey, SessionError
from wieldy.core.provider import Provider
from wieldy.providers.model_names import configured_name

if TYPE_CHECKING:
    from wieldy.providers.endpoint import HttpModel


class ProviderPreset(Struct, frozen=True):
    """A provider by name: its API, its address, and the environment variable with its key.

    The API `openai` is Responses at OpenAI's own address and Chat Completions, which more servers have, at any other.
    """

    api: Literal["anthropic", "openai", "responses", "chat"]
    url: str | None
    key: str


PRESETS: Mapping[str, ProviderPreset] = {
    "anthropic": ProviderPreset("anthropic", None, "ANTHROPIC_API_KEY"),
    "openai": ProviderPreset("openai", None, "OPENAI_API_KEY"),
    "openai-responses": ProviderPreset("responses", None, "OPENAI_API_KEY"),
    "openai-chat": ProviderPreset("chat", None, "OPENAI_API_KEY"),
    "deepseek": ProviderPreset("chat", "https://api.deepseek.com/v1", "DEEPSEEK_API_KEY"),
    "siliconflow": ProviderPreset("chat", "https://api.siliconflow.cn/v1", "SILICONFLOW_API_KEY"),
    "moonshot": ProviderPreset("chat", "https://api.moonshot.cn/v1", "MOONSHOT_API_KEY"),
    "mistral": ProviderPreset("chat", "https://api.mistral.ai/v1", "MISTRAL_API_KEY"),
    "openrouter": ProviderPreset("chat", "https://openrouter.ai/api/v1", "OPENROUTER_API_KEY"),
    "groq": ProviderPreset("chat", "https://api.groq.com/openai/v1", "GROQ_API_KEY"),
    "ollama": ProviderPreset("chat", "http://localhost:11434/v1", "OLLAMA_API_KEY"),
    "vllm": ProviderPreset("chat", "http://localhost:8000/v1", "VLLM_API_KEY"),
    "lmstudio": ProviderPreset("chat", "http://localhost:1234/v1", "LMSTUDIO_API_KEY"),
    "llamacpp": ProviderPreset("chat", "http://localhost:8080/v1", "LLAMACPP_API_KEY"),
}

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
        from wieldy.providers.script import Script

        return Script.load(name.removeprefix("script:"))
    provider, slash, rest = name.partition("/")
    if not slash or provider not in PRESETS:
        if base_url is None:
            known = ", ".join(PRESETS)
            raise SessionError(
                f"`{name}` names no provider: write provider/name with one of {known}, or give --base-url"
            )
        provider, rest = ("anthropic" if "claude" in name else "openai"), name
    if not rest:
        raise SessionError(f"`{name}` names no model: write {provider}/name")
    preset = PRESETS[provider]
    key = env.get(preset.key)
    url = base_url or env.get(f"{preset.key.removesuffix('_API_KEY')}_BASE_URL") or preset.url
    token = env.get("ANTHROPIC_AUTH_TOKEN") if provider == "anthropic" else None
    if not key and not token and url == preset.url and not (url or "").startswith("http://localhost"):
        raise MissingKey(f"no key for {provider}: set {preset.key}")
    # None lets the Messages API take its token from the environment; a server without a key of its own gets none.
    api_key = key or (None if token else "")
    chosen = _model_class(preset, url)(rest, api_key=api_key, base_url=url, env=env, context_window=context_window)
    chosen.key_source = preset.key if key else "ANTHROPIC_AUTH_TOKEN" if token else "none"
    return chosen


def _model_class(preset: ProviderPreset, url: str | None) -> type[HttpModel]:
    if preset.api == "anthropic":
        from wieldy.providers.anthropic import Anthropic

        return Anthropic
    if preset.api == "responses" or (preset.api == "openai" and _is_openai(url)):
        from wieldy.providers.openai_responses import OpenAIResponses

        return OpenAIResponses
    from wieldy.providers.openai_chat import OpenAIChat

    return OpenAIChat


def _is_openai(url: str | None) -> bool:
    return url is None or (urlsplit(url).hostname or "").lower() == "api.openai.com"


def model_environment(env: Mapping[str, str]) -> dict[str, str]:
    """What a session on another machine needs of an environment: keys and addresses of models, and our own variables."""
    names = {preset.key for preset in PRESETS.values()} | {f"{name.upper()}_BASE_URL" for name in PRESETS}
    names.add("ANTHROPIC_AUTH_TOKEN")
    return {name: value for name, value in env.items() if name in names or name.startswith("WIELDY_")}
