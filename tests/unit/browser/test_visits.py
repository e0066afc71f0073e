from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from wieldy import Toolbox
from wieldy.browser.network import Visits
from wieldy.web.address import parse_address

SHOP, BANK, ADS = (parse_address(f"https://{name}.example/") for name in ("shop", "bank", "ads"))


def visits(root: Path, mode: str = "default", **rules: list[str]) -> Visits:
    settings: dict[str, Any] = {"permissions": rules}
    made = Visits()
    made.judge = Toolbox(root, mode=mode, settings=settings).policy
    return made


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WIELDY_HOME", str(tmp_path / "home"))


def test_a_page_is_shown_where_somebody_permitted_its_host(tmp_path: Path) -> None:
    made = visits(tmp_path)
    assert "talks to shop.example" in str(made.refused(SHOP))
    made.permit(SHOP)
    assert made.refused(SHOP) is None
    assert made.refused(BANK) is not None


def test_rules_for_fetching_hold_for_pages(tmp_path: Path) -> None:
    made = visits(tmp_path, allow=["WebFetch(domain:shop.example)"], deny=["WebFetch(domain:ads.example)"])
    assert made.refused(SHOP) is None
    assert made.forbidden(BANK) is None
    assert "ads.example" in str(made.forbidden(ADS))


def test_a_deny_rule_is_stronger_than_a_permission_and_every_mode(tmp_path: Path) -> None:
    made = visits(tmp_path, "bypassPermissions", deny=["WebFetch(domain:ads.example)"])
    made.permit(ADS)
    assert made.refused(ADS) is not None
    assert made.refused(BANK) is None


def test_where_nobody_is_asked_pages_still_load_what_they_are_made_of(tmp_path: Path) -> None:
    made = visits(tmp_path, "dontAsk", allow=["WebFetch(domain:shop.example)"])
    assert made.refused(SHOP) is None
    assert made.refused(BANK) is not None
    assert made.forbidden(BANK) is None


def test_without_a_judge_nothing_is_shown() -> None:
    assert Visits().refused(SHOP) is not None
