"""The journal beside a model of it: a dict of files and a list of what was done to them."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.fault_disks import UnsyncedDisk
from tests.unit.files.at_once import start_now

from wieldy.core.errors import StaleFileError
from wieldy.core.workspace import Workspace
from wieldy.files.apply_edit import write_changes
from wieldy.files.journal.entries import ChangeOrigin, FileChange
from wieldy.files.journal.journal import Journal
from wieldy.files.journal.undo import CannotUndo, UndoSelector, history, redo, undo

names = st.sampled_from(["a", "b", "in/c", "in/side/d"])
contents = st.sampled_from([b"", b"one\n", b"two\n", b"three\n", b"\0\xff"])


@dataclass(eq=False)
class Deed:
    """One entry: what it did to each file, and what it took back."""

    kind: str
    call: str
    did: dict[str, tuple[bytes | None, bytes | None]]
    reverses: list[Deed] = field(default_factory=list)
    stands: bool = True

    def set(self, stands: bool) -> None:
        self.stands = stands
        for deed in self.reverses:
            deed.set(not stands)


class JournalMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.place = Path(tempfile.mkdtemp())
        self.root = self.place / "project"
        self.root.mkdir()
        self.files: dict[str, bytes] = {}
        self.deeds: list[Deed] = []
        self.reopen()

    def teardown(self) -> None:
        shutil.rmtree(self.place)

    @rule()
    def reopen(self) -> None:
        workspace = Workspace(self.root, session_dir=self.place, env={"WIELDY_HOME": str(self.place / "home")})
        self.journal = Journal(workspace, disk=UnsyncedDisk(max_bytes=1 << 20))
        assert start_now(self.journal) == ()

    @rule(wish=st.dictionaries(names, st.none() | contents, min_size=1))
    def change(self, wish: dict[str, bytes | None]) -> None:
        call = f"call {len(self.deeds)}"
        changes = [FileChange(str(self.root / name), self.files.get(name), after) for name, after in wish.items()]
        write_changes(self.journal, changes, ChangeOrigin("s", call, "Edit"))
        did = {name: (self.files.get(name), after) for name, after in wish.items() if self.files.get(name) != after}
        if did:
            self.take(Deed("edit", call, did))

    @rule(name=names, stale=contents, after=contents)
    def change_what_is_no_longer_there(self, name: str, stale: bytes, after: bytes) -> None:
        if self.files.get(name) == stale:
            return
        with pytest.raises(StaleFileError):
            write_changes(
                self.journal, [FileChange(str(self.root / name), stale, after)], ChangeOrigin("s", "x", "Edit")
            )

    @rule(name=names, content=contents)
    def someone_writes(self, name: str, content: bytes) -> None:
        (self.root / name).parent.mkdir(parents=True, exist_ok=True)
        (self.root / name).write_bytes(content)
        self.files[name] = content

    @rule(name=names)
    def someone_deletes(self, name: str) -> None:
        (self.root / name).unlink(missing_ok=True)
        self.files.pop(name, None)

    @precondition(lambda self: self.standing("edit"))
    @rule()
    def undo_last(self) -> None:
        self.reverse("undo", self.standing("edit")[-1], lambda: undo(self.journal))

    @precondition(lambda self: self.standing("edit"))
    @rule(data=st.data())
    def undo_some_call(self, data: st.DataObject) -> None:
        deed = data.draw(st.sampled_from(self.standing("edit")))
        self.reverse("undo", deed, lambda: undo(self.journal, UndoSelector(deed.call)))

    @precondition(lambda self: self.standing("undo"))
    @rule()
    def redo_last(self) -> None:
        self.reverse("redo", self.standing("undo")[-1], lambda: redo(self.journal))

    @precondition(lambda self: not self.standing("edit"))
    @rule()
    def undo_nothing(self) -> None:
        with pytest.raises(CannotUndo):
            undo(self.journal)

    @invariant()
    def files_agree(self) -> None:
        found = {str(path.relative_to(self.root)): path for path in self.root.rglob("*") if path.is_file()}
        assert {name: path.read_bytes() for name, path in found.items()} == self.files

    @invariant()
    def history_agrees(self) -> None:
        told = [(entry.kind, entry.active) for entry in history(self.journal, limit=1000)]
        assert told[::-1] == [(deed.kind, deed.stands) for deed in self.deeds]

    def standing(self, kind: str) -> list[Deed]:
        return [deed for deed in self.deeds if deed.kind == kind and deed.stands]

    def take(self, deed: Deed) -> None:
        self.deeds.append(deed)
        deed.set(True)
        for name, (_, after) in deed.did.items():
            if after is None:
                self.files.pop(name, None)
            else:
                self.files[name] = after

    def reverse(self, kind: str, deed: Deed, act: object) -> None:
        assert callable(act)
        if any(self.files.get(name) not in states for name, states in deed.did.items()):
            with pytest.raises(CannotUndo):
                act()
            return
        act()
        back = {name: (after, before) for name, (before, after) in deed.did.items() if self.files.get(name) == after}
        self.take(Deed(kind, kind, back, [deed]))


JournalMachine.TestCase.settings = settings(max_examples=50, stateful_step_count=20, deadline=None)
test_the_journal_behaves_as_its_model = JournalMachine.TestCase
