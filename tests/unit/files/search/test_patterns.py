from __future__ import annotations

import pytest

from wieldy.files.search.patterns import BadGlob, anchor_glob, compile_glob, compile_globs, literal_prefix, split_globs


@pytest.mark.parametrize(
    ("glob", "fits", "does_not"),
    [
        ("*.py", ["a.py", "x/y/a.py", ".py"], ["a.pyc", "a.py/b"]),
        ("./*.py", ["a.py"], ["x/a.py"]),
        ("/*.py", ["a.py"], ["x/a.py"]),
        ("**/*.py", ["a.py", "x/y/a.py"], ["a.txt"]),
        ("src/**", ["src/a", "src/x/y"], ["src", "a/src/b"]),
        ("src/**/*.ts", ["src/a.ts", "src/x/y/a.ts"], ["a.ts", "lib/src/a.ts"]),
        ("**/test/**", ["test/a", "x/test/y/z"], ["tests/a", "test"]),
        ("*.{ts,tsx}", ["a.ts", "b/a.tsx"], ["a.js"]),
        ("{a,b{1,2}}.c", ["a.c", "b1.c", "b2.c"], ["b.c"]),
        ("src/{x,y}/*.c", ["src/x/a.c"], ["src/z/a.c", "src/x/y/a.c"]),
        ("?.c", ["a.c", "é.c"], ["ab.c", ".c"]),
        ("[a-c]1", ["a1", "c1"], ["d1"]),
        ("[!a-c]1", ["d1"], ["a1"]),
        ("[]x]", ["]", "x"], ["y"]),
        ("a[!b]c", ["axc"], ["a/c", "abc"]),
        (r"\*.c", ["*.c"], ["a.c"]),
        ("a**b", ["ab", "axb"], ["a/b"]),
        ("**", ["a", "x/y"], []),
        ("a.b", ["a.b"], ["axb"]),
        ("line*", ["line\nbreak"], []),
    ],
)
def test_patterns_match_whole_paths(glob, fits, does_not):
    test = compile_glob(glob)
    assert [path for path in fits if not test(path)] == []
    assert [path for path in does_not if test(path)] == []


@pytest.mark.parametrize("glob", ["[a", "{a,b", "a}", "a\\", "[z-a]"])
def test_a_pattern_that_cannot_be_read_says_why(glob):
    with pytest.raises(BadGlob):
        compile_glob(glob)


def test_a_list_of_patterns_holds_when_one_does():
    test = compile_globs(["*.a", "*.b"])
    assert test is not None
    assert test("x.a") and test("x.b") and not test("x.c")
    assert compile_globs([]) is None


@pytest.mark.parametrize(
    ("text", "globs"),
    [
        ("*.ts,*.tsx", ["*.ts", "*.tsx"]),
        ("*.ts *.tsx", ["*.ts", "*.tsx"]),
        ("*.{ts,tsx}, !x", ["*.{ts,tsx}", "!x"]),
        (r"a\ b", [r"a\ b"]),
        ("", []),
        (" , ", []),
    ],
)
def test_lists_are_split_at_commas_and_blanks_but_not_in_braces(text, globs):
    assert split_globs(text) == globs


@pytest.mark.parametrize(
    ("glob", "parts"),
    [
        ("src/a/*.py", ("src/a", "*.py")),
        ("*.py", ("", "*.py")),
        ("src/**/x", ("src", "**/x")),
        ("../x/*", ("../x", "*")),
        ("/abs/dir/*.c", ("/abs/dir", "*.c")),
        ("README.md", ("", "README.md")),
        ("a/{b,c}/d", ("a", "{b,c}/d")),
    ],
)
def test_the_folders_without_wildcards_come_off(glob, parts):
    assert literal_prefix(glob) == parts


def test_a_bare_name_is_looked_for_everywhere_and_a_path_where_it_says():
    assert anchor_glob("x.py") == "**/x.py"
    assert anchor_glob("./x.py") == "x.py"
    assert anchor_glob("a/x.py") == "a/x.py"
