"""The settings of editing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from wieldy.core.errors import ToolFailure
from wieldy.core.workspace import Workspace
from wieldy.files.editing.revision import EditSettings


def settings_of(tmp_path: Path, **edit: Any) -> EditSettings:
    return EditSettings.of(Workspace(tmp_path, session_dir=tmp_path, settings={"edit": edit}))


def test_without_settings_everything_tolerant_is_on_and_changes_are_merged(tmp_path: Path) -> None:
    assert settings_of(tmp_path) == EditSettings()


def test_settings_are_taken(tmp_path: Path) -> None:
    made = settings_of(tmp_path, tolerance=["indentation"], onExternalChange="markers", maxBytes=7)
    assert made == EditSettings(("exact", "indentation"), "markers", 7)


def test_an_unknown_value_is_named_with_those_there_are(tmp_path: Path) -> None:
    with pytest.raises(ToolFailure, match=r"edit\.onExternalChange is 'guess'; it can be merge, error, markers"):
        settings_of(tmp_path, onExternalChange="guess")
