"""A real Chromium tries to get out: inside addresses, hosts nobody permitted, its own errands."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from time import monotonic

import pytest
from tests.unit.web.browser.pages import browsing, connections, ref, skip_without_browser
from tests.unit.web.loopback import Names, response, serving

from wieldy.core.decision import Question
from wieldy.shell.running.reaper import ProcessTree, members

pytestmark = [pytest.mark.slow, pytest.mark.peer]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WIELDY_HOME", str(tmp_path / "home"))


def html(text: str) -> bytes:
    return response(text.encode(), content_type="text/html")


@pytest.mark.asyncio
async def test_nothing_on_a_page_reaches_an_inside_address(tmp_path: Path) -> None:
    names = Names(
        shop_test=[["127.0.0.1"]],
        inside_example=[["10.0.0.5"]],
        mixed_example=[["93.184.216.34", "127.0.0.1"]],
    )
    page = """<title>Trap</title><img src="http://169.254.169.254/latest/meta-data/"><img src="/hop">
<iframe src="http://metadata.google.internal/"></iframe><script src="http://[::1]:8000/x.js"></script>
<link rel="stylesheet" href="https://inside.example/x.css"><link rel="preconnect" href="https://10.1.1.1">
<script>
fetch("http://2130706433:1234/", {mode: "no-cors"}).catch(() => 0);
fetch("http://localhost:1235/", {mode: "no-cors"}).catch(() => 0);
new WebSocket("ws://mixed.example/live");
new RTCPeerConnection({iceServers: [{urls: "stun:10.0.0.9:3478"}]}).createDataChannel("x");
navigator.sendBeacon("http://192.168.1.1/");
</script>"""
    only_shop = {"web": {"allowPrivateHosts": ["shop.test"]}}
    async with serving() as site, browsing(tmp_path, names, settings=only_shop) as box:
        site.says = {"/": html(page), "/hop": response(status="302 x", location="http://10.9.9.9/")}
        result = await box.call("BrowserNavigate", url=f"http://shop.test:{site.port}/")
        assert result.text.startswith("Trap\n"), result.text
        await asyncio.sleep(0.5)
        told = result.text + (await box.call("BrowserSnapshot")).text
        assert set(connections(box)) == {("shop.test", "127.0.0.1")}
        for host in ("169.254.169.254", "metadata.google.internal", "inside.example", "127.0.0.1:1234", "10.9.9.9"):
            assert f"not loaded: {host}" in told, told


@pytest.mark.asyncio
async def test_a_name_that_leads_elsewhere_the_second_time_is_judged_the_second_time(tmp_path: Path) -> None:
    names = Names(shop_test=[["127.0.0.1"], ["169.254.169.254"]])
    async with serving({"/": html("secret")}) as site, browsing(tmp_path, names) as box:
        result = await box.call("BrowserNavigate", url=f"http://shop.test:{site.port}/")
        assert "secret" not in result.text
        assert "link-local" in result.text
        assert connections(box) == []


@pytest.mark.asyncio
async def test_the_browser_runs_no_errands_of_its_own(tmp_path: Path) -> None:
    names = Names()
    async with serving({"/": html("<title>T</title><input>")}) as site, browsing(tmp_path, names) as box:
        await box.call("BrowserNavigate", url=site.origin)
        await asyncio.sleep(3)
        assert names.asked == []
        assert {name for name, _ in connections(box)} == {"127.0.0.1"}


@pytest.mark.asyncio
async def test_a_page_goes_only_where_somebody_permitted(tmp_path: Path) -> None:
    names = Names(shop_test=[["127.0.0.1"]], bank_test=[["127.0.0.1"]])
    questions: list[str] = []

    def ask(question: Question) -> bool:
        questions.append(str(question.plan.input.get("url", question.plan.tool.name)))
        return True

    async with serving() as site, browsing(tmp_path, names, mode="default", ask=ask) as box:
        shop, bank = f"http://shop.test:{site.port}", f"http://bank.test:{site.port}"
        site.says = {
            "/": html(
                f'<title>Shop</title><a href="{bank}/b">bank</a><a href="/hop">hop</a><a href="/more">more</a>'
                f'<img src="{bank}/logo.png">'
            ),
            "/hop": response(status="302 x", location=f"{bank}/c"),
            "/more": html("<title>More</title>"),
            "/b": html("<title>Bank</title>"),
        }
        opened = await box.call("BrowserNavigate", url=shop)
        assert opened.text.startswith("Shop\n"), opened.text
        assert "/logo.png" in site.asked
        for link in ("bank", "hop"):
            stopped = await box.call("BrowserClick", ref=ref(opened, f'link "{link}"'))
            assert f"tried to go to {bank}/" in stopped.text
            assert "BrowserNavigate asks for permission" in stopped.text
            assert stopped.text.startswith("Shop\n")
        more = await box.call("BrowserClick", ref=ref(opened, 'link "more"'))
        assert more.text.startswith("More\n")
        moved = await box.call("BrowserNavigate", url=f"{shop}/hop")
        assert moved.is_error
        assert f"{bank}/c" in moved.text
        assert not {"/b", "/c"} & set(site.asked)
        permitted = await box.call("BrowserNavigate", url=f"{bank}/b")
        assert permitted.text.startswith("Bank\n")
        assert f"{bank}/b" in questions


@pytest.mark.asyncio
async def test_a_deny_rule_holds_for_every_piece_of_a_page(tmp_path: Path) -> None:
    names = Names(shop_test=[["127.0.0.1"]], ads_test=[["127.0.0.1"]])
    deny = {"permissions": {"deny": ["WebFetch(domain:ads.test)"]}}
    async with serving() as site, browsing(tmp_path, names, settings=deny) as box:
        site.says["/"] = html(f'<title>Shop</title><img src="http://ads.test:{site.port}/ad.png">')
        result = await box.call("BrowserNavigate", url=f"http://shop.test:{site.port}/")
        assert result.text.startswith("Shop\n")
        assert "not loaded: ads.test" in result.text
        assert "/ad.png" not in site.asked
        refused = await box.call("BrowserNavigate", url=f"http://ads.test:{site.port}/")
        assert refused.is_error


KILLED = """
import asyncio, sys
from pathlib import Path
sys.path.insert(0, sys.argv[3])
from tests.unit.web.browser.pages import browsing

async def main():
    async with browsing(Path(sys.argv[1])) as box:
        result = await box.call("BrowserNavigate", url=sys.argv[2])
        print("open" if not result.is_error else result.text, flush=True)
        await asyncio.sleep(60)

asyncio.run(main())
"""


@pytest.mark.asyncio
async def test_nothing_survives_when_our_process_is_killed(tmp_path: Path) -> None:
    skip_without_browser()
    tag = f"killed-{os.getpid()}-{tmp_path.name}"
    project = str(Path(__file__).parents[2])
    async with serving({"/": html("<title>T</title>")}) as site:
        child = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", KILLED, str(tmp_path), site.origin, project),
            stdout=subprocess.PIPE,
            env={**os.environ, "WIELDY_PROCESS_TAG": tag, "WIELDY_HOME": str(tmp_path / "home")},
        )
        assert child.stdout
        assert await child.stdout.readline() == b"open\n"
        started = members(ProcessTree(tag))
        assert any("chrom" in process.name for process in started), started
        os.kill(child.pid, signal.SIGKILL)
        await child.wait()
        assert await comes_true(lambda: members(ProcessTree(tag)) == []), members(ProcessTree(tag))


async def comes_true(condition: Callable[[], bool], seconds: float = 20.0) -> bool:
    deadline = monotonic() + seconds
    while not condition():
        if monotonic() > deadline:
            return False
        await asyncio.sleep(0.1)
    return True
