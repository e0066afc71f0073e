"""`@path` completes files that no ignore rule hides, `/` commands; paths may have blanks and any letters."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from prompt_toolkit.completion import CompleteEvent, Completer
from prompt_toolkit.document import Document

from wieldy.faces.terminal.chat import image_paths
from wieldy.faces.terminal.input import CommandCompleter, FileIndex, PathCompleter, rank


def completed(completer: Completer, text: str) -> list[str]:
    event = CompleteEvent()
    document = Document(text, len(text))
    return [text[: len(text) + each.start_position] + each.text for each in completer.get_completions(document, event)]


@pytest.fixture
def index(tmp_path: Path) -> FileIndex:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".gitignore").write_text("build/\n")
    for name in (
        "src/main.py",
        "src/domain.py",
        "build/out.py",
        "a file.txt",
        "größe/日本.md",
        ".env.example",
        ".git/x",
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
    return FileIndex(str(tmp_path))


def test_files_are_found_by_some_of_their_letters(index: FileIndex) -> None:
    assert completed(PathCompleter(index), "look at @main")[:2] == ["look at @src/main.py", "look at @src/domain.py"]
    assert completed(PathCompleter(index), "@srmn")[0] == "@src/main.py"
    assert completed(PathCompleter(index), "@日本") == ["@größe/日本.md"]
    assert "@größe/" in completed(PathCompleter(index), "@größe")


def test_a_path_with_blanks_is_quoted(index: FileIndex) -> None:
    assert completed(PathCompleter(index), "@afil") == ['@"a file.txt"']
    assert completed(PathCompleter(index), '@"a fi') == ['@"a file.txt"']


def test_ignored_files_and_the_repository_itself_are_left_out(index: FileIndex) -> None:
    paths = index.paths()
    assert "build/out.py" not in paths
    assert not [path for path in paths if path.startswith(".git/")]
    assert ".env.example" in paths


@pytest.mark.parametrize("text", ["me@main", "main", "@main.py and"])
def test_nothing_is_offered_elsewhere(index: FileIndex, text: str) -> None:
    assert completed(PathCompleter(index), text) == []


def test_a_folder_that_is_gone_offers_nothing(tmp_path: Path) -> None:
    assert FileIndex(str(tmp_path / "nowhere")).search("a") == []


def test_names_that_command_a_terminal_are_not_offered(tmp_path: Path) -> None:
    (tmp_path / "a\x1b[2Jb").write_text("")
    (tmp_path / "ab").write_text("")
    assert FileIndex(str(tmp_path)).search("ab") == ["ab"]


def test_the_name_counts_more_than_the_folder() -> None:
    paths = ["test/helpers/x.py", "src/test.py", "src/latest.py", "src/contest/a.py"]
    assert rank("test", paths)[:2] == ["src/test.py", "src/latest.py"]


def test_letters_that_only_slashes_part_count_more_than_scattered_ones() -> None:
    paths = ["pkg7/mod707/f.py", "pkg77/mod77/file.py"]
    assert rank("mod77f", paths)[0] == "pkg77/mod77/file.py"


def test_commands_and_their_arguments_are_completed() -> None:
    chat: Any = SimpleNamespace(named_prompts={"git:push": "Push it"})
    completer = CommandCompleter(chat)
    assert completed(completer, "/com") == ["/compact"]
    assert completed(completer, "/git") == ["/git:push"]
    assert completed(completer, "/mode ac") == ["/mode acceptEdits"]
    assert completed(completer, "say /com") == []


def test_images_are_found_as_terminals_paste_them(tmp_path: Path) -> None:
    for name in ("a.png", "b c.jpg", "größe.webp", "no.txt"):
        (tmp_path / name).write_text("")
    folder = str(tmp_path)
    found = [str(tmp_path / name) for name in ("a.png", "b c.jpg", "größe.webp")]
    prompt = f"what is a.png, '{folder}/b c.jpg' and file://{folder}/gr%C3%B6%C3%9Fe.webp? no.txt missing.png"
    assert image_paths(prompt, folder) == found
    assert image_paths(f"{folder}/b\\ c.jpg", folder) == [found[1]]
    assert image_paths('see @"b c.jpg" @a.png a.png', folder) == [found[1], found[0]]
    assert image_paths("no pictures here", folder) == []
