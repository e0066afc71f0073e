from __future__ import annotations

import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from wieldy.core.own_writes import MAX_REMEMBERED, is_own_write, note_own_write


def test_many_threads_remember_what_they_wrote(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("x")
    status = os.lstat(tmp_path / "f")

    def write(thread: int) -> None:
        for number in range(2 * MAX_REMEMBERED):
            note_own_write(f"/{thread}/{number}", status)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as threads:
            list(threads.map(write, range(8)))
    finally:
        sys.setswitchinterval(interval)
    note_own_write(str(tmp_path / "f"), status)
    assert is_own_write(str(tmp_path / "f"))
    (tmp_path / "f").write_text("changed")
    assert not is_own_write(str(tmp_path / "f"))
