"""`provider/name` → a model: which API speaks for it, which key, which address."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from wieldy.core.errors import SessionError
from wieldy.core.provider import Provider


class House(Struct, frozen=True):
    """A provider by name: the API it speaks, where it is, and the variable its key is kept in."""

    api: str
    url: str | None
    key: str


HOUSES: Mapping[str, House] = {
    "anthropic": House("anthropic", None, "ANTHROPIC_API_KEY"),
    "openai": House("openai", None, "OPENAI_API_KEY"),
    "deepseek": House("openai", "https://api.deepseek.com/v1", "DEEPSEEK_API_KEY"),
    "siliconflow": House("openai", "https://api.siliconflow.cn/v1", "SILICONFLOW_API_KEY"),
    "moonshot": House("openai", "https://api.moonshot.cn/v1", "MOONSHOT_API_KEY"),
    "mistral": House("openai", "https://api.mistral.ai/v1", "MISTRAL_API_KEY"),
    "openrouter": House("openai", "https://openrouter.ai/api/v1", "OPENROUTER_API_KEY"),
    "groq": House("openai", "https://api.groq.com/openai/v1", "GROQ_API_KEY"),
    "ollama": House("openai", "http://localhost:11434/v1", "OLLAMA_API_KEY"),
    "vllm": House("openai", "http://localhost:8000/v1", "VLLM_API_KEY"),
    "llamacpp": House("openai", "http://localhost:8080/v1", "LLAMACPP_API_KEY"),
}

HOW = (
    "no model is set: say --model anthropic/claude-sonnet-5-5 (or openai/…, ollama/…), set WIELDY_MODEL, "
    'or put {"model": "…"} into your settings'
)


def pick(
    model: str | None, *, base_url: str | None, env: Mapping[str, str], context_window: int | None = None
) -> Provider:
    """The model of a name; its context window as given, else as far as it is known. Raises `SessionError` with the way on."""
    name = model or env.get("WIELDY_MODEL")
    if not name:
        raise SessionError(HOW)
    if name.startswith("script:"):
        from wieldy.providers.script import Script

        return Script.load(name.removeprefix("script:"))
    house_name, slash, rest = name.partition("/")
    if not slash or house_name not in HOUSES:
        if base_url is None:
            known = ", ".join(HOUSES)
            raise SessionError(
                f"`{name}` names no provider: write provider/name with one of {known}, or give --base-url"
            )
        house_name, rest = ("anthropic" if "claude" in name else "openai"), name
    if not rest:
        raise SessionError(f"`{name}` names no model: write {house_name}/name")
    house = HOUSES[house_name]
    key = env.get(house.key)
    url = base_url or env.get(f"{house_name.upper()}_BASE_URL") or house.url
    token = env.get("ANTHROPIC_AUTH_TOKEN") if house_name == "anthropic" else None
    if not key and not token and url == house.url and not (url or "").startswith("http://localhost"):
        raise SessionError(f"no key for {house_name}: set {house.key}")
    return _spoken(house.api, rest, key, url, env, context_window)


def _spoken(
    api: str, model: str, key: str | None, url: str | None, env: Mapping[str, str], window: int | None
) -> Provider:
    from wieldy.providers.http import HttpFailure

    try:
        if api == "anthropic":
            from wieldy.providers.anthropic import Anthropic

            return Anthropic(model, key=key, base_url=url, env=env, context_window=window)
        from wieldy.providers.openai_chat import OpenAI

        return OpenAI(model, key=key, base_url=url, env=env, context_window=window)
    except HttpFailure as failure:
        raise SessionError(str(failure)) from None
