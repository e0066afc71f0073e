from __future__ import annotations

from pathlib import Path

import pytest

from wieldy.web.browser import PROXY_ONLY, find_browser, missing_requirement


def program(folder: Path, name: str) -> str:
    path = folder / name
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return str(path)


def test_the_browser_that_is_named_comes_before_what_is_found(tmp_path: Path) -> None:
    chrome, own = program(tmp_path, "google-chrome"), program(tmp_path, "own")
    assert find_browser({"PATH": str(tmp_path)}) == chrome
    chromium = program(tmp_path, "chromium")
    assert find_browser({"PATH": str(tmp_path)}) == chromium
    assert find_browser({"PATH": str(tmp_path), "WIELDY_BROWSER": own}) == own


def test_a_browser_in_a_relative_folder_of_path_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path, "chromium")
    monkeypatch.chdir(tmp_path)
    for path in (".", "", ":/no/such"):
        assert find_browser({"PATH": path}) is None


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    assert missing_requirement({"PATH": str(tmp_path), "WIELDY_BROWSER": program(tmp_path, "b")}) is None
    assert "cannot be run" in str(missing_requirement({"PATH": str(tmp_path), "WIELDY_BROWSER": "/no/such"}))


def test_no_name_is_resolved_by_the_browser_itself() -> None:
    assert "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1" in PROXY_ONLY
