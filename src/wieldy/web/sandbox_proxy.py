"""The network access of a sandbox without network: a proxy to the hosts in `sandbox.allowedDomains`."""

from __future__ import annotations

import asyncio
import ipaddress
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from wieldy.core.workspace import Workspace
from wieldy.shell.sandbox.policy import ProxyEndpoint
from wieldy.web.address_policy import HostRefused
from wieldy.web.fetch import Fetcher
from wieldy.web.http import Streams
from wieldy.web.proxy import ForwardProxy
from wieldy.web.url import HttpUrl

DEFAULT_PORTS = (80, 443)


class SandboxProxy:
    """The proxy of a workspace: `workspace.services.sandbox_proxy`. The first command that needs it opens it."""

    def __init__(self, workspace: Workspace, fetcher: Fetcher) -> None:
        self._allowed: Sequence[str] = workspace.setting("sandbox.allowedDomains")
        self._fetcher = fetcher
        self._proxy = ForwardProxy(self._connect)
        self._opening = asyncio.Lock()
        self._endpoint: ProxyEndpoint | None = None

    async def open(self) -> ProxyEndpoint:
        """Start listening at the first call."""
        async with self._opening:
            if self._endpoint is None:
                # The path of a socket is limited to about a hundred bytes: a session's own folder can be too deep.
                path = str(Path(tempfile.mkdtemp(prefix="wieldy-"), "proxy"))
                self._endpoint = ProxyEndpoint(await self._proxy.listen(path), path)
            return self._endpoint

    async def aclose(self) -> None:
        await self._proxy.aclose()
        if self._endpoint is not None:
            shutil.rmtree(Path(self._endpoint.socket).parent, ignore_errors=True)

    async def _connect(self, url: HttpUrl) -> Streams:
        if not is_allowed(url.host, url.port, self._allowed):
            raise HostRefused(f"sandbox: {url.host}:{url.port} is not in sandbox.allowedDomains")
        # A host that the user named by its address, or as this machine, may be private.
        private_hosts = [url.host] if _is_local_name(url.host) else []
        addresses = await self._fetcher.address_policy(*private_hosts).resolve(url)
        return await self._fetcher.connect_any(url, addresses)


def is_allowed(host: str, port: int, patterns: Sequence[str]) -> bool:
    """Whether a pattern covers a host: `example.com` itself, `*.example.com` all below it, `host:8080` another port."""
    name = host.lower().rstrip(".")
    for pattern in patterns:
        pattern_host, _, pattern_port = pattern.lower().partition(":")
        if port not in DEFAULT_PORTS if not pattern_port else pattern_port != str(port):
            continue
        if name == pattern_host or (pattern_host.startswith("*.") and name.endswith(pattern_host[1:])):
            return True
    return False


def _is_local_name(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return host == "localhost"
    return True
