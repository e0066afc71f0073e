from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest

from wieldy import Toolbox
from wieldy.core.outcome import ToolResult
from wieldy.tools.grep import grep

pytestmark = pytest.mark.asyncio


def put(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


async def call(root: Path, settings: dict[str, Any] | None = None, /, **args: Any) -> ToolResult:
    async with Toolbox(root=root, settings=settings or {}) as box:
        return await box.call("Grep", args)


async def test_files_are_listed_newest_first_with_a_total(tmp_path):
    put(tmp_path, {"a.py": "needle", "src/b.py": "needle", "c.py": "hay"})
    os.utime(tmp_path / "a.py", (1, 1))
    result = await call(tmp_path, pattern="needle")
    assert result.text == "src/b.py\na.py\n[Found in 2 files]"
    assert result.data == {
        "mode": "files_with_matches",
        "filenames": [str(tmp_path / "src/b.py"), str(tmp_path / "a.py")],
        "numFiles": 2,
        "truncated": False,
    }


async def test_content_shows_path_line_and_text(tmp_path):
    put(tmp_path, {"a.py": "one\nneedle 1\nthree\n\n\nneedle 2\n"})
    result = await call(tmp_path, pattern="needle", output_mode="content")
    assert result.text == "a.py:2:needle 1\na.py:6:needle 2\n[Found 2 matching lines in 1 file]"
    assert (result.data["numLines"], result.data["numMatches"]) == (2, 2)
    assert result.data["content"] == "a.py:2:needle 1\na.py:6:needle 2"


async def test_context_lines_are_marked_and_gaps_shown(tmp_path):
    put(tmp_path, {"a": "1\nx\n3\n4\n5\nx\n"})
    result = await call(tmp_path, **{"pattern": "x", "output_mode": "content", "-B": 1, "-A": 1})
    assert result.text.splitlines()[:-1] == ["a-1-1", "a:2:x", "a-3-3", "--", "a-5-5", "a:6:x"]
    around = await call(tmp_path, **{"pattern": "x", "output_mode": "content", "-C": 1})
    assert around.text == result.text


async def test_numbers_can_be_left_out_and_matches_shown_alone(tmp_path):
    put(tmp_path, {"a": "foo=1 foo=2\n"})
    plain = await call(tmp_path, **{"pattern": "foo", "output_mode": "content", "-n": False})
    assert plain.text.startswith("a:foo=1 foo=2\n")
    only = await call(tmp_path, **{"pattern": r"foo=\d", "output_mode": "content", "-o": True})
    assert only.text == "a:1:foo=1\na:1:foo=2\n[Found 2 matches in 1 file]"


async def test_counts_are_by_file_with_a_sum(tmp_path):
    put(tmp_path, {"a": "x\nx x\n", "b": "x\n"})
    result = await call(tmp_path, pattern="x", output_mode="count")
    assert result.text == "a:2\nb:1\n[Found 3 matching lines in 2 files]"
    assert (result.data["numFiles"], result.data["numMatches"]) == (2, 3)


async def test_a_page_says_how_to_get_the_next(tmp_path):
    put(tmp_path, {"a": "".join(f"x{n}\n" for n in range(10))})
    first = await call(tmp_path, pattern="x", output_mode="content", head_limit=4)
    assert first.text.endswith("[Found 10 matching lines in 1 file; showing lines 1-4. Use offset=4 for more]")
    last = await call(tmp_path, pattern="x", output_mode="content", head_limit=4, offset=8)
    assert last.text == "a:9:x8\na:10:x9\n[Found 10 matching lines in 1 file; showing lines 9-10]"
    beyond = await call(tmp_path, pattern="x", output_mode="content", offset=10)
    assert beyond.text == "[Found 10 matching lines in 1 file; nothing is left at offset=10]"
    everything = await call(tmp_path, pattern="x", output_mode="content", head_limit=0)
    assert everything.data["numLines"] == 10


async def test_no_match_is_no_error(tmp_path):
    put(tmp_path, {"a": "x"})
    result = await call(tmp_path, pattern="nothing like it")
    assert (result.text, result.is_error) == ("No matches found", False)


async def test_a_bad_pattern_is_an_error_with_the_reason_and_advice(tmp_path):
    result = await call(tmp_path, pattern="interface{}")
    assert result.is_error
    assert "repetition quantifier expects a valid decimal" in result.text
    assert "write a backslash before it" in result.text


async def test_a_missing_path_names_what_is_like_it(tmp_path):
    put(tmp_path, {"source/a.py": "x"})
    result = await call(tmp_path, pattern="x", path="sorce/a.py")
    assert result.is_error and "Did you mean source/a.py?" in result.text


async def test_an_unknown_type_names_those_like_it(tmp_path):
    result = await call(tmp_path, pattern="x", type="tsx")
    assert result.is_error and "Did you mean: " in result.text and "ts" in result.text


async def test_include_is_understood_as_glob(tmp_path):
    put(tmp_path, {"a.ts": "x", "b.tsx": "x", "c.js": "x"})
    result = await call(tmp_path, pattern="x", include="*.ts, *.tsx")
    assert result.data["numFiles"] == 2


async def test_case_and_lines_can_be_ignored(tmp_path):
    put(tmp_path, {"a": "START\nend\n"})
    result = await call(tmp_path, **{"pattern": "start.end", "-i": True, "multiline": True, "output_mode": "content"})
    assert result.text == "a:1:START\na:2:end\n[Found 1 match in 1 file]"


async def test_a_long_line_is_cut_around_the_match(tmp_path):
    put(tmp_path, {"min.js": "x" * 90_000 + "needle" + "y" * 90_000})
    result = await call(tmp_path, pattern="needle", output_mode="content")
    assert "needle" in result.text and "bytes cut]" in result.text
    assert len(result.text) < 1000


async def test_denied_files_are_not_found(tmp_path):
    put(tmp_path, {".env": "KEY=needle", "sub/.env": "needle", "a": "needle"})
    settings = {"permissions": {"deny": ["Read(.env)"]}}
    for mode in ("files_with_matches", "content", "count"):
        result = await call(tmp_path, settings, pattern="needle", output_mode=mode)
        assert ".env" not in result.text and "KEY" not in result.text
        assert result.data["numFiles"] == 1
    assert (await call(tmp_path, settings, pattern="needle", path=".env")).is_error


async def test_odd_names_never_break_the_answer(tmp_path):
    with open(os.path.join(os.fsencode(tmp_path), b"bad\xff\n"), "w") as file:
        file.write("needle\n")
    for mode in ("files_with_matches", "content", "count"):
        result = await call(tmp_path, pattern="needle", output_mode=mode)
        assert "bad\ufffd\\n" in result.text
        json.dumps(result.data, ensure_ascii=False).encode()


async def test_an_interrupt_ends_the_search(tmp_path, monkeypatch):
    hanging = tmp_path / "rg"
    hanging.write_text("#!/bin/sh\nexec sleep 60\n")
    hanging.chmod(0o755)
    monkeypatch.setenv("WIELDY_RIPGREP", str(hanging))
    async with Toolbox(root=tmp_path, settings={}) as box:
        running = asyncio.ensure_future(box.call("Grep", {"pattern": "a"}))
        await asyncio.sleep(0.3)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running


async def test_a_missing_ripgrep_is_one_sentence_that_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setenv("WIELDY_RIPGREP", str(tmp_path / "absent"))
    async with Toolbox(root=tmp_path, settings={}) as box:
        for name in ("Grep", "Glob"):
            result = await box.call(name, {"pattern": "a"})
            assert result.is_error and "Set it to the path of rg" in result.text


async def test_the_schema_is_small():
    said = json.dumps(grep.schema, separators=(",", ":"), ensure_ascii=False) + grep.description
    assert len(said.encode()) <= 1100
    assert len(grep.description) <= 350 and len(grep.prompt) <= 350


async def test_the_setting_brings_ignored_files_back(tmp_path):
    (tmp_path / ".gitignore").write_text("*.log\n")
    (tmp_path / "a.log").write_text("x")
    result = await call(tmp_path, {"respectGitignore": False}, pattern="x")
    assert result.data["numFiles"] == 1
