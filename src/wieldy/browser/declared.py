"""What the browser's tools have in common: whether there is a browser, and what an action on its page touches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wieldy.core.effect import NOTHING, Effects, Fetches
from wieldy.core.workspace import Workspace


def usable(workspace: Workspace) -> bool | str:
    """Whether pages can be opened here; a string says what is missing."""
    from wieldy.browser.chromium import what_is_missing

    return what_is_missing(workspace.env) or True


def talks_to_page(input: Mapping[str, Any], workspace: Workspace) -> Effects:
    """What is done on a page reaches whoever the page belongs to."""
    from wieldy.browser.session import BrowserSession

    url = workspace.resident(BrowserSession).url
    return (Fetches(url),) if url else NOTHING
