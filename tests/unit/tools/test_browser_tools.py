"""The browser's tools with a real Chromium on pages of this machine."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import signal
import sys
from pathlib import Path

import pytest
from tests.unit.web.browser.pages import browsing, connections, ref
from tests.unit.web.loopback import Names, response, serving

from wieldy import Toolbox
from wieldy.core.outcome import Image
from wieldy.core.tool import Tool
from wieldy.shell.running.reaper import ProcessTree, members
from wieldy.tools import MODULES, builtin_loaders

NAMES = [name for name in MODULES if name.startswith("Browser")]
SHOP = response(
    b"""<title>Shop</title><h1>Tea</h1><a href="/cake">cake</a> <a href="/cake" target="_blank">window</a>
<label>Name <input id="name"></label> <select aria-label="Size"><option>small<option>large</select>
<form action="/found"><input name="q" aria-label="Search"></form>
<button onclick="document.title = name_.value; console.error('spilt'); fetch('/gone'); throw Error('hot')">Pour</button>
<button onclick="alert('careful')">Warn</button><script>const name_ = document.getElementById('name')</script>""",
    content_type="text/html",
)
CAKE = response(b"<title>Cake</title><h1>Cake</h1>", content_type="text/html")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WIELDY_HOME", str(tmp_path / "home"))


@pytest.mark.asyncio
async def test_a_page_is_read_filled_in_and_clicked(tmp_path: Path) -> None:
    async with serving({"/": SHOP, "/cake": CAKE, "/found": CAKE}) as site, browsing(tmp_path) as box:
        opened = await box.call("BrowserNavigate", url=site.origin)
        assert not opened.is_error, opened.text
        assert opened.text.startswith(f"Shop\n<{site.origin}/>\n\n- ")
        assert 'heading "Tea"' in opened.text
        typed = await box.call("BrowserType", ref=ref(opened, 'textbox "Name"'), text="Ann")
        assert "Ann" in typed.text
        chosen = await box.call("BrowserType", ref=ref(opened, 'combobox "Size"'), text="large")
        assert 'option "large" [selected]' in chosen.text
        poured = await box.call("BrowserClick", ref=ref(opened, 'button "Pour"'))
        assert poured.text.startswith("Ann\n")
        for happened in ("console error: spilt", f"404 Not Found: GET {site.origin}/gone", "script error: hot"):
            assert f"- {happened}" in poured.text
        warned = await box.call("BrowserClick", ref=ref(opened, 'button "Warn"'))
        assert "dialog (alert), which was dismissed: careful" in warned.text
        window = await box.call("BrowserClick", ref=ref(opened, 'link "window"'))
        assert f"new window, which was closed; BrowserNavigate goes there: {site.origin}/cake" in window.text
        assert window.data["url"] == f"{site.origin}/"
        part = await box.call("BrowserSnapshot", ref=ref(opened, 'combobox "Size"'))
        assert "large" in part.text
        assert "Tea" not in part.text
        found = await box.call("BrowserType", ref=ref(opened, 'textbox "Search"'), text="a b", submit=True)
        assert found.data["url"] == f"{site.origin}/found?q=a+b"
        gone = await box.call("BrowserClick", ref=ref(opened, 'link "cake"'))
        assert gone.is_error
        assert "Take a BrowserSnapshot" in gone.text
        assert {name for name, _ in connections(box)} == {"127.0.0.1"}


@pytest.mark.asyncio
async def test_places_within_a_page_are_reached_and_a_page_that_wants_to_keep_us_is_left(tmp_path: Path) -> None:
    program = response(
        b"""<body><script>const show = () => document.title = "at " + location.hash; show(); onhashchange = show;
onbeforeunload = event => { event.preventDefault(); return "stay" }</script><button>b</button>""",
        content_type="text/html",
    )
    async with serving({"/": program, "/cake": CAKE}) as site, browsing(tmp_path) as box:
        first = await box.call("BrowserNavigate", url=f"{site.origin}/#/one two".replace(" ", "%20"))
        assert first.text.startswith("at #/one%20two\n"), first.text
        second = await box.call("BrowserNavigate", url=f"{site.origin}/#/three")
        assert second.text.startswith("at #/three\n"), second.text
        await box.call("BrowserClick", ref=ref(second, 'button "b"'))
        left = await box.call("BrowserNavigate", url=f"{site.origin}/cake")
        assert left.text.startswith("Cake\n"), left.text


@pytest.mark.asyncio
async def test_pictures_of_page_and_element(tmp_path: Path) -> None:
    page = response(
        b"<style>body{margin:0;height:3000px;background:red}</style><button>b</button>", content_type="text/html"
    )
    async with serving({"/": page}) as site, browsing(tmp_path) as box:
        opened = await box.call("BrowserNavigate", url=site.origin)
        visible = await box.call("BrowserScreenshot")
        whole = await box.call("BrowserScreenshot", full_page=True)
        button = await box.call("BrowserScreenshot", ref=ref(opened, 'button "b"'))
    image = visible.content[1]
    assert isinstance(image, Image)
    assert base64.b64decode(image.data).startswith(b"\x89PNG")
    assert "1280×800 pixels" in visible.text
    assert "1280×3000 pixels, shown at" in whole.text
    assert button.data["width"] < 100


@pytest.mark.asyncio
async def test_the_browser_ends_with_the_toolbox_or_when_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WIELDY_PROCESS_TAG", tag := f"ends-{os.getpid()}")
    tree = ProcessTree(f"{tag} ")
    async with serving({"/": SHOP}) as site, browsing(tmp_path) as box:
        assert (await box.call("BrowserClose")).text == "No browser was open."
        await box.call("BrowserNavigate", url=site.origin)
        assert members(tree)
        assert (await box.call("BrowserClose")).text == "The browser is closed."
        assert members(tree) == []
        unopened = await box.call("BrowserSnapshot")
        assert unopened.is_error
        assert "BrowserNavigate first" in unopened.text
        await box.call("BrowserNavigate", url=site.origin)
        assert members(tree)
    assert members(tree) == []


@pytest.mark.asyncio
async def test_a_browser_that_dies_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WIELDY_PROCESS_TAG", tag := f"dies-{os.getpid()}")
    async with serving({"/": SHOP}) as site, browsing(tmp_path) as box:
        await box.call("BrowserNavigate", url=site.origin)
        # The first in order of age is the browser; the others are its children, one of them shows the page.
        os.kill(min(members(ProcessTree(f"{tag} ")), key=lambda process: process.started).pid, signal.SIGKILL)
        for _ in range(100):
            lost = await box.call("BrowserSnapshot")
            if lost.is_error:
                break
            await asyncio.sleep(0.05)
        assert "BrowserNavigate" in lost.text
        again = await box.call("BrowserNavigate", url=site.origin)
        assert again.text.startswith("Shop\n")


@pytest.mark.asyncio
async def test_an_action_that_is_stopped_leaves_a_usable_browser(tmp_path: Path) -> None:
    async def silent(writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(30)

    async with serving({"/": SHOP, "/never": silent}) as site, browsing(tmp_path) as box:
        await box.call("BrowserNavigate", url=site.origin)
        async with asyncio.TaskGroup() as tasks:
            stuck = tasks.create_task(box.call("BrowserNavigate", url=f"{site.origin}/never"))
            while "/never" not in site.asked:
                await asyncio.sleep(0.02)
            box.abort()
        assert stuck.result().is_error
        again = await box.call("BrowserNavigate", url=site.origin)
        assert again.text.startswith("Shop\n"), again.text


@pytest.mark.asyncio
async def test_a_place_that_cannot_be_reached_is_an_error_in_a_line(tmp_path: Path) -> None:
    async with serving() as site:
        gone = site.origin
    async with browsing(tmp_path, Names(nothing_test=[])) as box:
        for url in (gone, gone.replace("http:", "https:"), "https://nothing.test/"):
            result = await box.call("BrowserNavigate", url=url)
            assert result.is_error, url
            assert "\n" not in result.text


@pytest.mark.parametrize("name", NAMES)
def test_each_is_deferred_small_and_says_what_it_does(name: str) -> None:
    tool: Tool = builtin_loaders()[name]()
    assert tool.deferred
    assert len(json.dumps(tool.schema)) <= 350
    assert 50 < len(tool.description) <= 350


@pytest.mark.asyncio
@pytest.mark.parametrize("name", NAMES)
async def test_each_says_what_is_missing_where_there_is_no_browser(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WIELDY_BROWSER", "/no/such/browser")
    async with Toolbox(tmp_path, settings={"features": {"browser": True}}) as box:
        (row,) = [row for row in await box.offer() if row.tool.name == name]
        assert not row.offered
        assert "/no/such/browser" in row.reason


@pytest.mark.asyncio
async def test_a_call_without_playwright_or_browser_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with browsing(tmp_path) as box:
        monkeypatch.setenv("WIELDY_BROWSER", "/no/such/browser")
        assert "/no/such/browser" in (await box.call("BrowserNavigate", url="http://127.0.0.1:9/")).text
        monkeypatch.setitem(sys.modules, "playwright", None)
        assert "wieldy[browser]" in (await box.call("BrowserNavigate", url="http://127.0.0.1:9/")).text
        assert "wieldy[browser]" in (await box.call("BrowserSnapshot")).text


@pytest.mark.asyncio
async def test_looking_asks_nobody_and_acting_does(tmp_path: Path) -> None:
    async with Toolbox(tmp_path, settings={}) as box:
        decided = {
            name: (await box.explain(name, input)).behavior
            for name, input in {
                "BrowserNavigate": {"url": "https://shop.example/"},
                "BrowserSnapshot": {},
                "BrowserScreenshot": {},
                "BrowserClick": {"ref": "e1"},
                "BrowserType": {"ref": "e1", "text": "x"},
                "BrowserClose": {},
            }.items()
        }
    asks = {name for name, behavior in decided.items() if behavior == "ask"}
    assert asks == {"BrowserNavigate", "BrowserClick", "BrowserType"}
