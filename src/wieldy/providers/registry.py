"""`provider/name` → a model: which API it speaks, at which address, with which key."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from wieldy.core.errors import SessionError
from wieldy.core.provider import Provider


class ProviderPreset(Struct, frozen=True):
    """A provider by name: its API, its address, and the environment variable with its key."""

    api: str
    url: str | None
    key: str


PRESETS: Mapping[str, ProviderPreset] = {
    "anthropic": ProviderPreset("anthropic", None, "ANTHROPIC_API_KEY"),
    "openai": ProviderPreset("openai", None, "OPENAI_API_KEY"),
    "deepseek": ProviderPreset("openai", "https://api.deepseek.com/v1", "DEEPSEEK_API_KEY"),
    "siliconflow": ProviderPreset("openai", "https://api.siliconflow.cn/v1", "SILICONFLOW_API_KEY"),
    "moonshot": ProviderPreset("openai", "https://api.moonshot.cn/v1", "MOONSHOT_API_KEY"),
    "mistral": ProviderPreset("openai", "https://api.mistral.ai/v1", "MISTRAL_API_KEY"),
    "openrouter": ProviderPreset("openai", "https://openrouter.ai/api/v1", "OPENROUTER_API_KEY"),
    "groq": ProviderPreset("openai", "https://api.groq.com/openai/v1", "GROQ_API_KEY"),
    "ollama": ProviderPreset("openai", "http://localhost:11434/v1", "OLLAMA_API_KEY"),
    "vllm": ProviderPreset("openai", "http://localhost:8000/v1", "VLLM_API_KEY"),
    "llamacpp": ProviderPreset("openai", "http://localhost:8080/v1", "LLAMACPP_API_KEY"),
}

NO_MODEL = (
    "no model is set: use --model anthropic/claude-sonnet-5-5 (or openai/…, ollama/…), set WIELDY_MODEL, "
    'or put {"model": "…"} into your settings'
)


def pick(
    model: str | None, *, base_url: str | None, env: Mapping[str, str], context_window: int | None = None
) -> Provider:
    """Make the provider of a model by its name, or by `WIELDY_MODEL`. Raises `SessionError`."""
    name = model or env.get("WIELDY_MODEL")
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
    url = base_url or env.get(f"{provider.upper()}_BASE_URL") or preset.url
    token = env.get("ANTHROPIC_AUTH_TOKEN") if provider == "anthropic" else None
    if not key and not token and url == preset.url and not (url or "").startswith("http://localhost"):
        raise SessionError(f"no key for {provider}: set {preset.key}")
    from wieldy.web.http import HttpError

    try:
        if preset.api == "anthropic":
            from wieldy.providers.anthropic import Anthropic

            return Anthropic(rest, key=key, base_url=url, env=env, context_window=context_window)
        from wieldy.providers.openai_chat import OpenAI

        return OpenAI(rest, key=key, base_url=url, env=env, context_window=context_window)
    except HttpError as error:
        raise SessionError(str(error)) from None
