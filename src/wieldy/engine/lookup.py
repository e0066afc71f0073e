"""Name → tool, or a refusal that names the nearest."""

from __future__ import annotations

from wieldy.core.call import ToolCall
from wieldy.core.catalog import Catalog
from wieldy.core.failure import Refusal
from wieldy.core.tool import Tool


def lookup(call: ToolCall, catalog: Catalog) -> Tool:
    """The tool a call names."""
    found = catalog.find(call.name)
    if found is not None:
        return found
    near = nearest(call.name, list(catalog))
    hint = f"Did you mean {' or '.join(f'`{name}`' for name in near)}? " if near else ""
    names = ", ".join(sorted(catalog))
    raise Refusal(
        "lookup", f"No such tool: `{call.name}`. {hint}Available tools: {names or 'none'}.", data={"nearest": near}
    )


def nearest(name: str, names: list[str], most: int = 3) -> list[str]:
    """The most similar names, best first; a difference in case or separators counts for nothing."""
    from difflib import get_close_matches

    plain = {_plain(candidate): candidate for candidate in names}
    return [plain[match] for match in get_close_matches(_plain(name), list(plain), n=most, cutoff=0.55)]


def _plain(name: str) -> str:
    return "".join(name.lower().replace("-", "_").split("_"))
