from __future__ import annotations

import json
from pathlib import Path

import pytest

from wieldy import Toolbox
from wieldy.tools.sticker_request import address_problems

ADDRESS = {"name": "Ada Lovelace", "street": "Königstr. 1", "city": "Köln", "postal_code": "50667", "country": "DE"}
ON = {"features": {"stickers": True}}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WIELDY_HOME", str(tmp_path / "home"))
    (tmp_path / "root").mkdir()
    return tmp_path


@pytest.mark.asyncio
async def test_a_request_is_written_down_for_the_user_only(home: Path) -> None:
    async with Toolbox(home / "root", settings=ON, ask=lambda question: True) as box:
        result = await box.call("StickerRequest", {**ADDRESS, "country": "de"})
    assert not result.is_error, result.text
    (file,) = (home / "home" / "stickers").iterdir()
    assert json.loads(file.read_text()) | {"requested": 0} == {**ADDRESS, "region": "", "requested": 0}
    assert file.stat().st_mode & 0o777 == 0o600


@pytest.mark.asyncio
async def test_it_is_off_by_default_and_asks_first(home: Path) -> None:
    async with Toolbox(home / "root", settings={}) as box:
        (row,) = [row for row in await box.offer() if row.tool.name == "StickerRequest"]
        assert not row.offered
        assert "features.stickers" in row.reason
        assert "`StickerRequest` is not available" in (await box.call("StickerRequest", ADDRESS)).text
    async with Toolbox(home / "root", settings=ON) as box:
        assert "there is no one to ask" in (await box.call("StickerRequest", ADDRESS)).text
    assert not (home / "home" / "stickers").exists()


@pytest.mark.asyncio
async def test_a_bad_address_is_refused_before_anybody_is_asked(home: Path) -> None:
    async with Toolbox(home / "root", settings=ON, ask=lambda question: pytest.fail("asked")) as box:
        result = await box.call("StickerRequest", {**ADDRESS, "postal_code": "5066"})
    assert "`postal_code` 5066 does not look like one of DE. Ask the user" in result.text


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({}, ""),
        ({"name": "  "}, "`name` is empty."),
        ({"city": "Köln\nBonn"}, "`city` must be one line."),
        ({"country": "Germany"}, "`country` is a code of two letters"),
        ({"country": "US", "postal_code": "94107"}, "In US the address needs a `region`"),
        ({"country": "US", "postal_code": "94107", "region": "CA"}, ""),
        ({"country": "US", "postal_code": "941", "region": "CA"}, "`postal_code` 941 does not look like one of US."),
        ({"country": "GB", "postal_code": "sw1a 1aa"}, ""),
        ({"country": "NL", "postal_code": "1012 JS"}, ""),
        ({"country": "IE", "postal_code": ""}, ""),
        ({"country": "FR", "postal_code": ""}, "`postal_code` is missing"),
        ({"country": "PT", "postal_code": "1100-148"}, ""),
    ],
)
def test_addresses(change: dict[str, str], said: str) -> None:
    assert " ".join(address_problems({**ADDRESS, "region": "", **change})).startswith(said)
    assert bool(list(address_problems({**ADDRESS, "region": "", **change}))) == bool(said)
