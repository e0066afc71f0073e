"""What was judged is what is opened."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading

import pytest
from tests.needs import skip_untested

from wieldy import Toolbox
from wieldy.core.realpath import PathChanged, open_resolved, open_resolved_folder, realpath

SWAPS = 1_000


def test_a_real_path_is_opened(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a/f").write_text("hello")
    file = open_resolved(str(tmp_path / "a/f"), os.O_RDONLY)
    assert os.read(file, 10) == b"hello"
    os.close(file)


@pytest.mark.parametrize("link", ["a", "a/f"])
def test_a_link_anywhere_on_the_way_is_refused(tmp_path, link):
    (tmp_path / "real/a").mkdir(parents=True)
    (tmp_path / "real/a/f").write_text("hello")
    (tmp_path / "a").mkdir()
    (tmp_path / "a/f").write_text("mine")
    path = tmp_path / link
    path.rename(tmp_path / "moved")
    path.symlink_to(tmp_path / "real" / link)
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(PathChanged):
        open_resolved(str(tmp_path / "a/f"), os.O_RDONLY)
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("link", ["a", "a/b", "a/b/c"])
def test_a_folder_behind_a_link_is_refused(tmp_path, link):
    (tmp_path / "real/a/b/c").mkdir(parents=True)
    (tmp_path / "a/b/c").mkdir(parents=True)
    path = str(tmp_path / "a/b/c")
    os.close(open_resolved_folder(path))
    (tmp_path / link).rename(tmp_path / "moved")
    (tmp_path / link).symlink_to(tmp_path / "real" / link)
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(PathChanged):
        open_resolved_folder(path)
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_file_on_the_way_to_a_folder_is_no_folder(tmp_path):
    (tmp_path / "a").write_text("a file")
    for path in (tmp_path / "a", tmp_path / "a/b"):
        with pytest.raises(NotADirectoryError):
            open_resolved_folder(str(path))


@pytest.mark.parametrize("path", ["/", "/usr", "/usr//bin", "/usr/"])
def test_a_folder_is_found_however_it_is_spelled(path):
    folder = open_resolved_folder(path)
    assert os.path.samestat(os.fstat(folder), os.stat(path))
    os.close(folder)


WITHOUT_PROC = """
import os, sys
from pathlib import Path
from wieldy.core.realpath import PathChanged, open_resolved, open_resolved_folder

assert not os.path.exists("/proc/self")
root = Path(sys.argv[1])
(root / "a").mkdir()
(root / "a/f").write_text("hello")
(root / "link").symlink_to("a")
assert os.read(open_resolved(f"{root}/a/f", os.O_RDONLY), 9) == b"hello"
assert os.path.samestat(os.fstat(open_resolved_folder(f"{root}/a")), os.stat(root / "a"))
for opened in (lambda: open_resolved(f"{root}/link/f", os.O_RDONLY), lambda: open_resolved_folder(f"{root}/link")):
    try:
        opened()
    except PathChanged:
        continue
    raise AssertionError("it was followed")
print("as anywhere")
"""


def test_where_the_system_does_not_tell_paths_all_is_the_same(tmp_path):
    unshare = shutil.which("unshare")
    if unshare is None or os.geteuid() != 0:
        pytest.skip("only root can hide /proc")
    hide = 'mount -t tmpfs none /proc && exec "$@"'
    command = [unshare, "-m", "sh", "-c", hide, "sh", sys.executable, "-c", WITHOUT_PROC, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    if "permission denied" in done.stderr.lower():
        pytest.skip(f"mounting is not allowed here: {done.stderr.strip()}")
    assert (done.stdout, done.stderr) == ("as anywhere\n", "")


def test_what_is_missing_is_an_ordinary_error_with_its_path(tmp_path):
    with pytest.raises(FileNotFoundError) as caught:
        open_resolved(str(tmp_path / "no/f"), os.O_RDONLY)
    assert caught.value.filename == str(tmp_path / "no/f")


@pytest.mark.asyncio
@pytest.mark.parametrize("what", ["file", "folder"])
async def test_a_thousand_swaps_between_judging_and_opening_never_lead_outside(tmp_path, monkeypatch, what):
    monkeypatch.setenv("WIELDY_HOME", str(tmp_path / "home"))
    root, outside = tmp_path / "root", tmp_path / "outside"
    for folder in (root / "d", outside):
        folder.mkdir(parents=True)
        (folder / "f").write_text("inside" if folder != outside else "SECRET")
    spot, kept = (root / "d/f", root / "d/kept") if what == "file" else (root / "d", root / "kept")
    target = outside / "f" if what == "file" else outside
    link = root / "link"
    link.symlink_to(target)
    stop = threading.Event()

    def swap() -> None:
        while not stop.is_set():
            os.rename(spot, kept)
            os.rename(link, spot)
            os.rename(spot, link)
            os.rename(kept, spot)

    swapper = threading.Thread(target=swap)
    swapper.start()
    async with Toolbox(root, settings={"read": {"unchangedStub": False}}) as box:
        try:
            for _ in range(SWAPS):
                result = await box.call("Read", file_path="d/f")
                assert "SECRET" not in result.text
                assert " failed: " not in result.text, result.text
        finally:
            stop.set()
            swapper.join()
        # How many of the reads met the file in its place is a matter of scheduling; this one does.
        assert "inside" in (await box.call("Read", file_path="d/f")).text


@pytest.mark.asyncio
@pytest.mark.parametrize("what", ["file", "folder"])
async def test_a_thousand_swaps_between_judging_and_writing_never_lead_outside(tmp_path, monkeypatch, what):
    monkeypatch.setenv("WIELDY_HOME", str(tmp_path / "home"))
    root, outside = tmp_path / "root", tmp_path / "outside"
    (root / "d").mkdir(parents=True)
    outside.mkdir()
    (root / "d/f").write_text("inside 0\n")
    (outside / "f").write_text("SECRET\n")
    spot, kept = (root / "d/f", root / "d/kept") if what == "file" else (root / "d", root / "kept")
    link = root / "link"
    link.symlink_to(outside / "f" if what == "file" else outside)
    stop = threading.Event()

    def swap() -> None:
        # A write may replace what lies at the spot: then there is nothing to put back, and the round is over.
        while not stop.is_set():
            try:
                os.rename(spot, kept)
                os.rename(link, spot)
                os.rename(spot, link)
                os.rename(kept, spot)
            except OSError:
                continue

    swapper = threading.Thread(target=swap)
    swapper.start()
    try:
        async with Toolbox(root, settings={"journal": {"enabled": False}}, mode="acceptEdits") as box:
            for number in range(SWAPS):
                if number % 3 == 0:
                    await box.call("Read", file_path="d/f")
                name, input = (
                    ("Write", {"content": f"inside {number}\n"})
                    if number % 2
                    else (
                        "Edit",
                        {"old_string": "inside", "new_string": "inside"[:3] + f"{number}"},
                    )
                )
                result = await box.call(name, {"file_path": "d/f", **input})
                assert "SECRET" not in result.text
                assert " failed: " not in result.text, result.text
    finally:
        stop.set()
        swapper.join()
    assert (outside / "f").read_text() == "SECRET\n"
    assert [entry.name for entry in outside.iterdir()] == ["f"]


UNREADABLE_LINK = "/proc/1/cwd"
CALLS = [
    ("Read", {"file_path": f"{UNREADABLE_LINK}/x"}),
    ("Write", {"file_path": f"{UNREADABLE_LINK}/x", "content": "x"}),
    ("Edit", {"file_path": f"{UNREADABLE_LINK}/x", "old_string": "x", "new_string": "y"}),
    ("Glob", {"pattern": "*", "path": UNREADABLE_LINK}),
    ("Grep", {"pattern": "x", "path": UNREADABLE_LINK}),
    ("LS", {"path": UNREADABLE_LINK}),
    ("FileSearch", {"pattern": "x", "path": UNREADABLE_LINK}),
    ("Bash", {"command": f"cat {UNREADABLE_LINK}/x"}),
    ("Bash", {"command": f"echo x > {UNREADABLE_LINK}/x"}),
]


def _require_unreadable_link():
    try:
        os.readlink(UNREADABLE_LINK)
    except PermissionError:
        return
    except OSError:
        pass
    skip_untested(f"{UNREADABLE_LINK} may be read here, or there is none")


@pytest.mark.asyncio
@pytest.mark.parametrize(("name", "input"), CALLS)
async def test_a_path_through_a_link_that_may_not_be_read_is_denied_by_name(tmp_path, name, input):
    _require_unreadable_link()
    async with Toolbox(tmp_path, settings={}, mode="bypassPermissions") as box:
        result = await box.call(name, input)
    assert result.is_error or input.get("command")
    assert UNREADABLE_LINK in result.text
    assert "permission denied" in result.text.lower()
    assert "PermissionError" not in result.text


@pytest.mark.parametrize(
    ("path", "real"),
    [
        (UNREADABLE_LINK, UNREADABLE_LINK),
        (f"{UNREADABLE_LINK}/a/b", f"{UNREADABLE_LINK}/a/b"),
        (f"{UNREADABLE_LINK}/../x", "/proc/1/x"),
    ],
)
def test_a_link_that_may_not_be_read_stays_in_the_path(path, real):
    _require_unreadable_link()
    assert realpath(path) == real


def test_links_before_one_that_may_not_be_read_are_followed(tmp_path):
    _require_unreadable_link()
    (tmp_path / "first").symlink_to("/proc/1")
    assert realpath(f"{tmp_path}/first/cwd/x") == "/proc/1/cwd/x"


@pytest.mark.asyncio
@pytest.mark.parametrize("name", ["folder", "folder/sub", "file.txt"])
@pytest.mark.parametrize(
    ("tool", "fields"),
    [
        ("Grep", {"pattern": ".", "output_mode": "content"}),
        ("Grep", {"pattern": "."}),
        ("Glob", {"pattern": "**/*"}),
        ("LS", {}),
        ("Read", {}),
        ("FileSearch", {"pattern": "."}),
    ],
)
async def test_a_search_does_not_follow_a_link_that_came_after_the_question(tmp_path, tool, fields, name):
    root, outside = tmp_path / "root", tmp_path / "outside"
    for folder in (root / "folder" / "sub", outside / "sub"):
        folder.mkdir(parents=True)
        (folder / "sub.txt").write_text("plain\n")
    (root / "file.txt").write_text("plain\n")
    for folder in (outside, outside / "sub"):
        (folder / "secret.txt").write_text("secret\n")
    swapped = root / "file.txt" if name == "file.txt" else root / "folder"

    def swap(question):
        swapped.rename(tmp_path / "moved")
        swapped.symlink_to(outside / "secret.txt" if name == "file.txt" else outside)
        return True

    settings = {"permissions": {"ask": [tool]}}
    key = "file_path" if tool == "Read" else "path"
    async with Toolbox(root, settings=settings, ask=swap, state_dir=tmp_path / "state") as box:
        result = await box.call(tool, {**fields, key: str(root / name)})
    assert swapped.is_symlink()
    assert "secret" not in result.text.replace("secret.txt leads", ""), result.text
