"""The `url` of a call: rules are to see the host that will be talked to, however the model spelled it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wieldy.core.effect import Effects, Fetches
from wieldy.core.failure import Refusal
from wieldy.core.workspace import Workspace


def canonical_url(input: dict[str, Any], workspace: Workspace) -> dict[str, Any]:
    """The input with its `url` in canonical form. Raises `Refusal` for what is no web address."""
    from wieldy.web.address import BadAddress, parse_address

    try:
        return {**input, "url": parse_address(input["url"]).url}
    except BadAddress as problem:
        raise Refusal("normalise", str(problem)) from None


def fetches_url(input: Mapping[str, Any], workspace: Workspace) -> Effects:
    """Talks to the host of `url`."""
    return (Fetches(input["url"]),)
