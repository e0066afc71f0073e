"""A search that cannot be done as asked."""

from __future__ import annotations

from wieldy.search.format import escape_controls, readable, relative_path
from wieldy.search.similar_paths import similar_names


class SearchFailure(Exception):
    """The message says what is wrong and what to do about it."""


def why_unreachable(path: str, error: OSError, cwd: str) -> str:
    """One or two sentences; for a missing path they name what is like it. Looks around in the file system."""
    shown = escape_controls(readable(path))
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        near = ", ".join(relative_path(found, cwd) for found in similar_names(path))
        return f"{shown} does not exist." + (f" Did you mean: {near}?" if near else " Use Glob to find it.")
    if isinstance(error, PermissionError):
        return f"{shown} cannot be read: permission denied."
    return f"{shown} cannot be read: {error.strerror or error}."
