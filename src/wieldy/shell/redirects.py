"""What redirections touch."""

from __future__ import annotations

from wieldy.core.effect import Effect, Fetches, Reads, Writes
from wieldy.core.record import record
from wieldy.schema.pattern import pattern
from wieldy.shell.scene import Scene
from wieldy.shell.syntax import Redirect
from wieldy.shell.words import resolve

_STREAMS = frozenset({"/dev/null", "/dev/stdout", "/dev/stderr", "/dev/stdin", "/dev/tty"})
_SOCKET = pattern(r"/dev/(tcp|udp)/([^/]+)/([^/]+)")
_DUPLICATE = pattern(r"\d*-?")


@record
class Redirected:
    """The effects of some redirections; `why` says what could not be told."""

    effects: tuple[Effect, ...] = ()
    why: str = ""


UNREDIRECTED = Redirected()


def is_stream(path: str) -> bool:
    """Whether a path is no file: the null device, or what the shell has already opened."""
    return path in _STREAMS or path.startswith("/dev/fd/")


def redirected(redirects: tuple[Redirect, ...], scene: Scene) -> Redirected:
    """What these redirections read and write. Text given in place and the null device touch nothing."""
    effects: list[Effect] = []
    why = ""
    for redirect in redirects:
        if redirect.heredoc:
            continue
        words = resolve(redirect.target, scene)
        word = words[0]
        if len(words) != 1 or not word.static:
            why = f"the redirection to `{redirect.target.source}` cannot be told"
            continue
        if redirect.operator in (">&", "<&") and _DUPLICATE.fullmatch(word.text):
            continue
        if found := _SOCKET.fullmatch(word.text):
            effects.append(Fetches(f"{found.group(1)}://{found.group(2)}:{found.group(3)}"))
            why = f"`{word.text}` opens a connection"
            continue
        for path in scene.absolute(word.text) or ("",):
            if not path:
                why = "the folder of a redirection cannot be told"
            elif not is_stream(path):
                if redirect.operator in ("<", "<&", "<>"):
                    effects.append(Reads(path))
                if redirect.operator not in ("<", "<&"):
                    effects.append(Writes(path))
    return Redirected(tuple(effects), why)
