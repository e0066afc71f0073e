"""Grep and Glob on a real ripgrep."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from wieldy.files.search.glob import find_files
from wieldy.files.search.grep import MAX_CHARS, GrepQuery, GrepResult, grep
from wieldy.files.search.ripgrep import Ripgrep, SearchFailure

NOBODY = 65_534
pytestmark = pytest.mark.asyncio


@pytest.fixture
def engine(tmp_path_factory: pytest.TempPathFactory) -> Ripgrep:
    return Ripgrep.installed({"PATH": os.environ["PATH"], "HOME": str(tmp_path_factory.mktemp("home"))})


def put(root: Path, **files: str | bytes) -> None:
    for name, content in files.items():
        path = root / name.replace("__", "/").replace("_dot_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)


def names(found: GrepResult, root: Path) -> list[str]:
    return [os.path.relpath(file.path, root) for file in found.files]


def texts(found: GrepResult) -> list[str]:
    return [line.text for _, line in found.lines]


async def test_files_come_newest_first_and_equal_times_by_path(engine, tmp_path):
    for name, when in (("old", 1), ("b", 5), ("a", 5), ("new", 9)):
        put(tmp_path, **{name: "needle"})
        os.utime(tmp_path / name, (when, when))
    assert names(await grep(GrepQuery("needle", str(tmp_path)), engine), tmp_path) == ["new", "a", "b", "old"]


async def test_pages_follow_one_another_without_gap_or_overlap(engine, tmp_path):
    put(tmp_path, **{f"f{n}": "".join(f"x{n}.{i}\n" for i in range(7)) for n in range(5)})
    query = GrepQuery("x", str(tmp_path), mode="content", limit=4)
    seen: list[str] = []
    while True:
        found = await grep(replace(query, offset=len(seen)), engine)
        assert (found.total_matches, found.total_files) == (35, 5)
        seen += texts(found)
        if not found.more:
            break
    assert seen == [f"x{n}.{i}" for n in range(5) for i in range(7)]


async def test_context_is_paged_by_line(engine, tmp_path):
    put(tmp_path, a="1\n2\nx\n4\n5\n")
    query = GrepQuery("x", str(tmp_path), mode="content", before=1, after=1, limit=2)
    assert texts(await grep(query, engine)) == ["2", "x"]
    rest = await grep(replace(query, offset=2), engine)
    assert texts(rest) == ["4"] and not rest.more


async def test_omitted_files_leave_no_trace_in_any_mode(engine, tmp_path):
    put(tmp_path, secret="needle", open="needle")
    for mode in ("files_with_matches", "content", "count"):
        query = GrepQuery("needle", str(tmp_path), mode=mode)
        found = await grep(query, engine, hidden=lambda path: path.endswith("/secret"))
        assert names(found, tmp_path) == ["open"] and found.total_files == 1
    files = await find_files("*", str(tmp_path), engine, hidden=lambda path: path.endswith("/secret"))
    assert [os.path.basename(path) for path in files.files] == ["open"] and files.total == 1


async def test_binary_files_are_skipped_and_one_asked_for_says_so(engine, tmp_path):
    put(tmp_path, text="needle", binary=b"needle\0")
    assert names(await grep(GrepQuery("needle", str(tmp_path)), engine), tmp_path) == ["text"]
    found = await grep(GrepQuery("needle", str(tmp_path / "binary")), engine)
    assert found.total_files == 0 and "binary" in found.notices[0]


async def test_utf16_files_are_searched(engine, tmp_path):
    (tmp_path / "wide").write_text("größer\nneedle\n", encoding="utf-16")
    for root in (tmp_path, tmp_path / "wide"):
        assert texts(await grep(GrepQuery("needle", str(root), mode="content"), engine)) == ["needle"]


async def test_a_glob_never_brings_back_what_gitignore_leaves_out(engine, tmp_path):
    put(tmp_path, _dot_gitignore="*.log\nnode_modules/\n", **{"a.log": "x", "node_modules__b.py": "x", "c.py": "x"})
    for globs in (("*.log",), ("**/*",), ("*",), ("node_modules/**",), ("*.{py,log}",)):
        found = await grep(GrepQuery("x", str(tmp_path), globs=globs), engine)
        assert set(names(found, tmp_path)) <= {"c.py"}
        files = await find_files(f"**/{globs[0]}", str(tmp_path), engine)
        assert {os.path.basename(path) for path in files.files} <= {"c.py", ".gitignore"}


async def test_ignore_files_count_for_nothing_where_they_are_not_obeyed(engine, tmp_path):
    put(
        tmp_path,
        _dot_gitignore="*.log\n",
        _dot_git__info__exclude="b\n",
        **{"a.log": "x", "b": "x", "sub__.ignore": "c", "sub__c": "x"},
    )
    found = await grep(GrepQuery("x", str(tmp_path), globs=("*",)), replace(engine, respect_ignore_files=False))
    assert set(names(found, tmp_path)) == {"a.log", "b", "sub/c"}


async def test_globs_select_and_exclude(engine, tmp_path):
    put(tmp_path, **{"a.ts": "x", "a.test.ts": "x", "src__b.tsx": "x", "c.js": "x", "lib__d.ts": "x"})

    async def found(*globs: str) -> set[str]:
        return set(names(await grep(GrepQuery("x", str(tmp_path), globs=globs), engine), tmp_path))

    assert await found("*.{ts,tsx}", "!*.test.ts") == {"a.ts", "src/b.tsx", "lib/d.ts"}
    assert await found("src/**") == {"src/b.tsx"}
    assert await found("!./a.ts", "!./d.ts", "*.ts") == {"a.test.ts", "lib/d.ts"}
    assert await found("!lib") == {"a.ts", "a.test.ts", "src/b.tsx", "c.js"}
    assert await found("{src,lib}/*.ts") == {"lib/d.ts"}


async def test_a_file_or_folder_asked_for_by_name_is_searched_even_if_ignored(engine, tmp_path):
    put(tmp_path, _dot_gitignore="*.log\nnode_modules/\n", **{"a.log": "needle", "node_modules__b.js": "needle"})
    assert (await grep(GrepQuery("needle", str(tmp_path / "a.log")), engine)).total_files == 1
    assert (await grep(GrepQuery("needle", str(tmp_path / "node_modules")), engine)).total_files == 1
    assert (await find_files("node_modules/*.js", str(tmp_path), engine)).total == 1


async def test_a_bad_glob_a_bad_pattern_and_a_bad_type_say_what_to_do(engine, tmp_path):
    put(tmp_path, a="x")
    for query, words in (
        (GrepQuery("x", str(tmp_path), globs=("[a",)), "cannot be read"),
        (GrepQuery("interface{}", str(tmp_path)), "write a backslash"),
        (GrepQuery("(?=x)", str(tmp_path)), "look-around"),
        (GrepQuery("x\\ny", str(tmp_path)), "multiline"),
        (GrepQuery("x", str(tmp_path), file_type="pyhton"), "Did you mean: .*python"),
        (GrepQuery("x\0", str(tmp_path)), "NUL"),
        (GrepQuery("x" * 200_000, str(tmp_path)), "long"),
        (GrepQuery("\ud800", str(tmp_path)), "Unicode"),
    ):
        with pytest.raises(SearchFailure, match=words):
            await grep(query, engine)


async def test_a_pattern_that_starts_with_a_dash_is_a_pattern(engine, tmp_path):
    put(tmp_path, a="--files -e\n", b="none")
    for pattern in ("-e", "--files", "--", "-"):
        assert names(await grep(GrepQuery(pattern, str(tmp_path)), engine), tmp_path) == ["a"]


async def test_names_that_are_not_utf8_or_have_line_breaks_survive(engine, tmp_path):
    for name in (b"bad\xff", b"line\nbreak", b"-e", b"--"):
        with open(os.path.join(os.fsencode(tmp_path), name), "wb") as file:
            file.write(b"needle 1\n")
    for mode in ("files_with_matches", "content", "count"):
        found = await grep(GrepQuery("needle", str(tmp_path), mode=mode), engine)
        assert {os.fsencode(os.path.basename(file.path)) for file in found.files} == {
            b"bad\xff",
            b"line\nbreak",
            b"-e",
            b"--",
        }


async def test_time_that_is_up_keeps_what_was_found_and_says_so(tmp_path):
    """The program finds one file and then hangs."""
    put(tmp_path, quick="aaa")
    code = """if True:
        import sys, time
        name = "./quick\\0"
        if "--line-number" in sys.argv:
            print(name + "1\\0" + "1\\0aaa")
        else:
            print(name, end="" if "--files-with-matches" in sys.argv else "1\\n", flush=True)
            time.sleep(60)
    """
    engine = Ripgrep((sys.executable, "-I", "-S", "-c", code), seconds=2.0)
    for mode in ("files_with_matches", "content", "count"):
        found = await grep(GrepQuery("a", str(tmp_path), mode=mode), engine)
        assert names(found, tmp_path) == ["quick"]
        assert "stopped after 2 s" in found.notices[0]


async def test_a_pattern_too_deep_to_read_is_an_error_not_no_match(engine, tmp_path):
    put(tmp_path, a="x")
    with pytest.raises(SearchFailure, match="not a valid regular expression"):
        await grep(GrepQuery("(" * 3000 + "x" + ")" * 3000, str(tmp_path)), engine)


async def test_a_program_that_breaks_is_an_error_not_no_match(tmp_path):
    put(tmp_path, a="x")
    for code in ("raise SystemExit(3)", "import os; os.abort()"):
        broken = Ripgrep((sys.executable, "-I", "-S", "-c", code))
        with pytest.raises(SearchFailure, match="search failed"):
            await grep(GrepQuery("x", str(tmp_path)), broken)
        with pytest.raises(SearchFailure, match="search failed"):
            await find_files("*", str(tmp_path), broken)


async def test_single_characters_are_characters_in_any_script(engine, tmp_path):
    put(tmp_path, **{"é.py": "x", "ab.py": "x"})
    assert names(await grep(GrepQuery("x", str(tmp_path), globs=("?.py",)), engine), tmp_path) == ["é.py"]
    assert [os.path.basename(path) for path in (await find_files("?.py", str(tmp_path), engine)).files] == ["é.py"]


async def test_even_without_a_limit_the_output_has_an_end(tmp_path):
    (tmp_path / "big").write_text(("x" * 499 + "\n") * 25_000)
    found = await grep(GrepQuery("x", str(tmp_path), mode="content", limit=0), Ripgrep.installed())
    assert found.more and found.total_matches == 25_000
    assert sum(len(text) for text in texts(found)) < MAX_CHARS + 1000
    assert "10000000 characters" in found.notices[0]


@pytest.fixture
def public_folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        yield Path(folder)


async def test_what_cannot_be_read_is_counted_and_the_rest_is_found(engine, public_folder):
    put(public_folder, good="needle", bad="needle", closed__x="needle")
    os.chmod(public_folder / "bad", 0)
    os.chmod(public_folder / "closed", 0)
    found = await grep(GrepQuery("needle", str(public_folder)), _unprivileged(engine))
    os.chmod(public_folder / "closed", 0o700)
    assert names(found, public_folder) == ["good"]
    assert found.notices == ("2 files or folders could not be read.",)


def _unprivileged(engine: Ripgrep) -> Ripgrep:
    """The same engine without the rights of root, if we have them."""
    if os.getuid() != 0:
        return engine
    drop = f"import os, sys; os.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY})\n"
    code = drop + "os.execv(sys.argv[1], sys.argv[1:])"
    return replace(engine, command=(sys.executable, "-I", "-S", "-c", code, *engine.command))
