"""How much the journal keeps."""

from __future__ import annotations

import os
from pathlib import Path

from wieldy.files.journal.retention import DAY, Retention

NOW = 100 * DAY


def lay_out(home: Path, project: str, *files: tuple[int, float]) -> None:
    """Journal files of so many bytes, each last changed so many days ago, oldest first."""
    (home / project).mkdir(parents=True)
    for number, (size, days) in enumerate(files, 1):
        path = home / project / f"{number:06d}.journal"
        path.write_bytes(b"x" * size)
        os.utime(path, (NOW - days * DAY, NOW - days * DAY))


def kept(home: Path, project: str) -> list[str]:
    return sorted(path.name[:6] for path in (home / project).glob("*.journal"))


def test_what_is_too_old_goes_in_every_project_but_never_the_last_file(tmp_path: Path):
    lay_out(tmp_path, "one", (10, 50), (10, 31), (10, 29), (10, 0))
    lay_out(tmp_path, "two", (10, 400), (10, 300))
    dropped = Retention(tmp_path, max_age_days=30, clock=lambda: NOW).sweep()
    assert kept(tmp_path, "one") == ["000003", "000004"] and kept(tmp_path, "two") == ["000002"]
    assert [path.parent.name for path in dropped] == ["one", "one", "two"]


def test_the_oldest_go_first_when_all_together_are_too_large(tmp_path: Path):
    lay_out(tmp_path, "one", (400, 4), (400, 3), (400, 2), (400, 1))
    Retention(tmp_path, max_bytes=900, clock=lambda: NOW).sweep()
    assert kept(tmp_path, "one") == ["000002", "000003", "000004"]


def test_sweeping_happens_once_a_day(tmp_path: Path):
    now = [NOW]
    retention = Retention(tmp_path / "journal", clock=lambda: now[0])
    assert not retention.daily() and not (tmp_path / "journal").exists()
    lay_out(tmp_path / "journal", "one", (10, 0))
    assert retention.daily()
    os.utime(tmp_path / "journal" / "swept", (NOW, NOW))
    now[0] += DAY / 2
    assert not retention.daily()
    now[0] += DAY
    assert retention.daily() and not retention.daily()
