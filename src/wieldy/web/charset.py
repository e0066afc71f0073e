"""Bytes of a page as text: what its mark, its header and its own words say, checked against the bytes themselves."""

from __future__ import annotations

import codecs
import re

from wieldy.text.encoding import BOMS, decodes, detect

DECLARED = re.compile(
    rb"""<meta[^>]{0,200}?charset\s*=\s*["']?\s*([\w:.-]{1,40})|^<\?xml[^>]{0,100}?encoding=["']([\w:.-]{1,40})""",
    re.IGNORECASE,
)
DECLARED_WITHIN = 4096
# A charset that fails for one character in so many, or more, is not the right one.
FEW = 50
# What these names stand for on the web is a larger relative of what they say.
LARGER = {
    "ascii": "cp1252",
    "iso8859-1": "cp1252",
    "iso8859-9": "cp1254",
    "iso8859-11": "cp874",
    "gb2312": "gb18030",
    "gbk": "gb18030",
    "shift_jis": "cp932",
    "euc_kr": "cp949",
    "big5": "big5hkscs",
}
# Codecs that are no character sets of pages: decoding hostile bytes with them is at best nonsense.
NOT_FOR_PAGES = frozenset(
    {"utf-7", "idna", "punycode", "unicode-escape", "raw-unicode-escape", "undefined", "mbcs", "oem"}
)


def decode_page(body: bytes, declared: str | None, *, markup: bool = False) -> str:
    """The text of a page. `declared` is the charset of its header; with `markup` the page may name one itself."""
    marked = next(((bom, codec) for bom, codec in BOMS if body.startswith(bom)), None)
    if marked is not None:
        bom, codec = marked
        return body[len(bom) :].decode(codec, "replace")
    named = [declared, _named_inside(body) if markup else None]
    known = [codec for codec in map(_codec, named) if codec]
    for codec in known:
        # A page that was cut off may end within a character.
        if decodes(body, codec, whole=False):
            return body.decode(codec, "replace")
    as_said = body.decode(known[0], "replace") if known else ""
    if as_said.count(_LOST) * FEW < len(as_said):
        return as_said
    found = detect(body)
    return body[len(found.bom) :].decode(found.name, "replace")


def _named_inside(body: bytes) -> str | None:
    found = DECLARED.search(body[:DECLARED_WITHIN])
    if found is None:
        return None
    name = (found[1] or found[2]).decode("ascii", "replace").lower()
    # A page whose words can be read as bytes of ASCII is in none of the wide encodings, whatever it says.
    return "utf-8" if name.startswith(("utf-16", "utf-32")) else name


def _codec(name: str | None) -> str | None:
    """The Python codec of a charset label; None for one that is unknown or no character set."""
    try:
        found = codecs.lookup(name.strip().strip("\"'")) if name else None
    except (LookupError, ValueError):
        return None
    if found is None or found.name in NOT_FOR_PAGES or not getattr(found, "_is_text_encoding", True):
        return None
    return LARGER.get(found.name, found.name)


_LOST = "\N{REPLACEMENT CHARACTER}"
