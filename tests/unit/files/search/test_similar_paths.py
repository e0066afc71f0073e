from __future__ import annotations

import os
from pathlib import Path

from wieldy.files.search.format import find_similar_paths, scan_breadth_first


def put(root: Path, *names: str) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("x")


def test_a_misspelt_name_finds_its_neighbour(tmp_path):
    put(tmp_path, "settings.py", "unrelated.txt")
    assert find_similar_paths(str(tmp_path / "setings.py")) == [str(tmp_path / "settings.py")]


def test_another_ending_or_another_case_is_suggested(tmp_path):
    put(tmp_path, "config.yaml", "README.md")
    assert find_similar_paths(str(tmp_path / "config.json")) == [str(tmp_path / "config.yaml")]
    assert find_similar_paths(str(tmp_path / "readme.md")) == [str(tmp_path / "README.md")]


def test_the_same_name_in_a_folder_below_is_suggested(tmp_path):
    put(tmp_path, "src/deep/parser.py")
    assert find_similar_paths(str(tmp_path / "parser.py")) == [str(tmp_path / "src/deep/parser.py")]


def test_a_misspelt_folder_on_the_way_is_mended(tmp_path):
    put(tmp_path, "source/app/main.py", "other/main.txt")
    assert find_similar_paths(str(tmp_path / "sources/app/main.py"))[0] == str(tmp_path / "source/app/main.py")


def test_a_shared_ending_is_no_likeness(tmp_path):
    put(tmp_path, "app.py")
    assert find_similar_paths(str(tmp_path / "nope.py")) == []


def test_nothing_alike_gives_nothing(tmp_path):
    put(tmp_path, "zebra.txt")
    assert find_similar_paths(str(tmp_path / "configuration.py")) == []


def test_at_most_limit_names_come_back(tmp_path):
    put(tmp_path, *(f"module_{n}.py" for n in range(10)))
    assert len(find_similar_paths(str(tmp_path / "module_.py"), limit=2)) == 2


def test_names_that_are_not_utf8_are_never_suggested(tmp_path):
    with open(os.path.join(os.fsencode(tmp_path), b"settin\xffs.py"), "wb"):
        pass
    assert find_similar_paths(str(tmp_path / "settings.py")) == []


def test_the_scan_stops_at_its_budget(tmp_path):
    put(tmp_path, *(f"folder_{n}/file" for n in range(20)))
    assert len(list(scan_breadth_first(str(tmp_path), 10))) == 10
    assert len(list(scan_breadth_first(str(tmp_path), 100))) == 40


def test_the_root_and_an_empty_path_have_no_neighbours():
    assert find_similar_paths("/") == []
    assert find_similar_paths("") == []
