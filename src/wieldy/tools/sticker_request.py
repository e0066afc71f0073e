"""StickerRequest: checks a postal address and saves it on this machine."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from wieldy.core.effects import Effects, Writes
from wieldy.core.errors import Refusal
from wieldy.core.schema.fields import Param
from wieldy.core.state_dirs import state_home
from wieldy.core.tool import Output, ToolContext
from wieldy.core.tool_decorator import tool
from wieldy.core.workspace import Workspace

# The formats of postal codes; other countries may use any short text of letters, digits, spaces and dashes.
POSTAL_CODES: Mapping[str, str] = {
    "AT": r"\d{4}",
    "AU": r"\d{4}",
    "BE": r"\d{4}",
    "BR": r"\d{5}-?\d{3}",
    "CA": r"[A-Z]\d[A-Z] ?\d[A-Z]\d",
    "CH": r"\d{4}",
    "CN": r"\d{6}",
    "DE": r"\d{5}",
    "DK": r"\d{4}",
    "ES": r"\d{5}",
    "FR": r"\d{5}",
    "GB": r"[A-Z]{1,2}\d[A-Z\d]? ?\d[A-Z]{2}",
    "IN": r"\d{6}",
    "IT": r"\d{5}",
    "JP": r"\d{3}-?\d{4}",
    "NL": r"\d{4} ?[A-Z]{2}",
    "NO": r"\d{4}",
    "PL": r"\d{2}-\d{3}",
    "SE": r"\d{3} ?\d{2}",
    "US": r"\d{5}(-\d{4})?",
}
WITHOUT_POSTAL_CODES = frozenset({"AE", "HK", "IE", "QA"})
WITH_REGIONS = frozenset({"AU", "BR", "CA", "US"})


def _effects(input: Mapping[str, Any], workspace: Workspace) -> Effects:
    return (Writes(_folder(workspace)),)


def _folder(workspace: Workspace) -> str:
    return str(state_home(workspace.env) / "stickers")


def address_problems(address: Mapping[str, str]) -> Iterator[str]:
    """What is wrong with an address, one sentence each."""
    for name in ("name", "street", "city"):
        if not any(char.isalnum() for char in address[name]):
            yield f"`{name}` is empty."
        elif not all(char.isprintable() for char in address[name]):
            yield f"`{name}` must be one line."
    country, code = address["country"], address["postal_code"].upper()
    if not re.fullmatch("[A-Z]{2}", country):
        yield "`country` is a code of two letters, such as DE."
    elif country in WITH_REGIONS and not address["region"].strip():
        yield f"In {country} the address needs a `region`: the state or province."
    if not code and country in WITHOUT_POSTAL_CODES:
        return
    if not re.fullmatch(POSTAL_CODES.get(country, r"[A-Z\d][A-Z\d -]{1,9}"), code):
        yield f"`postal_code` {code or 'is missing and'} does not look like one of {country}."


async def _check(input: Mapping[str, Any], ctx: ToolContext) -> None:
    if problems := list(address_problems(_address(**input))):
        raise Refusal("check", f"{' '.join(problems)}", "Ask the user for what is missing; never make up an address.")


def _address(
    name: str, street: str, city: str, country: str, postal_code: str = "", region: str = ""
) -> dict[str, str]:
    fields = {
        "name": name,
        "street": street,
        "city": city,
        "region": region,
        "postal_code": postal_code,
        "country": country.upper(),
    }
    return {field: value.strip() for field, value in fields.items()}


@tool(name="StickerRequest", described_in=__file__, group="person", fails={}, effects=_effects, check=_check)
async def sticker_request(
    ctx: ToolContext,
    name: Annotated[str, Param(max_length=100)],
    street: Annotated[str, Param("With house number", max_length=200)],
    city: Annotated[str, Param(max_length=100)],
    country: Annotated[str, "Two letters, such as DE"],
    postal_code: str = "",
    region: Annotated[str, "State or province"] = "",
) -> Output:
    import os

    from wieldy.files.apply_edit import change_files
    from wieldy.files.journal.entries import FileChange

    address = _address(name, street, city, country, postal_code, region)
    at = time.strftime("%Y-%m-%dT%H-%M-%S", time.gmtime())
    folder = _folder(ctx.workspace)
    file = os.path.join(folder, f"{at}-{ctx.call_id}.json")
    real = os.path.join(ctx.resolved(folder), os.path.basename(file))
    content = json.dumps({"requested": at, **address}, ensure_ascii=False, indent=2) + "\n"
    await change_files(ctx, [FileChange(file, None, content.encode(), real, mode=0o600)], tool="StickerRequest")
    return Output(f"Written down in {file}. Nothing was sent.", {"file": file, **address})
