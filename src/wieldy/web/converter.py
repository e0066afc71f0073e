"""The converter's own process: HTML on stdin, Markdown on stdout. Wraps html-to-markdown."""

from __future__ import annotations

import contextlib
import sys

CPU_SECONDS = 20
MEMORY = 2 << 30
DEEPEST = 256


def main(url: str) -> None:
    """Convert what comes in. The limits hold even when nobody is left who waits for the result."""
    _limit()
    sys.stdout.buffer.write(convert(sys.stdin.buffer.read().decode("utf-8", "replace"), url).encode("utf-8", "replace"))


def convert(page: str, url: str) -> str:
    """HTML as Markdown: links absolute, no scripts, no navigation, no data: pictures."""
    import html_to_markdown

    options = html_to_markdown.ConversionOptions(
        extract_metadata=False,
        inline_data_media="alt_text_only",
        strip_tags=["svg"],
        base_url=url,
        compact_tables=True,
        max_depth=DEEPEST,
        preprocessing=html_to_markdown.PreprocessingOptions(remove_forms=False),
    )
    return html_to_markdown.convert(page, options).content or ""


def _limit() -> None:
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
