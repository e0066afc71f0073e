"""Identities of attempts: the same for the same work, another one for anything that changes its outcome."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from tests.unit.faces.batch.repositories import git

from wieldy.core.git import SourceError
from wieldy.faces.batch.isolation import attempt_identity, fingerprint
from wieldy.faces.batch.tasks import Task, TaskLimits, TaskSource

TASK = Task(id="a", prompt="fix", source=TaskSource("root", "/x"), model="anthropic/m", settings={"a": 1, "b": 2})


def test_whatever_changes_the_outcome_changes_the_identity():
    variants = [
        TASK,
        replace(TASK, id="b"),
        replace(TASK, prompt="fix it"),
        replace(TASK, model="anthropic/n"),
        replace(TASK, mode="plan"),
        replace(TASK, tools=("Read",)),
        replace(TASK, settings={"a": 2, "b": 2}),
        replace(TASK, limits=TaskLimits(max_turns=1)),
        replace(TASK, setup="make"),
        replace(TASK, check="make test"),
        replace(TASK, env={"A": "1"}),
        replace(TASK, source=TaskSource("git", "/x", "abc")),
    ]
    identities = [attempt_identity(task) for task in variants]
    identities += [
        attempt_identity(TASK, sample=2),
        attempt_identity(TASK, isolate="copy"),
        attempt_identity(TASK, base_url="http://x"),
        attempt_identity(TASK, fingerprint="f"),
    ]
    assert len(set(identities)) == len(identities)


def test_labels_and_the_order_of_keys_do_not_change_it():
    assert attempt_identity(replace(TASK, tags=("easy",))) == attempt_identity(TASK)
    assert attempt_identity(replace(TASK, settings={"b": 2, "a": 1})) == attempt_identity(TASK)


def test_a_changed_script_is_another_model(tmp_path):
    script = tmp_path / "s.json"
    task = replace(TASK, model=f"script:{script}")
    script.write_text('{"turns": []}')
    before = attempt_identity(task)
    script.write_text('{"turns": [[]]}')
    assert attempt_identity(task) != before


def test_a_folder_is_known_by_its_files(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "a.txt").write_text("one")
    source = TaskSource("root", str(tmp_path))
    before = fingerprint(source)
    assert fingerprint(source) == before
    (tmp_path / "sub" / "a.txt").write_text("another")
    assert fingerprint(source) != before


def test_a_repository_is_known_by_its_commit_and_what_is_not_committed(tmp_path):
    git(tmp_path, "init", "-q")
    (tmp_path / ".gitignore").write_text("*.pyc\n")
    (tmp_path / "a.txt").write_text("one")
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-qm", "one")
    source = TaskSource("root", str(tmp_path))
    before = fingerprint(source)
    (tmp_path / "a.pyc").write_text("ignored")
    assert fingerprint(source) == before
    (tmp_path / "new.txt").write_text("untracked")
    untracked = fingerprint(source)
    (tmp_path / "a.txt").write_text("changed")
    assert len({before, untracked, fingerprint(source)}) == 3


def test_a_commit_of_a_repository_is_resolved_and_must_exist(tmp_path):
    git(tmp_path, "init", "-q")
    git(tmp_path, "commit", "-qm", "one", "--allow-empty")
    assert fingerprint(TaskSource("git", str(tmp_path), "HEAD")) == git(tmp_path, "rev-parse", "HEAD")
    for ref in ("nothing", "--help"):
        with pytest.raises(SourceError):
            fingerprint(TaskSource("git", str(tmp_path), ref))


def test_without_isolation_only_the_path_counts(tmp_path):
    source = TaskSource("root", str(tmp_path))
    assert fingerprint(source, isolate="none") == str(tmp_path)
    assert fingerprint(source) != str(tmp_path)
