from __future__ import annotations

import os
from pathlib import Path

import pytest

from wieldy.files.search.glob import find_files, split_pattern
from wieldy.files.search.ripgrep import Ripgrep, SearchFailure


def put(root: Path, *names: str) -> None:
    for when, name in enumerate(names):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        os.utime(path, (when, when))


async def found(pattern: str, root: Path, limit: int = 100) -> list[str]:
    files = await find_files(pattern, str(root), Ripgrep.installed(), limit)
    return [os.path.relpath(path, root) for path in files.files]


@pytest.mark.parametrize(
    ("pattern", "place", "rest"),
    [
        ("*.py", "/w", "/**/*.py"),
        ("./*.py", "/w", "/*.py"),
        ("src/**/*.py", "/w/src", "/**/*.py"),
        ("/abs/dir/*.c", "/abs/dir", "/*.c"),
        ("/*.c", "/", "/*.c"),
        ("a/b.txt", "/w/a", "/b.txt"),
        ("../x/*", "/x", "/*"),
        ("{a,b}/c", "/w", "/{a,b}/c"),
    ],
)
def test_the_search_starts_as_deep_as_the_pattern_allows(pattern, place, rest):
    assert split_pattern(pattern, "/w") == (place, rest)


def test_home_is_understood():
    assert split_pattern("~/x/*.py", "/w") == (os.path.expanduser("~/x"), "/*.py")


@pytest.mark.asyncio
async def test_files_come_newest_first(tmp_path):
    put(tmp_path, "old.py", "sub/mid.py", "new.py", "x.txt")
    assert await found("**/*.py", tmp_path) == ["new.py", "sub/mid.py", "old.py"]
    assert await found("*.py", tmp_path, limit=1) == ["new.py"]
    assert await found("./*.py", tmp_path) == ["new.py", "old.py"]


@pytest.mark.asyncio
async def test_paths_in_front_outside_and_above_are_followed(tmp_path):
    put(tmp_path, "here/a.c", "there/b.c", "there/deep/c.c")
    assert await found("../there/*.c", tmp_path / "here") == ["../there/b.c"]
    assert await found(f"{tmp_path}/there/**/*.c", tmp_path / "here") == ["../there/deep/c.c", "../there/b.c"]
    assert await found("there/deep/c.c", tmp_path) == ["there/deep/c.c"]


@pytest.mark.asyncio
async def test_hidden_files_are_found_but_not_those_of_git_and_no_folders(tmp_path):
    put(tmp_path, ".env", ".github/ci.yml", ".git/config", "sub/.git", "folder/x")
    assert sorted(await found("**/*", tmp_path)) == [".env", ".github/ci.yml", "folder/x"]
    assert await found("folder", tmp_path) == []


@pytest.mark.asyncio
async def test_a_name_with_brackets_is_found_by_itself(tmp_path):
    put(tmp_path, "app/[slug]/page.tsx", "app/s/page.tsx")
    assert sorted(await found("app/[slug]/page.tsx", tmp_path)) == ["app/[slug]/page.tsx", "app/s/page.tsx"]


@pytest.mark.asyncio
async def test_nothing_found_is_no_failure_and_a_missing_folder_is_nothing(tmp_path):
    assert await found("*.nope", tmp_path) == []
    assert await found("missing/**/*.py", tmp_path) == []


@pytest.mark.parametrize("pattern", ["", "/", "src/", "**/"])
@pytest.mark.asyncio
async def test_a_pattern_for_folders_walks_nothing_and_says_how_to_go_on(tmp_path, pattern):
    put(tmp_path, "src/a")
    files = await find_files(pattern, str(tmp_path), Ripgrep.installed())
    assert files.total == 0 and "**/*" in files.notices[0]


@pytest.mark.asyncio
async def test_the_total_is_known_beyond_the_limit(tmp_path):
    put(tmp_path, *(f"{n}.py" for n in range(30)))
    files = await find_files("*.py", str(tmp_path), Ripgrep.installed(), 3)
    assert [os.path.basename(path) for path in files.files] == ["29.py", "28.py", "27.py"]
    assert files.total == 30
    assert len((await find_files("*.py", str(tmp_path), Ripgrep.installed(), 0)).files) == 30


@pytest.mark.asyncio
async def test_a_pattern_that_cannot_be_read_says_why(tmp_path):
    with pytest.raises(SearchFailure, match="without its"):
        await found("*.{py,txt", tmp_path)
