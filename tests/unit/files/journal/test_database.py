"""The journal's database: what is durable, what happens when it is damaged, foreign, full, read-only or gone."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import resource
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wieldy import Toolbox
from wieldy.core.workspace import Workspace
from wieldy.files.apply_edit import write_changes
from wieldy.files.journal import store as store_module
from wieldy.files.journal.entries import ChangeOrigin, EntryFile, FileChange, Uncovered
from wieldy.files.journal.journal import COMPRESS_BYTES, Journal
from wieldy.files.journal.store import MIGRATIONS, ContentUnavailable, JournalDatabase, JournalStore
from wieldy.files.journal.undo import history, redo, undo
from wieldy.files.writing.disk import WriteError

EDIT = ChangeOrigin("s", "call", "Edit")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "a").write_bytes(b"0")
    return folder


def start_now(journal: Journal) -> tuple[str, ...]:
    """Like the one of `at_once`, which the child processes that run this file cannot import."""
    journal.recover()
    notices = tuple(journal.notices)
    journal.notices.clear()
    return notices


def journal_of(root: Path, **settings: object) -> Journal:
    env = {"WIELDY_HOME": str(root.parent / "home")}
    return Journal(Workspace(root, session_dir=root.parent / "s", env=env, settings={"journal": settings}))


def write(journal: Journal, path: Path, content: bytes) -> tuple[str, ...]:
    return write_changes(journal, [FileChange(str(path), path.read_bytes(), content)], EDIT).notes


def path_of(journal: Journal) -> Path:
    return Path(journal.store.database.path)


def test_entries_are_synced_and_settlements_are_not(tmp_path: Path):
    store = JournalStore(tmp_path / "journal.sqlite3")
    assert store.database.read(lambda db: db.execute("PRAGMA journal_mode").fetchone()) == ("wal",)
    statements: list[str] = []
    assert store.database._connection is not None
    store.database._connection.set_trace_callback(statements.append)
    store.settle(store.begin([], EDIT), "done")

    def mode_before(change: str) -> str:
        at = next(number for number, statement in enumerate(statements) if statement.startswith(change))
        return [statement for statement in statements[:at] if statement.startswith("PRAGMA synchronous")][-1]

    assert mode_before("INSERT INTO entries") == "PRAGMA synchronous=FULL"
    assert mode_before("UPDATE entries SET state") == "PRAGMA synchronous=NORMAL"


def test_a_database_and_its_companions_are_private(root: Path):
    journal = journal_of(root)
    write(journal, root / "a", b"1")
    folder = path_of(journal).parent
    assert folder.stat().st_mode & 0o077 == 0
    assert {file.stat().st_mode & 0o777 for file in folder.iterdir()} == {0o600}


def test_on_a_network_file_system_there_is_a_rollback_journal_and_every_commit_is_synced(
    root: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(store_module, "_may_be_on_network", lambda folder: True)
    journal = journal_of(root)
    write(journal, root / "a", b"1")
    assert not Path(f"{path_of(journal)}-wal").exists()
    assert journal.store.database.read(lambda db: db.execute("PRAGMA synchronous").fetchone()) == (2,)
    undo(journal_of(root))
    assert (root / "a").read_bytes() == b"0"


def stored(journal: Journal) -> tuple[int, int]:
    """The number of contents and their bytes."""
    count, size = journal.store.database.read_one("SELECT count(*), sum(length(data)) FROM contents")
    return count, size


def test_equal_content_is_stored_once_and_compressed_by_a_sweep(root: Path):
    journal = journal_of(root)
    text = b"the same line again and again\n" * 10_000
    for _ in range(3):
        write(journal, root / "a", text)
        write(journal, root / "a", b"0")
    assert stored(journal) == (2, len(text) + 1)
    journal.retention.sweep()
    count, size = stored(journal)
    assert count == 2 and size < len(text) / 20
    undo(journal)
    assert (root / "a").read_bytes() == text


ANOTHER_PROCESS = """
import sys
from pathlib import Path
from wieldy.files.journal.entries import ChangeOrigin, FileChange
from wieldy.files.journal.store import JournalStore

store = JournalStore(Path(sys.argv[1]))
for name in sys.argv[2:]:
    store.record([FileChange(f"/{name}", None, b"x")], ChangeOrigin("s", name, "Edit"))
print(*(entry.call_id for entry in store.find(active_only=False)))
store.close()
"""


def test_a_second_connection_of_a_process_leaves_the_locks_of_the_first(tmp_path: Path):
    """Closing any descriptor of a file drops all POSIX locks that the process has on it: another process that ended would
    take itself for the last one and remove the write-ahead log that is in use."""
    path = tmp_path / "journal.sqlite3"

    def record(store: JournalStore, name: str) -> None:
        store.record([FileChange(f"/{name}", None, b"x")], ChangeOrigin("s", name, "Edit"))

    def elsewhere(*names: str) -> list[str]:
        argv = [sys.executable, "-c", ANOTHER_PROCESS, str(path), *names]
        return subprocess.run(argv, capture_output=True, text=True, check=True).stdout.split()

    first, second = JournalStore(path), JournalStore(path)
    record(first, "a")
    record(second, "b")
    second.close()
    assert elsewhere("c") == ["a", "b", "c"]
    record(first, "d")
    assert elsewhere("e") == ["a", "b", "c", "d", "e"]
    first.close()
    assert elsewhere() == ["a", "b", "c", "d", "e"]


@pytest.mark.asyncio
async def test_contents_are_compressed_in_the_background_when_many_were_stored(root: Path):
    journal = journal_of(root)
    text = b"the same line again and again\n" * (COMPRESS_BYTES // 30 + 1)
    write(journal, root / "a", text)
    journal.sweep_if_due()
    while stored(journal)[1] >= len(text) / 20:
        await asyncio.sleep(0.01)
    await journal.aclose()
    undo(journal)
    assert (root / "a").read_bytes() == b"0"
    redo(journal)
    assert (root / "a").read_bytes() == text


@pytest.mark.asyncio
async def test_contents_are_compressed_where_a_session_runs_nothing_but_commands(root: Path, tmp_path, monkeypatch):
    monkeypatch.setenv("WIELDY_HOME", str(tmp_path / "home"))
    command = f"for n in $(seq 20); do yes $n | head -c {COMPRESS_BYTES // 18} > made$n; done"
    async with Toolbox(root, mode="bypassPermissions", settings={}) as box:
        journal = box.workspace.services.journal
        await journal.start()  # sweeps for today
        assert not (await box.call("Bash", command=command)).is_error
        assert stored(journal)[0] == 20
        while stored(journal)[1] >= COMPRESS_BYTES / 20:
            await asyncio.sleep(0.01)
        await box.undo()
        assert os.listdir(root) == ["a"]


def test_a_change_is_kept_where_the_system_allows_no_thread_to_compress(root: Path):
    journal = journal_of(root)
    text = b"the same line again and again\n" * (COMPRESS_BYTES // 30 + 1)
    write(journal, root / "a", text)
    assert journal.retention.is_due()  # the daily sweep is somebody else's
    threading.stack_size(1 << 46)
    try:
        journal.sweep_if_due()
    finally:
        threading.stack_size(0)
    assert stored(journal)[1] > len(text)
    journal.sweep_if_due()
    while stored(journal)[1] >= len(text) / 20:
        time.sleep(0.01)


NAMES = st.binary(max_size=12).map(lambda name: name.decode("utf-8", "surrogateescape")) | st.text(max_size=12)

UNCOVERED = st.lists(
    st.builds(Uncovered, path=NAMES, reason=NAMES, changed=st.booleans(), state=NAMES), max_size=3
).map(tuple)


@settings(max_examples=150, deadline=None)
@given(
    st.builds(ChangeOrigin, session=NAMES, call_id=NAMES, tool=NAMES, turn=st.none() | NAMES, uncovered=UNCOVERED),
    st.lists(st.tuples(NAMES, NAMES, st.none() | st.binary(), st.none() | st.integers(0, 0o7777)), max_size=3),
)
def test_an_entry_is_read_as_it_was_recorded(
    tmp_path_factory: pytest.TempPathFactory,
    origin: ChangeOrigin,
    files: list[tuple[str, str, bytes | None, int | None]],
):
    store = JournalStore(tmp_path_factory.mktemp("journal") / "journal.sqlite3")
    changes = [FileChange(path, None, content, real or "/", mode) for path, real, content, mode in files]
    entry_id = store.record(changes, origin)
    [entry] = store.find(call=origin.call_id)
    assert (entry.id, entry.session, entry.call_id, entry.tool, entry.turn, entry.uncovered) == (
        entry_id,
        origin.session,
        origin.call_id,
        origin.tool,
        origin.turn,
        origin.uncovered,
    )
    assert [(file.path, file.real_path, file.mode) for file in entry.files] == [
        (change.path, change.real_path, change.mode) for change in changes
    ]
    for file, change in zip(entry.files, changes, strict=True):
        assert (None if file.after_hash is None else store.content(file.after_hash)) == change.after
    store.close()


def test_folders_with_names_that_are_no_text_survive(tmp_path: Path):
    folders = ("/a", "/a/b\udcff")
    store = JournalStore(tmp_path / "journal.sqlite3")
    store._insert(EDIT, [EntryFile("/f", "/f", None, None, folders=folders)], {}, "done")
    assert store.find()[0].files[0].folders == folders


def damage(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[: min(len(data), 8192)] = os.urandom(min(len(data), 8192))
    path.write_bytes(data)


@pytest.mark.parametrize("kind", ["random bytes", "text", "damaged", "truncated", "foreign", "newer", "no tables"])
def test_an_unusable_database_is_set_aside_with_a_notice_and_the_edit_is_made(root: Path, kind: str):
    journal = journal_of(root)
    write(journal, root / "a", b"1")
    journal.store.close()
    path = path_of(journal)
    if kind == "random bytes":
        path.write_bytes(os.urandom(20_000))
    elif kind == "text":
        path.write_text("this is no database")
    elif kind == "damaged":
        damage(path)
    elif kind == "truncated":
        os.truncate(path, 5000)
    else:
        if kind == "foreign":
            path.unlink()
        with sqlite3.connect(path) as other:
            if kind == "foreign":
                other.execute("CREATE TABLE mine (x)")
            elif kind == "newer":
                other.execute(f"PRAGMA user_version={len(MIGRATIONS) + 1}")
            else:
                other.execute("DROP TABLE contents")
        other.close()
    before = path.read_bytes()
    later = journal_of(root)
    write(later, root / "a", b"2")
    assert (root / "a").read_bytes() == b"2"
    [notice] = start_now(later)
    assert "set aside" in notice and "can no longer be undone" in notice
    [aside] = path.parent.glob("*.unusable-*[0-9]")
    assert aside.read_bytes()[:100] == before[:100] and str(aside) in notice
    undo(journal_of(root))
    assert (root / "a").read_bytes() == b"1"


def test_a_database_damaged_while_it_is_open_does_not_stop_an_edit(root: Path):
    journal = journal_of(root)
    write(journal, root / "a", b"1")
    journal.store.database.reclaim_space()
    damage(path_of(journal))
    write(journal, root / "a", b"2")
    assert (root / "a").read_bytes() == b"2"


def test_a_damaged_content_is_noticed_and_stored_again_when_it_comes_up(root: Path):
    journal = journal_of(root)
    write(journal, root / "a", b"1")
    [entry] = history(journal)
    before = entry.files[0].before_hash
    assert before is not None
    journal.store.database.write(lambda db: db.execute("UPDATE contents SET data=x'00'"), durable=True)
    with pytest.raises(ContentUnavailable, match="damaged"):
        journal.store.content(before)
    write(journal, root / "a", b"0")
    assert journal.store.content(before) == b"0"


def test_a_journal_that_was_removed_meanwhile_begins_anew(root: Path):
    journal = journal_of(root)
    write(journal, root / "a", b"1")
    for file in path_of(journal).parent.iterdir():
        file.unlink()
    write(journal, root / "a", b"2")
    assert len(history(journal_of(root))) == 1
    path_of(journal).parent.rename(root.parent / "away")
    write(journal, root / "a", b"3")
    undo(journal_of(root))
    assert (root / "a").read_bytes() == b"2" and len(history(journal)) == 2


def test_an_older_schema_is_migrated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "journal.sqlite3"
    store = JournalStore(path)
    store.record([FileChange("/a", None, b"kept")], EDIT)
    store.close()
    monkeypatch.setattr(store_module, "MIGRATIONS", (*MIGRATIONS, "ALTER TABLE entries ADD COLUMN remark TEXT;"))
    later = JournalStore(path)
    assert later.database.read(lambda db: db.execute("SELECT call_id, remark FROM entries").fetchall()) == [
        ("call", None)
    ]
    assert later.database.read(lambda db: db.execute("PRAGMA user_version").fetchone()) == (len(MIGRATIONS) + 1,)


UNAVAILABLE = "This edit cannot be undone"


@pytest.mark.parametrize("required", [True, False])
def test_a_state_folder_that_cannot_be_made_stops_the_edit_unless_the_journal_is_not_required(
    root: Path, required: bool
):
    (root.parent / "home").write_bytes(b"a file is in the way")
    journal = journal_of(root, required=required)
    if required:
        with pytest.raises(WriteError, match=r"undo copy .*WIELDY_HOME.*journal\.required=false"):
            write(journal, root / "a", b"1")
        assert (root / "a").read_bytes() == b"0"
    else:
        [note] = write(journal, root / "a", b"1")
        assert note.startswith(UNAVAILABLE) and (root / "a").read_bytes() == b"1"
    assert os.listdir(root) == ["a"]


def test_a_full_database_stops_the_edit_and_leaves_everything_as_it_was(root: Path):
    journal = journal_of(root)
    write(journal, root / "a", b"1")
    [pages] = journal.store.database.read(lambda db: db.execute("PRAGMA page_count").fetchone())
    journal.store.database.read(lambda db: db.execute(f"PRAGMA max_page_count={pages}").fetchall())
    with pytest.raises(WriteError, match=r"undo copy .*The disk is full"):
        write(journal, root / "a", os.urandom(100_000))
    assert (root / "a").read_bytes() == b"1" and os.listdir(root) == ["a"]
    assert journal.store.pending() == [] and len(history(journal)) == 1
    undo(journal)
    assert (root / "a").read_bytes() == b"0"


def limited(root: Path) -> None:
    """Edit under a limit on the size of files, until the journal cannot grow any more; then see what is left."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (600_000, resource.RLIM_INFINITY))
    journal = journal_of(root)
    path, contents = root / "a", [b"0"]
    for _ in range(100):
        content = os.urandom(20_000)
        try:
            write(journal, path, content)
        except WriteError as error:
            assert "undo copy" in error.message, error.message
            break
        contents.append(content)
    else:
        raise AssertionError("the limit was never met")
    assert path.read_bytes() == contents[-1] and os.listdir(root) == ["a"]
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    # The last edit that was made may have met the limit when it was settled.
    notices = start_now(journal_of(root))
    assert notices in ((), (f"an interrupted edit was found complete: {path}",)), notices
    for content in reversed(contents[:-1]):
        undo(journal_of(root))
        assert path.read_bytes() == content


def test_a_journal_that_reaches_the_limit_while_it_grows_refuses_the_edit_and_can_undo_the_others(root: Path):
    done = subprocess.run([sys.executable, __file__, "limited", str(root)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def busy(root: Path) -> None:
    """Edit for ever, until somebody kills us."""
    journal, path = journal_of(root), root / "a"
    while True:
        write(journal, path, str(int(path.read_bytes()) + 1).encode())
        print("edited", flush=True)


def test_kills_at_random_times_leave_a_database_that_is_intact_and_undoes_everything(root: Path):
    for number in range(8):
        child = subprocess.Popen([sys.executable, __file__, "busy", str(root)], stdout=subprocess.PIPE)
        assert child.stdout is not None and child.stdout.readline()
        time.sleep(0.02 + number * 0.011)
        child.kill()
        child.communicate()
    journal = journal_of(root)
    assert all("interrupted edit" in notice for notice in start_now(journal))
    assert journal.store.database.read(lambda db: db.execute("PRAGMA integrity_check").fetchall()) == [("ok",)]
    assert os.listdir(root) == ["a"]
    last = int((root / "a").read_bytes())
    assert last > 0 and len(history(journal, limit=100_000)) == last
    for expected in range(last - 1, last - 6, -1):
        undo(journal)
        assert int((root / "a").read_bytes()) == expected


def test_two_processes_that_begin_at_once_create_one_database(root: Path):
    command = [sys.executable, __file__, "create", str(root)]
    children = [subprocess.Popen([*command, str(number)], stdout=subprocess.PIPE, text=True) for number in range(4)]
    assert [json.loads(child.communicate(timeout=60)[0]) for child in children] == [[]] * 4
    assert len(history(journal_of(root))) == 4


def create(root: Path, name: str) -> None:
    journal = journal_of(root)
    write_changes(journal, [FileChange(str(root / name), None, b"x")], EDIT)
    print(json.dumps(list(journal.notices)))


def test_a_connection_is_not_used_after_fork(root: Path):
    journal = journal_of(root)
    write(journal, root / "a", b"1")
    child = os.fork()
    if child == 0:
        status = 1
        try:
            journal.store.find()
        except OSError as error:
            status = 0 if error.errno == errno.EINVAL else 2
        os._exit(status)
    assert os.waitpid(child, 0)[1] == 0


def test_a_busy_database_is_waited_for(root: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(store_module, "BUSY_SECONDS", 0.2)
    journal = journal_of(root)
    write(journal, root / "a", b"1")
    other = JournalDatabase(path_of(journal), notify=lambda notice: None)
    late = journal_of(root)

    def hold(db: sqlite3.Connection) -> None:
        with pytest.raises(WriteError, match=r"undo copy .*locked"):
            write(late, root / "a", b"2")

    other.write(hold, durable=False)
    write(late, root / "a", b"2")
    assert (root / "a").read_bytes() == b"2"


if __name__ == "__main__":
    {"limited": limited, "busy": busy, "create": create}[sys.argv[1]](Path(sys.argv[2]), *sys.argv[3:])  # type: ignore[operator]
