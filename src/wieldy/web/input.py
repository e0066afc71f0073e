"""The `url` of a call: rules are to see the host that will be talked to, however the model spelled it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from wieldy.core.effect import Effects, Fetches
from wieldy.core.failure import Refusal
from wieldy.core.workspace import Workspace

if TYPE_CHECKING:
    from wieldy.web.address import WebAddress


def canonical_url(input: dict[str, Any], workspace: Workspace) -> dict[str, Any]:
    """The input with its `url` in canonical form. Raises `Refusal` for what is no web address."""
    return {**input, "url": _parsed(input["url"]).url}


def canonical_page(input: dict[str, Any], workspace: Workspace) -> dict[str, Any]:
    """The same, but with the part after `#`: pages that are programs have their places there."""
    from urllib.parse import quote, urlsplit

    from wieldy.web.address import KEPT_IN_QUERY

    url = _parsed(input["url"]).url
    fragment = quote(urlsplit(input["url"].strip()).fragment, safe=KEPT_IN_QUERY)
    return {**input, "url": f"{url}#{fragment}" if fragment else url}


def fetches_url(input: Mapping[str, Any], workspace: Workspace) -> Effects:
    """Talks to the host of `url`."""
    return (Fetches(input["url"]),)


def _parsed(url: str) -> WebAddress:
    from wieldy.web.address import BadAddress, parse_address

    try:
        return parse_address(url)
    except BadAddress as problem:
        raise Refusal("normalise", str(problem)) from None
