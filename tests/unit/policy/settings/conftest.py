"""A project with settings files in every layer, none of them of this machine."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from wieldy.policy.settings import Settings, load_settings


class Project:
    """Writes settings files and loads them."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "project"
        self.home = folder / "home"
        self.managed = folder / "etc" / "managed-settings.json"
        self.root.mkdir()
        self.home.mkdir()
        self.env = {"HOME": str(self.home), "WIELDY_HOME": str(self.home / "wieldy"), "WIELDY_TRUST": "1"}

    def file(self, layer: str) -> Path:
        return {
            "managed": self.managed,
            "local": self.root / ".wieldy" / "settings.local.json",
            "project": self.root / ".wieldy" / "settings.json",
            "user": self.home / "wieldy" / "settings.json",
            "claude local": self.root / ".claude" / "settings.local.json",
            "claude project": self.root / ".claude" / "settings.json",
            "claude user": self.home / ".claude" / "settings.json",
            "mcp": self.root / ".mcp.json",
        }[layer]

    def write(self, layer: str, content: Any) -> Path:
        file = self.file(layer)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content if isinstance(content, str) else json.dumps(content, indent=1))
        return file

    def load(self, start: Path | None = None, *, trusted: bool = True, **more: Any) -> Settings:
        env = self.env if trusted else {k: v for k, v in self.env.items() if k != "WIELDY_TRUST"}
        return load_settings(start or self.root, env=env, managed=self.managed, **more)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path.resolve())


@pytest.fixture
def rule_texts() -> Callable[[Settings], dict[str, list[str]]]:
    """The rules of settings as texts by behaviour."""

    def texts(settings: Settings) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {"deny": [], "ask": [], "allow": []}
        for rule in settings.rules.rules:
            found[rule.behavior].append(rule.text)
        return found

    return texts
