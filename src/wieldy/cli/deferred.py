"""Modules that asyncio, `subprocess` and `json` import and most runs never look into: they are loaded at the first look.

asyncio alone loads TLS, logging and the tools of a debugger. On the way to a first request that is
a quarter of the time, so the command line puts something small in the place of each; a library must not do such a thing, a
program may.
"""

from __future__ import annotations

import sys
import threading
from importlib import import_module
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from types import FrameType, ModuleType
from typing import Any

from wieldy.core.logs import Logger

UNUSED = ("asyncio.sslproto", "inspect", "ipaddress", "locale")

_loading = threading.RLock()
_begun: set[str] = set()


class Deferred(ModuleType):
    """A module that runs its code when somebody wants something of it. Threads that come together wait for one of them."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)  # what the import system asks every module
        with _loading:
            if self.__name__ not in _begun:
                _begun.add(self.__name__)
                assert self.__spec__ is not None
                assert self.__spec__.loader is not None
                self.__spec__.loader.exec_module(self)
                self.__class__ = ModuleType  # type: ignore[assignment]
            try:
                return self.__dict__[name]
            except KeyError:
                raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}") from None


class StandIn(ModuleType):
    """What asyncio or `json` has for a module: the names that it takes while it is imported. For others the module is asked."""

    def __init__(self, name: str, **known: Any) -> None:
        super().__init__(name)
        self.__dict__.update(known)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if sys.modules.get(self.__name__) is self:  # an asyncio that takes more than was known here
            del sys.modules[self.__name__]
        return getattr(import_module(self.__name__), name)


class Tls(StandIn):
    """What asyncio has for `ssl`: it asks of every socket whether it is one of TLS, which none is before `ssl` is loaded."""

    class NoSocket:
        """No socket is one of these."""

    def __getattr__(self, name: str) -> Any:
        if name == "SSLSocket" and sys.modules.get("ssl", self) is self:
            return Tls.NoSocket
        return super().__getattr__(name)


def extract_stack(f: FrameType | None = None, limit: int | None = None) -> Any:
    """`traceback.extract_stack`, which asyncio keeps for its debug mode."""
    import traceback

    return traceback.extract_stack(f or sys._getframe(1), limit)


def stand_ins() -> list[StandIn]:
    """All modules that something stands in for, with the values that the modules themselves have."""
    import _json

    return [
        StandIn(
            "concurrent.futures",
            FIRST_COMPLETED="FIRST_COMPLETED",
            FIRST_EXCEPTION="FIRST_EXCEPTION",
            ALL_COMPLETED="ALL_COMPLETED",
        ),
        StandIn("json.scanner", make_scanner=_json.make_scanner),
        StandIn("linecache"),
        StandIn("logging", DEBUG=10, getLogger=Logger),
        StandIn("subprocess", PIPE=-1, STDOUT=-2, DEVNULL=-3),
        StandIn("traceback", extract_stack=extract_stack),
        Tls("ssl"),
    ]


def import_asyncio() -> None:
    """Load asyncio, and `json`, without what they do not need yet. Where asyncio is loaded already, nothing is changed."""
    if "asyncio" in sys.modules:
        return
    for name in UNUSED:
        if name not in sys.modules and (module := _deferred(name)) is not None:
            sys.modules[name] = module
    standing = [one for one in stand_ins() if one.__name__ not in sys.modules]
    for one in standing:
        sys.modules[one.__name__] = one
        package, _, name = one.__name__.rpartition(".")
        if package:
            setattr(import_module(package), name, one)
    try:
        import asyncio  # noqa: F401 - for what it leaves behind
    finally:
        for one in standing:  # everybody else gets the module itself
            if sys.modules.get(one.__name__) is one:
                del sys.modules[one.__name__]


def _deferred(name: str) -> ModuleType | None:
    package, _, _ = name.rpartition(".")
    home = PathFinder.find_spec(package) if package else None
    spec = PathFinder.find_spec(name, home.submodule_search_locations if home else None)
    if spec is None:
        return None
    module = module_from_spec(spec)
    module.__class__ = Deferred
    return module
