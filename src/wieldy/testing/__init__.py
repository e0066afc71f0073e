"""Shipped doubles for the world: what to test an agent with. Names are resolved on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from wieldy.providers.script import Script
    from wieldy.testing.recorder import record

_HOME = {"Script": "wieldy.providers.script", "record": "wieldy.testing.recorder"}

__all__ = ["Script", "record"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'wieldy.testing' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOME[name]), name)
