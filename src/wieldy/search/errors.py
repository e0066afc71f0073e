"""A search that cannot be done as asked."""

from __future__ import annotations

from wieldy.search.format import name_in, on_one_line, readable
from wieldy.search.similar_paths import similar_names


class SearchFailure(Exception):
    """The message says what is wrong and what to do about it."""


def why_unreachable(path: str, error: OSError, cwd: str) -> str:
    """One or two sentences; for a missing path they name what is like it. Looks around in the file system."""
    shown = on_one_line(readable(path))
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        near = ", ".join(name_in(found, cwd) for found in similar_names(path))
        return f"{shown} does not exist." + (f" Did you mean: {near}?" if near else " Use Glob to find it.")
    if isinstance(error, PermissionError):
        return f"{shown} cannot be read: permission denied."
    return f"{shown} cannot be read: {error.strerror or error}."
