"""Tools that are off unless their feature is switched on, by `features.NAME` in the settings or `WIELDY_FEATURE_NAME`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

GATES: Mapping[str, str] = {
    "Architect": "architect",
    "MemoryRead": "memory",
    "MemoryWrite": "memory",
    "StickerRequest": "stickers",
}
FAMILIES: Mapping[str, str] = {"Browser": "browser"}
PREFIX = "WIELDY_FEATURE_"
YES = frozenset({"1", "true", "yes", "on"})
SIMPLE = "simple"


def is_on(feature: str, settings: Mapping[str, Any], env: Mapping[str, str]) -> bool:
    """Whether a feature is switched on; the environment has the last word."""
    said = env.get(PREFIX + feature.upper())
    if said is not None:
        return said.strip().lower() in YES
    features = settings.get("features")
    return isinstance(features, Mapping) and features.get(feature) is True


def gate_of(name: str, settings: Mapping[str, Any], env: Mapping[str, str]) -> str | None:
    """Why a tool is off, or None where no gate is shut before it."""
    feature = GATES.get(name) or next((f for family, f in FAMILIES.items() if name.startswith(family)), None)
    if feature is None or is_on(feature, settings, env):
        return None
    return f"off: switch it on with `features.{feature}` in the settings or {PREFIX}{feature.upper()}=1"
