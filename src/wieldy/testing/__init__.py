"""Shipped doubles for the world: what to test an agent with. Names are resolved on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from wieldy.agent.recording import record_script as record
    from wieldy.providers.script import Script

_HOME = {"Script": ("wieldy.providers.script", "Script"), "record": ("wieldy.agent.recording", "record_script")}

__all__ = ["Script", "record"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'wieldy.testing' has no attribute {name!r}")
    from importlib import import_module

    module, there = _HOME[name]
    return getattr(import_module(module), there)
