"""Globs, find and xargs meet symlinks: what these lead to is judged like a file that is named."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from wieldy.shell.effects.command_part import Sweep
from wieldy.shell.effects.sweeps import UncertainNames, find_links


@pytest.fixture
def outside(root: str) -> Path:
    """A folder outside the project, with links to it in the project."""
    folder = Path(root).parent / "outside"
    folder.mkdir()
    (folder / "secret.md").write_text("secret\n")
    (folder / "plain.md").write_text("plain\n")
    project = Path(root)
    (project / "docs").mkdir()
    (project / "docs" / "a.md").write_text("text\n")
    (project / "notes.txt").write_text("text\n")
    (project / "linked.md").symlink_to(folder / "secret.md")
    (project / "tree").symlink_to(folder)
    return folder


@pytest.mark.parametrize(
    "command",
    [
        "cat *.md",
        "cat l*",
        "cat [k-m]inked.md",
        "head ./*",
        "cat */secret.md",
        "wc -l t*/*.md",
        "grep -r x *",
        'for f in *.md; do cat "$f"; done',
        "for f in *.md; do cat $f; done",
        "grep -R x .",
        "grep --dereference-recursive x .",
        "rg -L x",
        "find -L . -name x",
        "find . -follow -name x",
        "find . -name '*.md' -exec cat {} +",
        "find . -name '*.md' | xargs cat",
        "find . -print0 | xargs -0 cat",
        "find . -type f -o -name '*.md' | xargs cat",
        "find . ! -type f | xargs cat",
        "git ls-files | xargs cat",
        "diff -r . docs",
    ],
)
def test_a_link_that_leads_out_of_the_project_is_asked_about(judge, called, outside: Path, command: str) -> None:
    decision = judge().decide(called("Bash", command))
    assert decision.behavior == "ask"
    assert "outside" in decision.why


@pytest.mark.parametrize(
    "command",
    [
        "cat *.txt",
        "cat docs/*.md",
        "grep -r x .",
        "rg x",
        "find . -name '*.md'",
        "find . -type f | xargs cat",
        "find . -type f \\( -name '*.md' -o -name '*.txt' \\) | xargs grep x",
        "find . -name '*.txt' -not -path './x/*' | xargs cat",
        "ls *.md",
        'for f in docs/*; do cat "$f"; done',
        "for f in docs/*; do head -3 $f; wc -l $f; done",
        "for d in d*/; do ls $d; done",
    ],
)
def test_what_meets_no_such_link_is_not_asked_about(judge, called, outside: Path, command: str) -> None:
    (outside / "secret.md").unlink()
    (Path(outside.parent, "project", "linked.md")).unlink()
    assert judge().decide(called("Bash", command)).behavior == "allow"


def test_a_link_inside_the_project_is_as_good_as_a_file(judge, called, root: str) -> None:
    Path(root, "a.md").write_text("text\n")
    Path(root, "b.md").symlink_to("a.md")
    assert judge().decide(called("Bash", "cat *.md")).behavior == "allow"
    assert judge(deny=["Read(./a.md)"]).decide(called("Bash", "cat b*")).behavior != "allow"


@pytest.mark.parametrize("name", ["a b.py", "a\tb.py", "it's.py", 'a".py', "a\\b.py", "a\nb.py"])
def test_a_name_that_xargs_would_split_is_asked_about(judge, called, root: str, name: str) -> None:
    Path(root, name).write_text("")
    decision = judge().decide(called("Bash", "find . -name '*.py' | xargs cat"))
    assert decision.behavior == "ask"
    assert "xargs -0" in decision.why
    assert judge().decide(called("Bash", "find . -name '*.py' -print0 | xargs -0 cat")).behavior == "allow"


@pytest.mark.parametrize(
    "name", ["a b.py", "a\tb.py", "a\nb.py", "a*.py", "a?.py", "a[b].py", "a\\b.py", "x /etc/passwd.py"]
)
def test_a_name_that_bash_would_split_or_expand_is_asked_about(judge, called, root: str, name: str) -> None:
    path = Path(root, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("")
    loop = "for f in *.py x*/*/*.py; do cat {}; done"
    decision = judge().decide(called("Bash", loop.format("$f")))
    assert decision.behavior == "ask"
    assert "into quotes" in decision.why
    assert judge().decide(called("Bash", loop.format('"$f"'))).behavior == "allow"


def test_a_file_that_a_loop_would_split_into_a_denied_one_stays_denied(judge, called, root: str) -> None:
    Path(root, "x .env").write_text("")
    Path(root, ".env").write_text("SECRET=1")
    for mode in ("default", "acceptEdits", "bypassPermissions"):
        policy = judge(deny=["Read(.env)"], mode=mode)
        assert policy.decide(called("Bash", "for f in x*; do cat $f; done")).behavior != "allow"


@pytest.mark.parametrize(
    "command",
    [
        "find . | xargs -a list cat",
        "find . | xargs cat < list",
        "find . | sort <<< /etc/passwd | xargs cat",
        "ls -a | xargs grep -r x",
        "find . | tac -s q | xargs cat",
        "grep -l --label=/etc/passwd x - | xargs cat",
    ],
)
def test_names_that_do_not_come_from_a_listing_are_not_believed(judge, called, command: str) -> None:
    assert judge().decide(called("Bash", command)).behavior == "ask"


@pytest.mark.parametrize(
    "command",
    [
        "grep '' *",
        "wc *",
        "sort *",
        "ls | xargs grep ''",
        "ls | xargs md5sum",
        "git ls-files | xargs sort",
        "for f in *; do grep '' $f *; done",
        'for f in *; do sort "$f"; done',
        "cd sub && grep '' *",
    ],
)
def test_a_name_that_a_program_would_take_for_an_option_is_asked_about(judge, called, root: str, command: str) -> None:
    Path(root, "sub").mkdir()
    assert judge().decide(called("Bash", command)).behavior == "allow"
    for folder in (root, f"{root}/sub"):
        Path(folder, "-R").write_text("")
    decision = judge().decide(called("Bash", command))
    assert decision.behavior == "ask"
    assert "'-R'" in decision.why


def test_a_glob_behind_a_folder_finds_no_options(judge, called, root: str) -> None:
    Path(root, "-R").write_text("")
    assert judge().decide(called("Bash", "grep x ./* && sort ./*")).behavior == "allow"


def test_the_number_of_files_looked_at_is_bounded(tmp_path: Path) -> None:
    for name in range(30):
        (tmp_path / str(name)).touch()
    with pytest.raises(UncertainNames, match="too many"):
        list(find_links([Sweep(os.fspath(tmp_path))], max_entries=20))
