from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.unit.web.loopback import Names, Recorder, response, serving

from wieldy import Toolbox
from wieldy.core.errors import WieldyError
from wieldy.engine.workspace_services import HostServices
from wieldy.tools.web_fetch import web_fetch

PAGE = response(b"<title>Tea</title><h1>Tea</h1><p>Hot.", content_type="text/html")


def toolbox(root: Path, host: HostServices | None = None, mode: str = "bypassPermissions", **settings: Any) -> Toolbox:
    return Toolbox(root, mode=mode, host=host, settings={"web": {"allowPrivateHosts": ["127.0.0.1"]}, **settings})


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WIELDY_HOME", str(tmp_path / "home"))


@pytest.mark.asyncio
async def test_a_page_comes_back_as_markdown_and_is_kept_for_the_next_call(tmp_path: Path) -> None:
    async with serving({"/tea": PAGE}) as site, toolbox(tmp_path) as box:
        first = await box.call("WebFetch", {"url": f"{site.origin}/tea", "prompt": "what is it"})
        again = await box.call("WebFetch", {"url": f"  HTTP://127.0.0.1:{site.port}/tea#part"})
        assert not first.is_error, first.text
        assert first.text == again.text == f"Tea\n<{site.origin}/tea>\n\n# Tea\n\nHot."
        assert site.asked == ["/tea"]
        assert first.data["contentType"] == "text/html"


@pytest.mark.asyncio
async def test_a_question_is_answered_by_the_small_model_where_there_is_one(tmp_path: Path) -> None:
    async def answer(question: str, page: str) -> str:
        return f"{question} {page.splitlines()[-1]}"

    async with serving({"/tea": PAGE}) as site, toolbox(tmp_path, HostServices(summarizer=answer)) as box:
        asked = await box.call("WebFetch", {"url": f"{site.origin}/tea", "prompt": "How is it?"})
        assert asked.text == f"Tea\n<{site.origin}/tea>\n\nHow is it? Hot."
        plain = await box.call("WebFetch", {"url": f"{site.origin}/tea"})
        assert plain.text.endswith("# Tea\n\nHot.")


@pytest.mark.asyncio
async def test_where_the_small_model_fails_the_page_itself_comes_back(tmp_path: Path) -> None:
    async def overloaded(question: str, page: str) -> str:
        raise WieldyError("529 overloaded")

    async with serving({"/tea": PAGE}) as site, toolbox(tmp_path, HostServices(summarizer=overloaded)) as box:
        result = await box.call("WebFetch", {"url": f"{site.origin}/tea", "prompt": "How is it?"})
        assert not result.is_error
        assert result.text.endswith(
            "# Tea\n\nHot.\n\n[the question could not be put to the small model: 529 overloaded]"
        )


@pytest.mark.asyncio
async def test_a_redirect_to_another_host_is_told_to_the_model(tmp_path: Path) -> None:
    async with serving({"/": response(status="301 x", location="https://other.example/new")}) as site:
        async with toolbox(tmp_path) as box:
            result = await box.call("WebFetch", {"url": site.origin})
        assert "https://other.example/new" in result.text
        assert "call WebFetch" in result.text
        assert result.data["redirect"] == "https://other.example/new"


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "url",
    [
        *("http://169.254.169.254/", "http://[::ffff:127.0.0.1]/", "http://[0:0:0:0:0:0:0:1]/", "file:///etc/passwd"),
        *("http://metadata.google.internal/", "http://inside.example/", "http://2130706433:80/", "example.com"),
    ],
)
async def test_inside_addresses_are_refused_even_when_everything_is_allowed(tmp_path: Path, url: str) -> None:
    connect = Recorder()
    async with Toolbox(tmp_path, mode="bypassPermissions", settings={}) as box:
        fetch = box.workspace.services.fetcher
        fetch.client.connect, fetch.resolver = connect, Names(inside_example=[["192.168.0.9"]])
        result = await box.call("WebFetch", {"url": url})
    assert result.is_error
    assert connect.attempts == []


@pytest.mark.asyncio
async def test_rules_are_per_domain_and_see_the_real_host(tmp_path: Path) -> None:
    rules = {"allow": ["WebFetch(domain:good.example)"], "deny": ["WebFetch(domain:127.0.0.1)"]}
    box = Toolbox(tmp_path, settings={"permissions": rules})
    for url, behavior in [
        ("https://good.example/x", "allow"),
        ("https://GOOD.example./x", "allow"),
        ("https://sub.good.example/", "ask"),
        ("https://other.example/", "ask"),
        ("http://2130706433/", "deny"),
    ]:
        assert (await box.explain("WebFetch", {"url": url})).behavior == behavior, url
    await box.aclose()


@pytest.mark.asyncio
async def test_without_permission_nothing_is_fetched(tmp_path: Path) -> None:
    async with serving({"/": PAGE}) as site, toolbox(tmp_path, mode="default") as box:
        result = await box.call("WebFetch", {"url": site.origin})
        assert result.is_error
        assert "Permission denied" in result.text
        assert site.asked == []


@pytest.mark.asyncio
async def test_a_picture_comes_as_a_picture(tmp_path: Path) -> None:
    import io

    from PIL import Image

    png = io.BytesIO()
    Image.new("RGB", (4, 3), "blue").save(png, "PNG")
    async with (
        serving({"/p.png": response(png.getvalue(), content_type="image/png")}) as site,
        toolbox(tmp_path) as box,
    ):
        result = await box.call("WebFetch", {"url": f"{site.origin}/p.png"})
        assert [block.as_wire()["type"] for block in result.content] == ["text", "image"]
        assert "4×3 pixels" in result.text


@pytest.mark.asyncio
async def test_a_long_page_is_shortened_and_kept_whole(tmp_path: Path) -> None:
    body = b"".join(b"line %d\n" % n for n in range(20_000))
    async with serving({"/": response(body, content_type="text/plain")}) as site, toolbox(tmp_path) as box:
        result = await box.call("WebFetch", {"url": site.origin})
        assert len(result.text) < 60_000
        assert "line 0" in result.text
        assert "line 19999" in result.text


def test_it_is_small_and_says_what_it_does() -> None:
    assert len(json.dumps(web_fetch.schema)) <= 400
    assert len(web_fetch.description) <= 350
    assert web_fetch.needs_permission({}, ())
