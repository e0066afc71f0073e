"""Where wieldy keeps its own files: settings follow XDG config, everything else XDG state; `WIELDY_HOME` moves both."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path


def config_home(env: Mapping[str, str] = os.environ) -> Path:
    """The folder of the user's settings."""
    return _home(env, "XDG_CONFIG_HOME", ".config")


def state_home(env: Mapping[str, str] = os.environ) -> Path:
    """The folder of sessions, journal and spilled results."""
    return _home(env, "XDG_STATE_HOME", ".local/state")


def _home(env: Mapping[str, str], variable: str, below_home: str) -> Path:
    if moved := env.get("WIELDY_HOME"):
        return Path(moved).expanduser().absolute()
    base = env.get(variable)
    if base and os.path.isabs(base):
        return Path(base) / "wieldy"
    return Path.home() / below_home / "wieldy"
