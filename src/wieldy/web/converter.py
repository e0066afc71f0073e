"""The child process that converts HTML on stdin to Markdown on stdout. Wraps html-to-markdown."""

from __future__ import annotations

import contextlib
import re
import sys
from html.parser import HTMLParser

from wieldy.core.console import write_to_parent

CPU_SECONDS = 20
MAX_MEMORY = 2 << 30
MAX_DEPTH = 1_000
"""html-to-markdown drops what is nested deeper."""
MAX_CONTAINERS = 250
"""Nested containers that are kept: with `tbody`, `tr` and `td`, each may be four levels."""

VOID = frozenset(
    ["area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "param", "source", "track", "wbr"]
)
CLOSED_BY_OTHERS = frozenset(
    ["p", "li", "dt", "dd", "tr", "td", "th", "thead", "tbody", "tfoot", "colgroup", "option", "optgroup", "rt", "rp"]
)
"""Elements whose end tag may be left out: they count as part of their container."""
_TAG = re.compile(r"<(/?)([a-zA-Z][a-zA-Z0-9-]*)")


def main(url: str) -> None:
    """Limit our own CPU time and memory, then convert."""
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
        resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY, MAX_MEMORY))
    write_to_parent(convert(sys.stdin.buffer.read().decode("utf-8", "replace"), url).encode("utf-8", "replace"))


def convert(page: str, url: str) -> str:
    """HTML as Markdown: links absolute, no scripts, no navigation, no data: images."""
    import html_to_markdown

    options = html_to_markdown.ConversionOptions(
        extract_metadata=False,
        inline_data_media="alt_text_only",
        strip_tags=["svg"],
        base_url=url,
        compact_tables=True,
        max_depth=MAX_DEPTH,
        preprocessing=html_to_markdown.PreprocessingOptions(remove_forms=False),
    )
    return html_to_markdown.convert(flatten(page), options).content or ""


def flatten(page: str) -> str:
    """Remove the tags of containers that are nested too deep for html-to-markdown; what they contain stays."""
    depth = 0
    for match in _TAG.finditer(page):
        if match[2].lower() not in VOID:
            depth = max(depth - 1, 0) if match[1] else depth + 1
            if depth > MAX_CONTAINERS:
                break
    else:
        return page
    flattener = _Flattener()
    flattener.feed(page)
    flattener.close()
    return "".join(flattener.pieces)


class _Flattener(HTMLParser):
    """Copies a page without the tags of containers deeper than `MAX_CONTAINERS`."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=False)
        self.pieces: list[str] = []
        self._depth = 0

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag not in VOID | CLOSED_BY_OTHERS:
            self._depth += 1
        if self._depth <= MAX_CONTAINERS or tag in VOID:
            self.pieces.append(self.get_starttag_text() or "")

    def handle_startendtag(self, tag: str, attrs: object) -> None:
        self.pieces.append(self.get_starttag_text() or "")

    def handle_endtag(self, tag: str) -> None:
        if self._depth <= MAX_CONTAINERS:
            self.pieces.append(f"</{tag}>")
        if tag not in VOID | CLOSED_BY_OTHERS:
            self._depth = max(self._depth - 1, 0)

    def handle_data(self, data: str) -> None:
        self.pieces.append(data)

    def handle_entityref(self, name: str) -> None:
        self.pieces.append(f"&{name};")

    def handle_charref(self, name: str) -> None:
        self.pieces.append(f"&#{name};")

    def handle_decl(self, decl: str) -> None:
        self.pieces.append(f"<!{decl}>")
