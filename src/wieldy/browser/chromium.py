"""Finds the browser that is installed here, and says how it is started: quiet, alone, and with one way out."""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Mapping

PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "microsoft-edge")
APPLICATIONS = (
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
    "/Applications/Microsoft Edge.app/Contents/MacOS/Microsoft Edge",
)
NAMED_BY = "WIELDY_BROWSER"
QUIET = (
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-domain-reliability",
    "--disable-sync",
    "--dns-prefetch-disable",
    "--no-default-browser-check",
    "--no-first-run",
    "--no-pings",
    "--no-service-autorun",
    "--metrics-recording-only",
)
# All names fail but for the proxy's own address, and what is not HTTP goes nowhere: the proxy is the only way out.
ONE_WAY_OUT = (
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
    "--force-webrtc-ip-handling-policy=disable_non_proxied_udp",
    "--webrtc-ip-handling-policy=disable_non_proxied_udp",
    "--disable-quic",
)


def find_browser(env: Mapping[str, str]) -> str | None:
    """The program of an installed Chromium: the one that `WIELDY_BROWSER` names, else what PATH or the system has."""
    if named := env.get(NAMED_BY):
        return shutil.which(named, path=env.get("PATH"))
    for program in PROGRAMS:
        if found := shutil.which(program, path=env.get("PATH")):
            return found
    return next((path for path in APPLICATIONS if os.access(path, os.X_OK)), None)


def what_is_missing(env: Mapping[str, str]) -> str | None:
    """What has to be installed before a page can be opened; None when all is there."""
    if importlib.util.find_spec("playwright") is None:
        return "Playwright is not installed: pip install 'wieldy[browser]'"
    if find_browser(env) is not None:
        return None
    if named := env.get(NAMED_BY):
        return f"{NAMED_BY} names {named}, which cannot be run"
    return f"no Chromium was found: install one (such as `apt install chromium`), or name it in {NAMED_BY}"


def arguments() -> list[str]:
    """What the browser is told when it starts."""
    return [*QUIET, *ONE_WAY_OUT]
