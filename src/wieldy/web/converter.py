"""The child process that converts HTML on stdin to Markdown on stdout. Wraps html-to-markdown."""

from __future__ import annotations

import contextlib
import sys

CPU_SECONDS = 20
MAX_MEMORY = 2 << 30
MAX_DEPTH = 256


def main(url: str) -> None:
    """Limit our own CPU time and memory, then convert."""
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
        resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY, MAX_MEMORY))
    sys.stdout.buffer.write(convert(sys.stdin.buffer.read().decode("utf-8", "replace"), url).encode("utf-8", "replace"))


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
    return html_to_markdown.convert(page, options).content or ""
