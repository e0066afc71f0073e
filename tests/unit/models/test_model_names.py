"""A bare name finds its provider; a key in the environment is enough to begin."""

from __future__ import annotations

import pytest

from wieldy import Session
from wieldy.core.errors import SessionError
from wieldy.models.catalog import default_model, find_model, pick, with_provider


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("claude-sonnet-5-5", "anthropic/claude-sonnet-5-5"),
        ("sonnet", "anthropic/claude-sonnet-5-5"),
        ("gpt-5.5", "openai/gpt-5.5"),
        ("o4-mini", "openai/o4-mini"),
        ("deepseek-chat", "deepseek/deepseek-chat"),
        ("kimi-k2", "moonshot/kimi-k2"),
        ("codestral-latest", "mistral/codestral-latest"),
        ("openrouter/anthropic/claude-sonnet-5-5", "openrouter/anthropic/claude-sonnet-5-5"),
        ("qwen3:8b", "qwen3:8b"),
        ("something", "something"),
    ],
)
def test_a_bare_name_finds_its_provider(name: str, expected: str) -> None:
    assert with_provider(name) == expected


def test_a_bare_name_is_enough_to_pick_a_model() -> None:
    provider = pick("claude-sonnet-5-5", base_url=None, env={"ANTHROPIC_API_KEY": "k"})
    assert (provider.name, provider.model) == ("anthropic", "claude-sonnet-5-5")
    with pytest.raises(SessionError, match="no key for openai: set OPENAI_API_KEY"):
        pick("gpt-5.5", base_url=None, env={})


def test_a_name_of_no_family_is_an_error_that_says_how_to_write_it() -> None:
    with pytest.raises(SessionError, match="`something` names no provider: write provider/name"):
        pick("something", base_url=None, env={"ANTHROPIC_API_KEY": "k"})


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ({"ANTHROPIC_API_KEY": "k", "OPENAI_API_KEY": "k"}, "anthropic/claude-sonnet-5-5"),
        ({"OPENAI_API_KEY": "k"}, "openai/gpt-5.5"),
        ({"DEEPSEEK_API_KEY": "k"}, "deepseek/deepseek-chat"),
        ({"ANTHROPIC_API_KEY": ""}, None),
        ({}, None),
    ],
)
def test_a_key_in_the_environment_is_enough(env: dict[str, str], expected: str | None) -> None:
    model = default_model(env)
    assert (model and model.name) == expected
    assert expected is None or find_model(expected) is not None, "its price is known"


def test_a_session_uses_the_model_of_the_key_unless_one_is_named(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("WIELDY_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("WIELDY_MODEL", raising=False)
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    assert Session(tmp_path, settings={}).provider.model.endswith("gpt-5.5")
    assert Session(tmp_path, settings={"model": "openai/gpt-5"}).provider.model.endswith("gpt-5")
    monkeypatch.delenv("OPENAI_API_KEY")
    with pytest.raises(SessionError, match="no model is set"):
        _ = Session(tmp_path, settings={}).provider


def test_a_session_says_which_key_chose_its_model(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("WIELDY_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("WIELDY_MODEL", raising=False)
    monkeypatch.setenv("ANTHROPIC_API_KEY", "k")
    default = Session(tmp_path, settings={}).default_model
    assert default is not None
    assert (default.name, default.variable) == ("anthropic/claude-sonnet-5-5", "ANTHROPIC_API_KEY")
    assert Session(tmp_path, settings={}, model="claude-opus-5-5").default_model is None
    assert Session(tmp_path, settings={"model": "openai/gpt-5"}).default_model is None
