"""Names of models as people write them: a bare name finds its provider, and a key in the environment a default model."""

from __future__ import annotations

import re
from collections.abc import Mapping

from msgspec import Struct

# What Claude Code's files call the newest model of a family.
MODEL_ALIASES = {"haiku": "claude-haiku-5-5", "opus": "claude-opus-5-5", "sonnet": "claude-sonnet-5-5"}

# How the names of a provider's own models begin.
_FAMILIES = (
    (re.compile(r"claude-"), "anthropic"),
    (re.compile(r"(?:gpt-|chatgpt-|codex-|o[1-9])"), "openai"),
    (re.compile(r"deepseek-"), "deepseek"),
    (re.compile(r"(?:mistral|ministral|magistral|codestral|devstral|pixtral)-"), "mistral"),
    (re.compile(r"(?:kimi-|moonshot-)"), "moonshot"),
)

# The model that is used when only a key is set, in this order. Others need a name: their catalogs change too often.
DEFAULT_MODELS = (
    ("anthropic", ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"), "claude-sonnet-5-5"),
    ("openai", ("OPENAI_API_KEY",), "gpt-5.5"),
    ("deepseek", ("DEEPSEEK_API_KEY",), "deepseek-chat"),
)


class DefaultModel(Struct, frozen=True):
    """A model that nobody named: `variable` is the key in the environment that speaks for its provider."""

    name: str
    variable: str


def with_provider(name: str) -> str:
    """Return `provider/name` for a bare name of a known family; any other name as it is."""
    if "/" in name or ":" in name.partition("/")[0]:
        return name
    name = MODEL_ALIASES.get(name.lower(), name)
    for pattern, provider in _FAMILIES:
        if pattern.match(name.lower()):
            return f"{provider}/{name}"
    return name


def default_model(env: Mapping[str, str]) -> DefaultModel | None:
    """Return the default model of the first provider whose key is in the environment."""
    for provider, variables, model in DEFAULT_MODELS:
        for variable in variables:
            if env.get(variable):
                return DefaultModel(f"{provider}/{model}", variable)
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
