from __future__ import annotations

import os
from pathlib import Path

import pytest

from wieldy.core.realpath import PathChanged
from wieldy.files.search.patterns import BadGlob
from wieldy.files.search.tree import fair_shares, list_tree


def put(root: Path, *names: str) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()


def test_a_tree_shows_folders_with_a_slash_and_names_in_order(tmp_path):
    put(tmp_path, "b.txt", "a/x.py", "a/deep/y.py")
    (tmp_path / "empty").mkdir()
    assert list(list_tree(str(tmp_path)).lines()) == ["a/", "  deep/", "    y.py", "  x.py", "b.txt", "empty/"]


def test_links_say_where_they_point_and_are_not_followed(tmp_path):
    put(tmp_path, "real/file")
    (tmp_path / "loop").symlink_to(tmp_path)
    (tmp_path / "broken").symlink_to("nowhere")
    lines = list(list_tree(str(tmp_path)).lines())
    assert lines == ["broken -> nowhere", f"loop -> {tmp_path}", "real/", "  file"]


def test_hidden_and_ignored_entries_are_counted_not_listed(tmp_path):
    put(tmp_path, ".env", ".git/config", "keep", "a.log", "build/x", "sub/b.log")
    (tmp_path / ".gitignore").write_text("*.log\nbuild/\n")
    tree = list_tree(str(tmp_path))
    assert list(tree.lines()) == ["keep", "sub/"]
    assert (tree.hidden, tree.ignored, tree.listed) == (3, 3, 2)


def test_globs_and_denied_files_leave_no_trace(tmp_path):
    put(tmp_path, "a.py", "a.pyc", "sub/b.pyc", "sub/secret", "sub/c.py")
    tree = list_tree(str(tmp_path), ["*.pyc"], hidden=lambda path: path.endswith("/secret"))
    assert list(tree.lines()) == ["a.py", "sub/", "  c.py"]
    assert tree.ignored == 0


def test_a_glob_that_cannot_be_read_is_refused(tmp_path):
    with pytest.raises(BadGlob):
        list_tree(str(tmp_path), ["[a"])


def test_one_huge_folder_does_not_eat_the_room_of_the_others(tmp_path):
    put(tmp_path, *(f"huge/{n:05}" for n in range(3000)), *(f"small/{n}" for n in range(20)), "z/deep/er/file")
    tree = list_tree(str(tmp_path), limit=300)
    lines = list(tree.lines())
    assert tree.listed == 300 and not tree.complete
    assert sum(line.strip().isdigit() and len(line.strip()) < 5 for line in lines) == 20
    assert "      file" in lines
    shown = sum(line.startswith("  00") for line in lines)
    assert f"  … {3000 - shown} more" in lines


def test_what_was_not_opened_is_marked(tmp_path):
    put(tmp_path, *(f"d{n:03}/{i}" for n in range(60) for i in range(9)))
    tree = list_tree(str(tmp_path), limit=100)
    lines = list(tree.lines())
    assert tree.listed <= 100 and not tree.complete
    assert any(line.endswith("/ (not opened)") for line in lines)
    assert sum(line.startswith("d") for line in lines) == 60


def test_a_flat_folder_may_use_all_the_room(tmp_path):
    put(tmp_path, *(f"{n:04}" for n in range(150)))
    tree = list_tree(str(tmp_path), limit=100)
    assert tree.listed == 100
    assert list(tree.lines())[-1] == "… 50 more"


def test_odd_names_stay_on_their_line(tmp_path):
    put(tmp_path, "~/x", "line\nbreak")
    with open(os.path.join(os.fsencode(tmp_path), b"bad\xff"), "wb"):
        pass
    tree = list_tree(str(tmp_path))
    assert list(tree.lines()) == ["bad\ufffd", "line\\nbreak", "./~/", "  x"]
    "\n".join(tree.names()).encode()


def test_a_folder_that_is_a_link_is_listed_by_its_realpath_only(tmp_path):
    put(tmp_path, "real/.gitignore", "real/file")
    (tmp_path / "link").symlink_to("real")
    with pytest.raises(PathChanged):
        list_tree(str(tmp_path / "link"))
    assert list(list_tree(os.path.realpath(tmp_path / "link")).lines()) == ["file"]


def test_the_flag_stops_the_walk(tmp_path):
    put(tmp_path, "a/b/c/d")
    assert list_tree(str(tmp_path), stopped=lambda: True).listed == 0


@pytest.mark.parametrize(
    ("wishes", "room", "shares"),
    [
        ([1, 100, 3], 10, [1, 6, 3]),
        ([5, 5], 20, [5, 5]),
        ([5, 5, 5], 4, [1, 1, 2]),
        ([], 5, []),
        ([0, 9], 3, [0, 3]),
    ],
)
def test_shares_are_fair_and_use_the_room(wishes, room, shares):
    assert fair_shares(wishes, room) == shares
