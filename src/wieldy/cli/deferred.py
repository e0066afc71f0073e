"""Modules that asyncio imports and most runs never look into: they are loaded at the first look.

asyncio alone loads TLS, the tools of a debugger and the names of all locales. On the way to a first request that is a fifth of
the time, so the command line puts an empty module in the place of each; a library must not do such a thing, a program may.
"""

from __future__ import annotations

import sys
import threading
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from types import ModuleType
from typing import Any

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


class Tls(ModuleType):
    """What asyncio has for `ssl`: it asks of every socket whether it is one of TLS, which none is before `ssl` is loaded."""

    class NoSocket:
        """No socket is one of these."""

    def __getattr__(self, name: str) -> Any:
        if name == "SSLSocket" and "ssl" not in sys.modules:
            return Tls.NoSocket
        import ssl

        return getattr(ssl, name)


def import_asyncio() -> None:
    """Load asyncio without what it does not need yet. Where it is loaded already, nothing is changed."""
    if "asyncio" in sys.modules:
        return
    for name in UNUSED:
        if name not in sys.modules and (module := _deferred(name)) is not None:
            sys.modules[name] = module
    if "ssl" in sys.modules:
        import asyncio
    else:
        sys.modules["ssl"] = Tls("ssl")
        try:
            import asyncio  # noqa: F401 - for what it leaves behind
        finally:
            del sys.modules["ssl"]


def _deferred(name: str) -> ModuleType | None:
    package, _, _ = name.rpartition(".")
    home = PathFinder.find_spec(package) if package else None
    spec = PathFinder.find_spec(name, home.submodule_search_locations if home else None)
    if spec is None:
        return None
    module = module_from_spec(spec)
    module.__class__ = Deferred
    return module
