"""Encrypted connections to a server on loopback, with an authority made for the occasion."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import pytest
import trustme
from tests.unit.web.loopback import Names, response, serving, workspace

from wieldy.core.errors import ToolFailure
from wieldy.web.fetch import FetchedResponse, Fetcher, FetchFailure, HttpRedirect
from wieldy.web.url import parse_url


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate for `site.test` from an authority of its own: key.pem holds key and chain, cert.pem the authority."""
    folder = tmp_path_factory.mktemp("tls")
    authority = trustme.CA()
    certificate = authority.issue_cert("site.test")
    certificate.private_key_and_cert_chain_pem.write_to_path(folder / "key.pem")
    authority.cert_pem.write_to_path(folder / "cert.pem")
    return folder


def server_side(certificate: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate / "key.pem")
    return context


@pytest.mark.asyncio
async def test_the_certificate_is_checked_against_the_name_though_the_address_is_pinned(
    tmp_path: Path, certificate: Path
) -> None:
    names = Names(site_test=[["127.0.0.1"]], other_test=[["127.0.0.1"]])
    trusting = workspace(
        tmp_path, {"WIELDY_CA_FILE": str(certificate / "cert.pem")}, allowPrivateHosts=["site.test", "other.test"]
    )
    fetch = Fetcher(trusting, resolver=names)
    async with serving({"/": response(b"secret")}, server_side(certificate)) as site:
        answer = await fetch.fetch(parse_url(f"https://site.test:{site.port}/"))
        assert isinstance(answer, FetchedResponse)
        assert answer.body == b"secret"
        with pytest.raises(FetchFailure, match=r"other\.test:[0-9]+: the certificate was not accepted"):
            await fetch.fetch(parse_url(f"https://other.test:{site.port}/"))


@pytest.mark.asyncio
async def test_an_unknown_authority_is_not_accepted(tmp_path: Path, certificate: Path) -> None:
    fetch = Fetcher(workspace(tmp_path, allowPrivateHosts=["site.test"]), resolver=Names(site_test=[["127.0.0.1"]]))
    async with serving({"/": response(b"secret")}, server_side(certificate)) as site:
        with pytest.raises(FetchFailure, match="certificate"):
            await fetch.fetch(parse_url(f"https://site.test:{site.port}/"))
        assert site.asked == []


@pytest.mark.asyncio
async def test_a_redirect_out_of_encryption_is_reported(tmp_path: Path, certificate: Path) -> None:
    trusting = workspace(tmp_path, {"SSL_CERT_FILE": str(certificate / "cert.pem")}, allowPrivateHosts=["site.test"])
    async with serving({}, server_side(certificate)) as site:
        site.says["/"] = response(status="302 x", location=f"http://site.test:{site.port}/plain")
        fetch = Fetcher(trusting, resolver=Names(site_test=[["127.0.0.1"]]))
        answer = await fetch.fetch(parse_url(f"https://site.test:{site.port}/"))
        assert isinstance(answer, HttpRedirect)
        assert answer.location.scheme == "http"


@pytest.mark.asyncio
async def test_a_server_that_does_not_encrypt_is_not_blamed_for_its_certificate(tmp_path: Path) -> None:
    async def plain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(10)
        writer.write(response(b"speak plainly", "400 Bad Request"))
        writer.close()

    async with await asyncio.start_server(plain, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        fetch = Fetcher(workspace(tmp_path, allowPrivateHosts=["127.0.0.1"]))
        with pytest.raises(FetchFailure, match="no TLS connection can be made"):
            await fetch.fetch(parse_url(f"https://127.0.0.1:{port}/"))


@pytest.mark.asyncio
async def test_a_missing_authority_file_is_named(tmp_path: Path) -> None:
    fetch = Fetcher(
        workspace(tmp_path, {"WIELDY_CA_FILE": str(tmp_path / "gone.pem")}, allowPrivateHosts=["127.0.0.1"])
    )
    with pytest.raises(ToolFailure, match=r"gone\.pem"):
        await fetch.fetch(parse_url("https://127.0.0.1:9/"))
