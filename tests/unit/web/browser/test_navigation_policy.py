from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from wieldy import Toolbox
from wieldy.web.browser import NavigationPolicy
from wieldy.web.url import parse_url

SHOP, BANK, ADS = (parse_url(f"https://{name}.example/") for name in ("shop", "bank", "ads"))


def policy_for(root: Path, mode: str = "default", **rules: list[str]) -> NavigationPolicy:
    settings: dict[str, Any] = {"permissions": rules}
    policy = NavigationPolicy()
    policy.judge = Toolbox(root, mode=mode, settings=settings).policy
    return policy


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WIELDY_HOME", str(tmp_path / "home"))


def test_a_page_is_shown_where_somebody_permitted_its_host(tmp_path: Path) -> None:
    policy = policy_for(tmp_path)
    assert "talks to shop.example" in str(policy.page_refusal(SHOP))
    policy.allow(SHOP)
    assert policy.page_refusal(SHOP) is None
    assert policy.page_refusal(BANK) is not None


def test_rules_for_fetching_hold_for_pages(tmp_path: Path) -> None:
    policy = policy_for(tmp_path, allow=["WebFetch(domain:shop.example)"], deny=["WebFetch(domain:ads.example)"])
    assert policy.page_refusal(SHOP) is None
    assert policy.load_refusal(BANK) is None
    assert "ads.example" in str(policy.load_refusal(ADS))


def test_a_deny_rule_is_stronger_than_a_permission_and_every_mode(tmp_path: Path) -> None:
    policy = policy_for(tmp_path, "bypassPermissions", deny=["WebFetch(domain:ads.example)"])
    policy.allow(ADS)
    assert policy.page_refusal(ADS) is not None
    assert policy.page_refusal(BANK) is None


def test_where_nobody_is_asked_pages_still_load_what_they_are_made_of(tmp_path: Path) -> None:
    policy = policy_for(tmp_path, "dontAsk", allow=["WebFetch(domain:shop.example)"])
    assert policy.page_refusal(SHOP) is None
    assert policy.page_refusal(BANK) is not None
    assert policy.load_refusal(BANK) is None


def test_without_a_judge_nothing_is_shown() -> None:
    assert NavigationPolicy().page_refusal(SHOP) is not None
