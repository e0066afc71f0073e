"""Files that a prompt names: images are sent with it."""

from __future__ import annotations

import os
import re
from urllib.parse import unquote

IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".gif", ".webp")
MAX_IMAGES = 10
# A path as terminals paste a dropped file: quoted, with escaped blanks, or as a URL; and `@path` as it is completed.
_PATH = re.compile(r"""'([^'\n]+)'|"([^"\n]+)"|((?:\\.|[^\s'"\\])+)""")


def image_paths(prompt: str, folder: str) -> list[str]:
    """The images of existing files that a prompt names, as absolute paths, each once."""
    if not any(suffix in prompt.lower() for suffix in IMAGE_SUFFIXES):
        return []
    paths: dict[str, None] = {}
    for match in _PATH.finditer(prompt):
        text = match[1] or match[2] or re.sub(r"\\(.)", r"\1", match[3] or "")
        text = text.removeprefix("@").strip("'\"").rstrip(",;:)?!.")
        if text.startswith("file://"):
            text = unquote(text.removeprefix("file://"))
        if not text.lower().endswith(IMAGE_SUFFIXES):
            continue
        path = os.path.join(folder, os.path.expanduser(text))
        if os.path.isfile(path):
            paths.setdefault(os.path.normpath(path))
    return list(paths)[:MAX_IMAGES]
