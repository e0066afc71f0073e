from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from wieldy.files.reading.read_file import OpenFile
from wieldy.files.search.format import explain_unreadable


def reason(path: str) -> str:
    with pytest.raises(OSError) as caught:
        OpenFile(path)
    return " ".join(explain_unreadable(path, caught.value)).strip()


def test_a_missing_file_comes_with_similar_names(tmp_path: Path) -> None:
    (tmp_path / "settings.json").write_text("{}")
    assert reason(str(tmp_path / "setings.json")) == (
        f"{tmp_path}/setings.json does not exist. Did you mean {tmp_path}/settings.json?"
    )


def test_a_missing_file_like_nothing_else_comes_with_a_way_on(tmp_path: Path) -> None:
    assert reason(str(tmp_path / "a")) == f"{tmp_path}/a does not exist. Use Glob or LS to find the right path."


def test_a_dangling_link_names_its_target(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("nowhere.txt")
    assert reason(str(tmp_path / "link")) == (
        f"{tmp_path}/link is a symbolic link to nowhere.txt, which does not exist."
    )


def test_links_that_lead_to_each_other_are_a_loop(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    assert "leads back to itself" in reason(str(tmp_path / "a"))


def test_a_file_used_as_a_directory_is_pointed_out(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    assert "part of the path is a file" in reason(str(tmp_path / "file" / "inner"))


def test_a_name_that_is_too_long_is_an_ordinary_refusal(tmp_path: Path) -> None:
    assert reason(str(tmp_path / ("x" * 300))).endswith("cannot be read: File name too long.")


def test_the_memory_of_a_process_is_unreadable_not_fatal() -> None:
    assert reason("/proc/self/mem") == "/proc/self/mem cannot be read: Input/output error."


def test_a_file_of_another_user_is_refused(tmp_path: Path) -> None:
    """Root may read everything, so the attempt is made by a process that has given up being root."""
    path = tmp_path / "secret"
    path.write_text("x")
    path.chmod(0)
    for folder in (tmp_path, *tmp_path.parents):
        if os.stat(folder).st_uid == os.getuid() and os.access(folder, os.W_OK) and "pytest" in str(folder):
            folder.chmod(0o755)
    program = (
        "import os, sys\n"
        "from wieldy.files.reading.read_file import OpenFile\n"
        "from wieldy.files.search.format import explain_unreadable\n"
        "import rapidfuzz.fuzz\n"
        "if os.access(sys.argv[1], os.R_OK): os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        "try: OpenFile(sys.argv[1])\n"
        "except OSError as error: print(explain_unreadable(sys.argv[1], error)[0])\n"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(
        [sys.executable, "-c", program, str(path)], env=env, capture_output=True, text=True, timeout=60
    )
    assert done.stdout == f"{path} may not be read: permission denied.\n", done.stderr
