"""How much the journal keeps."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable
from pathlib import Path

from tests.unit.files.at_once import start_now

from wieldy.core.workspace import Workspace
from wieldy.files.journal.entries import ChangeOrigin, FileChange
from wieldy.files.journal.journal import DATABASE_NAME, DAY, Journal, Retention
from wieldy.files.journal.snapshot_contents import try_lock
from wieldy.files.journal.store import JournalStore

NOW = 100 * DAY


def store_at(home: Path, project: str, clock: Callable[[], float] = lambda: NOW) -> JournalStore:
    return JournalStore(home / project / DATABASE_NAME, clock=clock)


def lay_out(home: Path, project: str, *entries: tuple[int, float]) -> None:
    """Entries with so many bytes of new content, each so many days old, oldest first."""
    now = [NOW]
    store = store_at(home, project, lambda: now[0])
    for number, (size, days) in enumerate(entries, 1):
        now[0] = NOW - days * DAY
        store.record([FileChange(f"/{number}", None, os.urandom(size))], ChangeOrigin("s", str(number), "Edit"))
    store.close()


def kept(home: Path, project: str) -> list[str]:
    store = store_at(home, project)
    entries = store.find(active_only=False)
    for entry in entries:
        assert all(store.content(file.after_hash or "") for file in entry.files)
    contents = store.database.read(lambda db: db.execute("SELECT count(*) FROM contents").fetchone())[0]
    assert contents == len(entries), "there are contents without an entry"
    store.close()
    return [entry.call_id for entry in entries]


def test_what_is_too_old_goes_in_every_project(tmp_path: Path):
    lay_out(tmp_path, "one", (10, 50), (10, 31), (10, 29), (10, 0))
    lay_out(tmp_path, "two", (10, 400), (10, 300))
    Retention(tmp_path, max_age_days=30, clock=lambda: NOW).sweep()
    assert kept(tmp_path, "one") == ["3", "4"] and kept(tmp_path, "two") == []


def test_the_oldest_go_first_when_a_journal_is_too_large_and_its_space_is_given_back(tmp_path: Path):
    lay_out(tmp_path, "one", *((100_000, 20 - number / 10) for number in range(40)))
    database = tmp_path / "one" / DATABASE_NAME
    assert database.stat().st_size > 4_000_000
    Retention(tmp_path, max_bytes=2_000_000, clock=lambda: NOW).sweep()
    names = kept(tmp_path, "one")
    assert names[-1] == "40" and names == [str(number) for number in range(41 - len(names), 41)] and len(names) > 10
    assert sum(file.stat().st_size for file in database.parent.iterdir()) < 2_100_000


def test_the_newest_entry_and_what_is_being_written_stay_whatever_their_size(tmp_path: Path):
    lay_out(tmp_path, "one", (10, 3), (10, 2), (300_000, 1))
    Retention(tmp_path, max_bytes=1000, clock=lambda: NOW).sweep()
    assert kept(tmp_path, "one") == ["3"]


def test_a_journal_that_cannot_be_read_keeps_the_others_from_nothing(tmp_path: Path):
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / DATABASE_NAME).write_bytes(b"no database at all" * 100)
    lay_out(tmp_path, "one", (10, 50), (10, 0))
    Retention(tmp_path, clock=lambda: NOW).sweep()
    assert kept(tmp_path, "one") == ["2"]
    assert (tmp_path / "broken" / DATABASE_NAME).read_bytes().startswith(b"no database")


def test_sweeping_is_due_once_a_day(tmp_path: Path):
    now = [NOW]
    retention = Retention(tmp_path / "journal", clock=lambda: now[0])
    assert not retention.is_due() and not (tmp_path / "journal").exists()
    lay_out(tmp_path / "journal", "one", (10, 0))
    assert retention.is_due()
    os.utime(tmp_path / "journal" / "swept", (NOW, NOW))
    now[0] += DAY / 2
    assert not retention.is_due()
    now[0] += DAY
    assert retention.is_due() and not retention.is_due()


def make_session(folder: Path, name: str, age_days: float) -> Path:
    session = folder / "sessions" / name
    (session / "tool-results").mkdir(parents=True)
    (session / "transcript.jsonl").write_text("{}\n")
    then = time.time() - age_days * DAY
    for path in (session / "transcript.jsonl", session / "tool-results", session):
        os.utime(path, (then, then))
    return session


def test_sessions_go_when_nobody_has_used_them_for_the_days_that_the_setting_names(tmp_path):
    old, recent = make_session(tmp_path, "old", 11), make_session(tmp_path, "recent", 9)
    opened = make_session(tmp_path, "open", 30)
    (tmp_path / "journal").mkdir()
    with open(opened / "transcript.jsonl") as transcript:
        fcntl.flock(transcript, fcntl.LOCK_EX)
        Retention(tmp_path / "journal").sweep()
        assert old.exists(), "without the setting they stay"
        Retention(tmp_path / "journal", session_days=10).sweep()
    assert not old.exists() and recent.exists() and opened.exists()


def test_the_setting_reaches_the_sweep(tmp_path):
    old = make_session(tmp_path, "old", 2)
    (tmp_path / "journal").mkdir()
    env = {"WIELDY_HOME": str(tmp_path)}
    workspace = Workspace(tmp_path, session_dir=tmp_path / "s", env=env, settings={"cleanupPeriodDays": 1})
    start_now(Journal(workspace))
    assert not old.exists()


def test_copies_that_no_process_has_used_for_days_go(tmp_path):
    slot = tmp_path / "journal" / "p" / "snapshots" / "0"
    slot.mkdir(parents=True)
    (slot / "copies").write_bytes(b"x")
    Retention(tmp_path / "journal").sweep()
    assert (slot / "copies").exists()
    then = time.time() - 8 * DAY
    os.utime(slot / "copies", (then, then))
    Retention(tmp_path / "journal").sweep()
    assert not (slot / "copies").exists()


def test_a_slot_whose_copies_cannot_be_removed_is_released_and_the_others_are_swept(tmp_path):
    then = time.time() - 8 * DAY
    for number in range(2):
        slot = tmp_path / "journal" / "p" / "snapshots" / str(number)
        slot.mkdir(parents=True)
        (slot / "copies").write_bytes(b"x")
        os.utime(slot / "copies", (then, then))
    broken = tmp_path / "journal" / "p" / "snapshots" / "0"
    (broken / "a").mkdir()
    Retention(tmp_path / "journal").sweep()
    assert not (slot / "copies").exists()
    lock = try_lock(broken)
    assert lock is not None
    os.close(lock)
