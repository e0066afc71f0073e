from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence

import pytest
from tests.unit.web.loopback import Names

from wieldy.web.address_policy import AddressPolicy, HostRefused, resolve_host
from wieldy.web.url import parse_url


async def reached(url: str, *private: str, names: Names | None = None) -> tuple[str, ...]:
    return await AddressPolicy(private, names or Names()).resolve(parse_url(url))


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "url",
    [
        *("http://169.254.169.254/", "http://[::ffff:127.0.0.1]/", "http://[0:0:0:0:0:0:0:1]/", "http://[::]/"),
        *("http://127.0.0.1/", "http://0/", "http://2130706433/", "http://0x7f000001/", "http://10.1.2.3/"),
        *("http://metadata.google.internal/", "http://metadata/", "http://localhost/", "http://a.localhost/"),
        *(
            "http://printer.local/",
            "http://[64:ff9b::a9fe:a9fe]/",
            "http://[fd00:ec2::254]/",
            "http://0251.0376.0251.0376/",
        ),
    ],
)
async def test_inside_addresses_are_refused_without_asking_the_resolver(url: str) -> None:
    names = Names()
    with pytest.raises(HostRefused, match="allowPrivateHosts"):
        await reached(url, names=names)
    assert names.asked == []


@pytest.mark.asyncio
async def test_a_public_name_is_resolved_once_and_all_its_addresses_are_given() -> None:
    names = Names(e_org=[["93.184.216.34", "2606:4700::1"]])
    assert await reached("https://e.org/", names=names) == ("93.184.216.34", "2606:4700::1")
    assert names.asked == ["e.org"]


@pytest.mark.asyncio
@pytest.mark.parametrize("inside", ["127.0.0.1", "10.0.0.1", "169.254.169.254", "::1", "::ffff:10.0.0.1"])
async def test_one_inside_answer_spoils_all(inside: str) -> None:
    with pytest.raises(HostRefused, match="leads to"):
        await reached("https://e.org/", names=Names(e_org=[["93.184.216.34", inside]]))


@pytest.mark.asyncio
async def test_the_settings_may_name_private_hosts() -> None:
    names = Names(intra_corp=[["10.0.0.7"]], a_intra_corp=[["10.0.0.8"]])
    assert await reached("http://intra.corp/", "Intra.Corp", names=names) == ("10.0.0.7",)
    assert await reached("http://a.intra.corp/", "*.intra.corp", names=names) == ("10.0.0.8",)
    assert await reached("http://127.0.0.1:8000/", "127.0.0.1:8000") == ("127.0.0.1",)
    assert await reached("http://[::1]:8000/", "[::1]:8000") == ("::1",)
    assert await reached("http://[::1]/", "::1") == ("::1",)
    for url, named in [
        ("http://127.0.0.1:9000/", "127.0.0.1:8000"),
        ("http://a.intra.corp/", "intra.corp"),
        ("http://intra.corp/", "*.intra.corp"),
        ("http://b.intra.corp.evil.local/", "*.intra.corp"),
    ]:
        with pytest.raises(HostRefused):
            await reached(url, named, names=names)


@pytest.mark.asyncio
async def test_a_named_host_still_does_not_lead_to_the_metadata_service() -> None:
    names = Names(intra_corp=[["169.254.169.254"]])
    with pytest.raises(HostRefused, match="link-local"):
        await reached("http://intra.corp/", "intra.corp", names=names)
    assert await reached("http://169.254.169.254/", "169.254.169.254") == ("169.254.169.254",)


@pytest.mark.asyncio
async def test_a_name_nobody_knows_is_said_to_be_unknown() -> None:
    with pytest.raises(HostRefused, match=r"nowhere\.example cannot be found"):
        await reached("http://nowhere.example/")
    with pytest.raises(HostRefused, match="no address"):
        await reached("http://e.org/", names=Names(e_org=[[]]))


@pytest.mark.asyncio
async def test_behind_a_proxy_a_name_is_refused_until_its_addresses_are_known() -> None:
    """As with a name server that answers after seconds: what it says then counts, and no answer is none."""
    url, release = parse_url("https://slow.example/"), asyncio.Event()

    async def answer_late(host: str, port: int) -> Sequence[str]:
        await release.wait()
        return ["127.0.0.1"]

    for policy in (AddressPolicy((), answer_late, 0.01), AddressPolicy(("other.example",), answer_late, 0.01)):
        with pytest.raises(HostRefused, match=r"slow\.example was not looked up within 0\.01 s.*allowPrivateHosts"):
            await policy.check_for_proxy(url)
    await AddressPolicy(("slow.example",), answer_late, 0.01).check_for_proxy(url)
    checking = asyncio.ensure_future(AddressPolicy((), answer_late).check_for_proxy(url))
    asyncio.get_running_loop().call_soon(release.set)
    with pytest.raises(HostRefused, match=r"leads to 127\.0\.0\.1, a loopback address"):
        await checking


@pytest.mark.asyncio
@pytest.mark.parametrize("code", [socket.EAI_NONAME, socket.EAI_AGAIN])
async def test_behind_a_proxy_a_name_that_is_not_known_here_is_left_to_the_proxy(code: int) -> None:
    async def know_nothing(host: str, port: int) -> Sequence[str]:
        raise socket.gaierror(code, "not known")

    await AddressPolicy((), know_nothing).check_for_proxy(parse_url("https://shop.example/"))
    with pytest.raises(HostRefused, match="inside a network"):
        await AddressPolicy((), know_nothing).check_for_proxy(parse_url("https://wiki/"))


@pytest.mark.asyncio
async def test_the_system_knows_this_machine() -> None:
    assert set(await resolve_host("localhost", 80)) <= {"127.0.0.1", "::1"}
