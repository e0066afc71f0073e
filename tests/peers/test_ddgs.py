"""The real ddgs, behind a proxy on loopback that plays every search engine: nothing leaves the machine."""

from __future__ import annotations

import socketserver
import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from io import BufferedIOBase
from pathlib import Path

import pytest
import trustme

from wieldy.core.errors import ToolFailure
from wieldy.web.search import DuckDuckGo, SearchHit, SearchQuery

pytestmark = [pytest.mark.slow, pytest.mark.peer]

HOSTS = ("html.duckduckgo.com", "search.brave.com", "www.mojeek.com")
FOUND = """<html><div class="links_main links_deep result__body"><h2><a href="https://tea.example/1">All about tea</a></h2>
<a href="https://tea.example/1">Tea is  hot water &amp; leaves.</a></div></html>"""


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate for the search engines: key.pem holds key and chain, cert.pem the authority."""
    folder = tmp_path_factory.mktemp("tls")
    authority = trustme.CA()
    certificate = authority.issue_cert(*HOSTS)
    certificate.private_key_and_cert_chain_pem.write_to_path(folder / "key.pem")
    authority.cert_pem.write_to_path(folder / "cert.pem")
    return folder


class Engines(socketserver.ThreadingTCPServer):
    """What the proxy was asked for, and what each host says."""

    def __init__(self, says: Mapping[str, str], authority: Path) -> None:
        super().__init__(("127.0.0.1", 0), Connection)
        self.says = says
        self.asked: list[tuple[str, str]] = []
        self.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.tls.load_cert_chain(authority / "key.pem")


class Connection(socketserver.StreamRequestHandler):
    """One connection through the proxy: whichever host is asked for, it ends here."""

    server: Engines
    timeout = 20

    def handle(self) -> None:
        host = self.rfile.readline().split(b" ")[1].decode().partition(":")[0]
        self._headers(self.rfile)
        self.wfile.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        try:
            with (
                self.server.tls.wrap_socket(self.connection, server_side=True, suppress_ragged_eofs=True) as secured,
                secured.makefile("rb") as stream,
            ):
                while line := stream.readline():
                    length = self._headers(stream).get("content-length", "0")
                    body = stream.read(int(length)).decode()
                    self.server.asked.append((host, body or line.decode()))
                    page = self.server.says.get(host, "<html>").encode()
                    secured.sendall(b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\n")
                    secured.sendall(b"content-length: %d\r\n\r\n%s" % (len(page), page))
        except OSError:
            return

    def _headers(self, stream: BufferedIOBase) -> dict[str, str]:
        lines = iter(lambda: stream.readline().decode("latin-1").strip(), "")
        return {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}


@contextmanager
def playing(authority: Path, **says: str) -> Iterator[Engines]:
    with Engines(dict(zip(HOSTS, says.values(), strict=False)), authority) as engines:
        serving = threading.Thread(target=engines.serve_forever, kwargs={"poll_interval": 0.05})
        serving.start()
        try:
            yield engines
        finally:
            engines.shutdown()
            serving.join()


def service(engines: Engines, authority: Path) -> DuckDuckGo:
    return DuckDuckGo(
        {"HTTPS_PROXY": f"http://127.0.0.1:{engines.server_address[1]}", "WIELDY_CA_FILE": str(authority / "cert.pem")}
    )


@pytest.mark.asyncio
async def test_what_duckduckgo_finds_comes_back_as_hits_and_nobody_else_is_asked(authority: Path) -> None:
    with playing(authority, duckduckgo=FOUND) as engines:
        found = await service(engines, authority).search(SearchQuery("tea", ("tea.example",)))
    assert found == [SearchHit("All about tea", "https://tea.example/1", "Tea is hot water & leaves.")]
    assert {host for host, _ in engines.asked} == {"html.duckduckgo.com"}
    assert "site" in engines.asked[0][1]
    assert "tea.example" in engines.asked[0][1]


@pytest.mark.asyncio
async def test_where_the_first_engine_has_nothing_the_next_is_asked_and_nothing_is_no_error(authority: Path) -> None:
    with playing(authority) as engines:
        assert await service(engines, authority).search(SearchQuery("tea")) == []
    assert list(dict.fromkeys(host for host, _ in engines.asked)) == list(HOSTS)


@pytest.mark.asyncio
async def test_engines_that_cannot_be_reached_are_an_error_that_says_why(authority: Path) -> None:
    with playing(authority, duckduckgo=FOUND) as engines:
        stranger = DuckDuckGo({"HTTPS_PROXY": f"http://127.0.0.1:{engines.server_address[1]}"})
        with pytest.raises(ToolFailure, match="The search failed"):
            await stranger.search(SearchQuery("tea"))
    assert engines.asked == []
