"""What we take for a host, and what Chromium takes for it: the address that is judged must be the one that is meant."""

from __future__ import annotations

from collections.abc import Callable
from ipaddress import IPv6Address
from pathlib import Path
from random import Random
from typing import Any

import pytest
from tests.unit.web.browser.pages import browsing
from tests.unit.web.loopback import response, serving

from wieldy.web.url import PORTS, InvalidUrl, parse_url

pytestmark = [pytest.mark.slow, pytest.mark.peer]

READ = """texts => texts.map(text => {
    try { const url = new URL(text); return [url.protocol, url.hostname, url.port, url.pathname + url.search]; }
    catch { return null; }
})"""
HOSTS: tuple[Callable[[Random], str], ...] = (
    lambda chance: some("0123456789.xXafAF", chance),
    lambda chance: f"[{some('[]:0123456789abcdef.%', chance)}]",
    lambda chance: some("localhost.１２７。ⓛ\u00adAßéИ-_@%#?\\/:", chance),
    lambda chance: f"[{IPv6Address(chance.getrandbits(128)).exploded}]",
    lambda chance: chance.choice((hex, oct, str))(chance.getrandbits(33)).replace("0o", "0"),
    lambda chance: ".".join(chance.choice((hex, oct, str))(chance.randrange(300)).replace("0o", "0") for _ in range(4)),
)
PORTS_WRITTEN = ("", "", "", ":80", ":443", ":8080", ":0", ":", ":99999", ":08")
RESTS = ("", "/", "/a/../b", "/%2e%2e/x", "?q=1", "#f", "/ü?ö=[1]", "//x", "/a b")


def some(letters: str, chance: Random) -> str:
    return "".join(chance.choices(letters, k=chance.randint(1, 14)))


def generated(count: int, seed: int = 1) -> list[str]:
    """Addresses of every odd kind; the same ones each time."""
    chance = Random(seed)
    return [
        f"{chance.choice(('http', 'https', 'HTTP'))}://{chance.choice(HOSTS)(chance)}"
        f"{chance.choice(PORTS_WRITTEN)}{chance.choice(RESTS)}"
        for _ in range(count)
    ]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WIELDY_HOME", str(tmp_path / "home"))


@pytest.mark.asyncio
async def test_an_address_we_accept_is_the_same_address_to_a_browser(tmp_path: Path) -> None:
    texts = [
        *(
            "http://0x7f.1/",
            "http://017700000001/",
            "http://127.1:80/",
            "http://１２７。0.0.1/",
            "http://[::ffff:7f00:1]/",
        ),
        *generated(20_000),
    ]
    async with serving({"/": response(b"<p>", content_type="text/html")}) as site, browsing(tmp_path) as box:
        await box.call("BrowserNavigate", url=site.origin)
        session = box.workspace.services.browser
        async with session.act(box.policy) as page:
            theirs: list[Any] = await page.evaluate(READ, texts)
    accepted = 0
    for text, read in zip(texts, theirs, strict=True):
        try:
            ours = parse_url(text)
        except InvalidUrl:
            continue
        accepted += 1
        assert read is not None, text
        protocol, host, port, _ = read
        assert (ours.scheme + ":", ours.host) == (protocol, host.strip("[]").removesuffix(".")), text
        assert ours.port == int(port or PORTS[ours.scheme]), text
    assert accepted > 3_000
