"""Tells a connection that broke from an answer that is an error, and says in a line why a server cannot be reached."""

from __future__ import annotations

import re

from wieldy.mcp.config import ServerConfig
from wieldy.mcp.tail import Tail

CONNECTION_CLOSED = -32000
_NUMBER = re.compile(r"^\[Errno -?\d+\] ")
SESSION_GONE = ("session terminated", "session not found", "connection closed")


def is_lost(error: BaseException) -> bool:
    """Whether the connection is no longer there, as opposed to an answer nobody likes."""
    import anyio
    import httpx2

    if isinstance(error, anyio.ClosedResourceError | anyio.BrokenResourceError | httpx2.TransportError | OSError):
        return True
    code = getattr(error, "code", None)
    said = str(getattr(error, "message", error)).lower()
    return code is not None and (any(words in said for words in SESSION_GONE))


def reason_of(error: BaseException, config: ServerConfig, stderr: Tail) -> str:
    """Why a server cannot be reached, for a person: what went wrong, and what it said itself."""
    error = _innermost(error)
    if isinstance(error, TimeoutError):
        why = f"no answer within {config.startup:g} s"
    elif isinstance(error, FileNotFoundError) and config.kind == "stdio":
        why = f"there is no program `{config.command}`" if not config.cwd else f"cannot start: {error}"
    elif isinstance(error, PermissionError) and config.kind == "stdio":
        why = f"`{config.command}` may not be run"
    else:
        why = _NUMBER.sub("", " ".join(str(error).split())) or type(error).__name__
    said = stderr.last_lines(1)
    return f"{why} ({said[:300]})" if said else why


def _innermost(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup) and error.exceptions:
        error = error.exceptions[0]
    return error
