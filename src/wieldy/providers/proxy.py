"""Which proxy a server is reached by: the variables that every other program on the machine goes by."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import SplitResult, unquote, urlsplit

from wieldy.core.failure import WieldyError
from wieldy.core.record import record

LOOPBACK = ("localhost", "127.0.0.1", "::1")


class ProxyProblem(WieldyError):
    """A proxy is set that cannot be used; one line says which and why."""


@record
class Proxy:
    """An HTTP proxy, and what it knows us by."""

    host: str
    port: int
    user: str = ""
    password: str = ""

    def credentials(self) -> dict[str, str]:
        """The header that says who we are, if we are anybody."""
        if not self.user:
            return {}
        import base64

        return {"proxy-authorization": f"Basic {base64.b64encode(f'{self.user}:{self.password}'.encode()).decode()}"}


def proxy_for(url: SplitResult, env: Mapping[str, str]) -> Proxy | None:
    """The proxy for an address, or None for one that is reached directly. Raises `ProxyProblem`."""
    names = (f"{url.scheme}_proxy", f"{url.scheme.upper()}_PROXY", "all_proxy", "ALL_PROXY")
    name = next((name for name in names if env.get(name)), None)
    if name is None or _goes_direct(url.hostname or "", env):
        return None
    text = env[name]
    found = urlsplit(text if "://" in text else f"http://{text}")
    try:
        port = found.port or 80
    except ValueError:
        raise ProxyProblem(f"{name}={text} is not the address of a proxy") from None
    if found.scheme != "http" or not found.hostname:
        raise ProxyProblem(f"{name} names a {found.scheme} proxy; only http:// proxies can be used")
    return Proxy(found.hostname, port, unquote(found.username or ""), unquote(found.password or ""))


def _goes_direct(host: str, env: Mapping[str, str]) -> bool:
    listed = [name.strip().lower() for name in (env.get("no_proxy") or env.get("NO_PROXY") or "").split(",")]
    if host in LOOPBACK:
        return True
    return any(name in ("*", host) or host.endswith("." + name.lstrip("*").lstrip(".")) for name in listed if name)
