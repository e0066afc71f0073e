"""The providers wieldy knows, one record each, and how a model is made from its name."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Literal, TypeAlias
from urllib.parse import urlsplit

from msgspec import Struct

from wieldy.core.errors import MissingKey, SessionError
from wieldy.core.provider import Delta, Provider, ProviderFailure, Request, Usage
from wieldy.core.text import did_you_mean

if TYPE_CHECKING:
    from wieldy.models.http import HttpModel


MILLION = 1_000_000

Thinking: TypeAlias = Literal["budget", "adaptive", "always"]
"""Whether a model thinks within a token budget, adaptively on request, or adaptively by default."""


class Price(Struct, frozen=True):
    """Dollars per million tokens."""

    input: float
    output: float
    cache_read: float
    cache_write: float


class ModelInfo(Struct, frozen=True):
    """One model or a family. A request whose prompt is longer than `long_prompt_tokens` costs `long_prompt_price`."""

    price: Price
    context_window: int
    thinking: Thinking = "budget"
    long_prompt_tokens: int = 0
    long_prompt_price: Price | None = None

    def price_of(self, prompt_tokens: int) -> Price:
        if self.long_prompt_price is not None and prompt_tokens > self.long_prompt_tokens:
            return self.long_prompt_price
        return self.price


def _claude(input: float, output: float, read: float = 0.1) -> Price:
    return Price(input, output, input * read, input * 1.25)


def _cached(input: float, output: float, cache_read: float) -> Price:
    return Price(input, output, cache_read, input)


_FABLE_1 = ModelInfo(_claude(10, 50, 0.025), MILLION, "always")
_FABLE = ModelInfo(_claude(10, 50), MILLION, "always")
_OPUS = _claude(5, 25)
_OLD_OPUS = ModelInfo(_claude(15, 75), 200_000)
_SONNET_5 = ModelInfo(_claude(2, 10), MILLION, "always")
_SONNET = ModelInfo(_claude(3, 15), 200_000)
_DEEPSEEK_3 = ModelInfo(_cached(0.28, 0.42, 0.028), 128_000)


class ProviderRecord(Struct, frozen=True):
    """One provider. `families` matches how the names of its own models begin; `models` is by prefix, the longest match wins.

    The API `openai` is Responses at OpenAI's own address and Chat Completions, which more servers have, at any other. A key in
    the environment is enough to begin where there is a `default` model; the catalogs of the others change too often.
    """

    name: str
    api: Literal["anthropic", "openai", "responses", "chat"]
    url: str
    key_variable: str
    token_variable: str | None = None
    families: str = ""
    default: str | None = None
    aliases: Mapping[str, str] = {}
    models: Mapping[str, ModelInfo] = {}

    @property
    def address_variable(self) -> str:
        """The variable of the environment with another address."""
        return f"{self.key_variable.removesuffix('_API_KEY')}_BASE_URL"

    @property
    def is_local(self) -> bool:
        return self.url.startswith("http://localhost")

    def address(self, env: Mapping[str, str], base_url: str | None = None) -> str:
        """The address to use: the given one, that of the environment, or the provider's own."""
        return base_url or env.get(self.address_variable) or self.url

    def credential(self, env: Mapping[str, str]) -> str | None:
        """The name of the variable of the environment that holds the key or token."""
        return next((name for name in (self.key_variable, self.token_variable) if name and env.get(name)), None)


_ANTHROPIC = ProviderRecord(
    "anthropic",
    "anthropic",
    "https://api.anthropic.com",
    "ANTHROPIC_API_KEY",
    token_variable="ANTHROPIC_AUTH_TOKEN",
    families="claude-",
    default="claude-sonnet-5-5",
    # What Claude Code's files call the newest model of a family.
    aliases={"haiku": "claude-haiku-5-5", "opus": "claude-opus-5-5", "sonnet": "claude-sonnet-5-5"},
    models={
        "claude-fable-5-1": _FABLE_1,
        "claude-mythos-5-1": _FABLE_1,
        "claude-fable-5": _FABLE,
        "claude-mythos-5": _FABLE,
        "claude-opus-5-5": ModelInfo(_claude(4, 20, 0.05), MILLION, "always"),
        "claude-opus-5": ModelInfo(_OPUS, MILLION, "always"),
        "claude-opus-4-8": ModelInfo(_OPUS, MILLION, "adaptive"),
        "claude-opus-4-7": ModelInfo(_OPUS, MILLION, "adaptive"),
        "claude-opus-4-6": ModelInfo(_OPUS, 200_000, "adaptive"),
        "claude-opus-4-5": ModelInfo(_OPUS, 200_000),
        "claude-opus-4": _OLD_OPUS,
        "claude-sonnet-5-5": _SONNET_5,
        "claude-sonnet-5": _SONNET_5,
        "claude-sonnet-4-6": ModelInfo(_claude(3, 15), 200_000, "adaptive"),
        "claude-sonnet-4": _SONNET,
        "claude-3-7-sonnet": _SONNET,
        "claude-3-5-sonnet": _SONNET,
        "claude-haiku-5-5": ModelInfo(_claude(0.1, 0.5), MILLION, "always", 100_000, _claude(0.5, 2.5)),
        "claude-haiku-4-5": ModelInfo(_claude(1, 5), 200_000),
        "claude-3-5-haiku": ModelInfo(_claude(0.8, 4), 200_000),
    },
)
_OPENAI_URL = "https://api.openai.com/v1"
_OPENAI = ProviderRecord(
    "openai",
    "openai",
    _OPENAI_URL,
    "OPENAI_API_KEY",
    families="gpt-|chatgpt-|codex-|o[1-9]",
    default="gpt-5.5",
    models={
        "gpt-5.5": ModelInfo(_cached(5, 30, 0.5), 272_000),
        "gpt-5.4": ModelInfo(_cached(2.5, 15, 0.25), 272_000),
        "gpt-5.4-mini": ModelInfo(_cached(0.75, 4.5, 0.075), 272_000),
        "gpt-5.4-nano": ModelInfo(_cached(0.2, 1.25, 0.02), 272_000),
        "gpt-5": ModelInfo(_cached(1.25, 10, 0.125), 272_000),
        "gpt-5-mini": ModelInfo(_cached(0.25, 2, 0.025), 272_000),
        "gpt-5-nano": ModelInfo(_cached(0.05, 0.4, 0.005), 272_000),
        "gpt-4.1": ModelInfo(_cached(2, 8, 0.5), MILLION),
        "gpt-4.1-mini": ModelInfo(_cached(0.4, 1.6, 0.1), MILLION),
        "gpt-4.1-nano": ModelInfo(_cached(0.1, 0.4, 0.025), MILLION),
        "gpt-4o": ModelInfo(_cached(2.5, 10, 1.25), 128_000),
        "gpt-4o-mini": ModelInfo(_cached(0.15, 0.6, 0.075), 128_000),
        "o3": ModelInfo(_cached(2, 8, 0.5), 200_000),
        "o4-mini": ModelInfo(_cached(1.1, 4.4, 0.275), 200_000),
    },
)
_DEEPSEEK = ProviderRecord(
    "deepseek",
    "chat",
    "https://api.deepseek.com/v1",
    "DEEPSEEK_API_KEY",
    families="deepseek-",
    default="deepseek-chat",
    models={"deepseek-chat": _DEEPSEEK_3, "deepseek-reasoner": _DEEPSEEK_3},
)

# The first whose key is in the environment gives the default model.
_ALL = (
    _ANTHROPIC,
    _OPENAI,
    ProviderRecord("openai-responses", "responses", _OPENAI_URL, "OPENAI_API_KEY"),
    ProviderRecord("openai-chat", "chat", _OPENAI_URL, "OPENAI_API_KEY"),
    _DEEPSEEK,
    ProviderRecord("siliconflow", "chat", "https://api.siliconflow.cn/v1", "SILICONFLOW_API_KEY"),
    ProviderRecord("moonshot", "chat", "https://api.moonshot.cn/v1", "MOONSHOT_API_KEY", families="kimi-|moonshot-"),
    ProviderRecord(
        "mistral",
        "chat",
        "https://api.mistral.ai/v1",
        "MISTRAL_API_KEY",
        families="(?:mistral|ministral|magistral|codestral|devstral|pixtral)-",
    ),
    ProviderRecord("openrouter", "chat", "https://openrouter.ai/api/v1", "OPENROUTER_API_KEY"),
    ProviderRecord("groq", "chat", "https://api.groq.com/openai/v1", "GROQ_API_KEY"),
    ProviderRecord("ollama", "chat", "http://localhost:11434/v1", "OLLAMA_API_KEY"),
    ProviderRecord("vllm", "chat", "http://localhost:8000/v1", "VLLM_API_KEY"),
    ProviderRecord("lmstudio", "chat", "http://localhost:1234/v1", "LMSTUDIO_API_KEY"),
    ProviderRecord("llamacpp", "chat", "http://localhost:8080/v1", "LLAMACPP_API_KEY"),
)
PROVIDERS: Mapping[str, ProviderRecord] = {record.name: record for record in _ALL}
MODEL_ALIASES: Mapping[str, str] = {alias: model for record in _ALL for alias, model in record.aliases.items()}
MODELS: Mapping[str, ModelInfo] = {prefix: info for record in _ALL for prefix, info in record.models.items()}
# Models with other prices whose names begin like a listed one.
UNKNOWN = ("gpt-5-pro", "gpt-5.4-pro", "gpt-5.5-pro", "o3-pro", "o3-deep-research", "gpt-4o-audio", "gpt-4o-realtime")


@lru_cache(maxsize=64)
def find_model(model: str) -> ModelInfo | None:
    """Look a model up by name; a prefix such as `anthropic/` is ignored."""
    name = model.rpartition("/")[2].lower()
    if name.startswith(UNKNOWN):
        return None
    matches = [key for key in MODELS if name == key or name.startswith((f"{key}-", f"{key}@", f"{key}:"))]
    return MODELS[max(matches, key=len)] if matches else None


def cost(model: str, usage: Usage, prices: object = None) -> float | None:
    """The cost in dollars, by the setting `prices` or the list prices; None where the price is unknown."""
    price = _configured_price(model, prices)
    if price is None:
        info = find_model(model)
        if info is None:
            return None
        price = info.price_of(usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens)
    return (
        usage.input_tokens * price.input
        + usage.output_tokens * price.output
        + usage.cache_read_tokens * price.cache_read
        + usage.cache_write_tokens * price.cache_write
    ) / MILLION


def unpriced(model: str, prices: object = None) -> str:
    """Return the name of a model whose price is unknown; empty for any other, and for a recorded one, which costs nothing."""
    is_known = find_model(model) is not None or _configured_price(model, prices) is not None
    return "" if is_known or model.partition(":")[0] == "script" else model


def _configured_price(model: str, prices: object) -> Price | None:
    """The price of the setting `prices` for a model; a prefix such as `anthropic/` is ignored."""
    name = model.rpartition("/")[2].lower()
    for key, price in prices.items() if isinstance(prices, Mapping) else ():
        if key.rpartition("/")[2].lower() == name:
            input = price["input"]
            return Price(input, price["output"], price.get("cacheRead", input), price.get("cacheWrite", input))
    return None


class DefaultModel(Struct, frozen=True):
    """A model chosen by a key in the environment, which `variable` names."""

    name: str
    variable: str


def with_provider(name: str) -> str:
    """Return `provider/name` for a bare name of a known family; any other name as it is."""
    if "/" in name or ":" in name.partition("/")[0]:
        return name
    name = MODEL_ALIASES.get(name.lower(), name)
    for record in _ALL:
        if record.families and re.match(record.families, name.lower()):
            return f"{record.name}/{name}"
    return name


def default_model(env: Mapping[str, str]) -> DefaultModel | None:
    """Return the default model of the first provider whose key is in the environment."""
    for record in _ALL:
        if record.default and (variable := record.credential(env)):
            return DefaultModel(f"{record.name}/{record.default}", variable)
    return None


def describe_choice(env: Mapping[str, str], setting: str | None, origin: str) -> tuple[str | None, str]:
    """Return the model of a session without `--model`, and what chose it; None where nothing does."""
    if named := env.get("WIELDY_MODEL"):
        return with_provider(named), "WIELDY_MODEL"
    if setting:
        return with_provider(setting), origin
    default = default_model(env)
    return (default.name, f"{default.variable} is set") if default is not None else (None, "")


def configured_name(name: str | None, base_url: str | None, env: Mapping[str, str]) -> str | None:
    """Return the name to use: with its provider, or of the default model. With a base URL a name stays as it is."""
    if base_url is not None:
        return name
    if name:
        return with_provider(name)
    default = default_model(env)
    return default.name if default is not None else None


def model_environment(env: Mapping[str, str]) -> dict[str, str]:
    """What a session on another machine needs of an environment: keys and addresses of models, and our own variables."""
    names = {variable for each in _ALL for variable in (each.key_variable, each.token_variable, each.address_variable)}
    return {name: value for name, value in env.items() if name in names or name.startswith("WIELDY_")}


TAKE_OVER = frozenset({"overloaded", "rate", "refused", "model"})


class FallbackModel:
    """Sends each request to the first model that answers: the next one takes over while one is overloaded or cannot be reached.

    A failure after the first piece of an answer is that of the request. `model` is the one that answered last.
    """

    def __init__(self, *models: Provider) -> None:
        self._models = models
        self.name = models[0].name
        self.model = models[0].model
        self.key_source = getattr(models[0], "key_source", "none")
        self.context_window = min(model.context_window for model in models)

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[AsyncIterator[Delta]]:
        """Send a request and stream its deltas. Raises `ProviderFailure` of the last model."""
        for model in self._models:
            async with AsyncExitStack() as attempt:
                try:
                    deltas = await attempt.enter_async_context(model.stream(request))
                    first = await anext(aiter(deltas), None)
                except ProviderFailure as failure:
                    if failure.kind not in TAKE_OVER or model is self._models[-1]:
                        raise
                    continue
                self.model = model.model
                yield _prepend(first, deltas)
                return

    async def aclose(self) -> None:
        for model in self._models:
            await model.aclose()


async def _prepend(first: Delta | None, rest: AsyncIterator[Delta]) -> AsyncIterator[Delta]:
    try:
        if first is not None:
            yield first
        async for delta in rest:
            yield delta
    finally:
        await rest.aclose()  # type: ignore[attr-defined]


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
            hint = did_you_mean(provider, PROVIDERS) if slash else ""
            way = f"{hint} Write" if hint else ": write"
            raise SessionError(f"`{name}` names no provider{way} provider/name with one of {known}, or give --base-url")
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
