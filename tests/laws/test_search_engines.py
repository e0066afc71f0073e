"""The built-in engine gives the answers of `rg`, whatever the tree, its ignore files and the question."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import Phase, assume, given, settings
from hypothesis import strategies as st

from wieldy.search.errors import SearchFailure
from wieldy.search.glob import find_files
from wieldy.search.grep import grep
from wieldy.search.query import Found, Query
from wieldy.search.ripgrep import Engine, choose_engine, find_ripgrep

pytestmark = [pytest.mark.peer, pytest.mark.skipif(find_ripgrep() is None, reason="no rg to compare with")]

NAMES = [
    "a", "b", "src", "main.py", "x.txt", "Übung.md", "two words.py", "line\nbreak.txt", ".hidden", ".git", "~", "-e",
]  # fmt: skip
RULE_FILES = [
    ".gitignore",
    ".ignore",
    ".rgignore",
    "a/.gitignore",
    "src/.gitignore",
    "a/b/.ignore",
    ".git/info/exclude",
]
RULES = [
    "*.py", "!main.py", "src/", "/a", "a/b", "**/b", "b/**", "!src", "x.*", "[ab]", "[!a]", "*", "!*/", "!*.txt",
    "#c", "\\#c", "", "  ", "*.txt ", "a/*.py", "src/**/x.txt", "/*", "?", "{a,b}", "!.hidden", "two words.py",
    "\\!a", "/", "**",
]  # fmt: skip
LINES = [
    b"foo", b"bar", b"foo bar", b"x = 1;", b"", b" ", b"FOO", b"gr\xc3\xb6\xc3\x9fer", b"\xff foo", b"foo\r", b"a\rb",
    b"fo\x00o", b"foofoo", b"if (x) { y }", b"\tdef f(a, b):", b"aaa",
]  # fmt: skip
PATTERNS = [
    "foo", "fo+", "^foo", "foo$", "^", "$", "^$", "\\bfoo\\b", "(?i)foo", "f.o", ".", ".*", "x*", "[^o]", "\\s",
    "\\S+", "\\w+", "\\W", "[a-f]+", "foo|bar", "(foo)(bar)?", "(?P<n>a)a", "(?<n>a)", "a{2}", "a{1,2}?", "a**",
    "a++", "ö", "[[:alpha:]]+", "\\x66oo", "\\u{f6}", "(?s)foo.bar", "\\(x\\) \\{", "[\\w ]+", "[^\\s]+", "o(?i)O",
    "(?:f|g)oo", "\\d", "(?U)fo+", "(?x) f o o", "", "()", "a|", "\\<foo", "foo\\>", "\\b{start}f", ";", "-e", "--",
    "(?i:F)oo", "foo(", "foo)", "[a", "foo{", "interface{}", "a{,3}", "{", "(?=x)", "(?<!x)", "\\1", "*a", "\\Z",
    "\\e", "\\é", "a\\nb", "x{3", "a{2,1}", "(?i", "\\", "z-a", "[z-a]", "(?#c)a", "[]a]", "[^]a]", "[a-]", "[\\]]",
    "\\r",
]  # fmt: skip
FILE_GLOBS = [
    "*", "**", "**/*", "*.py", "**/*.py", "*.{py,txt}", "./*", "src/**", "a/*", "[ab]", "**/b/**", "a/", "[!.]*", ".*",
    "x.txt", "a/b/*.txt", "line*", "~", "**/?",
]  # fmt: skip
CONTENT = st.builds(
    lambda lines, end: b"\n".join(lines) + end,
    st.lists(st.sampled_from(LINES), max_size=8),
    st.sampled_from([b"", b"\n", b"\r\n"]),
)
TREES = st.tuples(
    st.dictionaries(st.lists(st.sampled_from(NAMES), min_size=1, max_size=3).map("/".join), CONTENT, max_size=10),
    st.dictionaries(
        st.sampled_from(RULE_FILES),
        st.lists(st.sampled_from(RULES), max_size=4).map(lambda rules: "\n".join(rules).encode()),
        max_size=3,
    ),
)
# What `rg` counts and prints for matches of nothing, or of line ends alone, follows no rule we could keep.
OF_NOTHING = {"^", "$", "^$", ".*", "x*", "", "()", "a|", "a**", "\\r", "\\s", "[^o]", "\\W", "[^]a]"}
GLOBS = st.lists(
    st.sampled_from(
        ["*.py", "*.{py,txt}", "**/*.txt", "src/**", "a/*", "!*.py", "*", "**", "main.py", "/x.txt", "!a", "b/**/*.py"]
    ),
    max_size=2,
).map(tuple)


@contextmanager
def tree(files: dict[str, bytes], rules: dict[str, bytes]) -> Iterator[tuple[str, Engine, Engine]]:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder, "root")
        root.mkdir()
        for name, content in {**files, **rules}.items():
            path = root / name
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
            except OSError:
                continue  # a name that is a file here and a folder there
            os.utime(path, (len(name), len(name)))
        env = {"PATH": os.environ["PATH"], "HOME": folder}
        yield str(root), choose_engine(env), choose_engine({**env, "WIELDY_RIPGREP": "builtin"})


def answer(query: Query, engine: Engine) -> Found | str:
    try:
        return asyncio.run(grep(query, engine))
    except SearchFailure as failure:
        return str(failure).partition(":")[0]


@settings(max_examples=50, deadline=None, phases=(Phase.generate, Phase.reuse, Phase.shrink))
@given(TREES, st.data())
def test_both_engines_find_the_same(made, data):
    query_for = st.builds(
        Query,
        pattern=st.sampled_from(PATTERNS),
        root=st.none(),
        mode=st.sampled_from(["files_with_matches", "content", "count"]),
        globs=GLOBS,
        file_type=st.sampled_from([None, None, "py", "txt"]),
        ignore_case=st.booleans(),
        only_matching=st.booleans(),
        multiline=st.booleans(),
        before=st.integers(0, 2),
        after=st.integers(0, 2),
        limit=st.sampled_from([0, 2, 250]),
        offset=st.integers(0, 2),
    )
    with tree(*made) as (root, ripgrep, builtin):
        drawn = data.draw(query_for)
        assume(drawn.pattern not in OF_NOTHING or not (drawn.only_matching or drawn.multiline))
        fields = {name: getattr(drawn, name) for name in Query.__struct_fields__}
        query = Query(**{**fields, "root": root})
        assert answer(query, builtin) == answer(query, ripgrep)


@settings(max_examples=30, deadline=None, phases=(Phase.generate, Phase.reuse, Phase.shrink))
@given(TREES, st.sampled_from(FILE_GLOBS))
def test_both_engines_list_the_same(made, pattern):
    with tree(*made) as (root, ripgrep, builtin):
        assert asyncio.run(find_files(pattern, root, builtin)) == asyncio.run(find_files(pattern, root, ripgrep))
