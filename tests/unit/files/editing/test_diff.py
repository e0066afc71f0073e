"""Hunks show the changed lines with their numbers and some context, whatever the size of the file."""

from __future__ import annotations

from inline_snapshot import snapshot

from wieldy.files.editing.diff import make_patch
from wieldy.files.editing.document import Document, Splice, apply_splices, replace_span, replace_text

TWENTY = "".join(f"line {n}\n" for n in range(1, 21))


def unified(before: str, *edits: tuple[str, str]) -> str:
    document = Document.of(before.encode())
    changes = (replace_span(document, span, new) for old, new in edits for span in document.find(old))
    return make_patch(document, sorted(changes, key=lambda change: change.start)).unified("f.txt")


def test_one_changed_line_is_shown_with_five_lines_around() -> None:
    assert unified(TWENTY, ("line 10\n", "LINE 10\n")) == snapshot("""\
--- f.txt
+++ f.txt
@@ -5,11 +5,11 @@
 line 5
 line 6
 line 7
 line 8
 line 9
-line 10
+LINE 10
 line 11
 line 12
 line 13
 line 14
 line 15\
""")


def test_changes_close_to_each_other_share_a_hunk_and_distant_ones_do_not() -> None:
    forty = "".join(f"line {n}\n" for n in range(1, 41))
    diff = unified(forty, ("line 3\n", "THREE\nMORE\n"), ("line 6\n", ""), ("line 39\n", "thirty-nine\n"))
    assert [line for line in diff.split("\n") if line.startswith("@@")] == ["@@ -1,11 +1,11 @@", "@@ -34,7 +34,7 @@"]


def test_later_hunks_are_numbered_in_the_new_file() -> None:
    diff = unified(TWENTY, ("line 1\n", "a\nb\nc\nline 1\n"), ("line 20", "end"))
    assert "@@ -1,5 +1,8 @@" in diff and "@@ -15,6 +18,6 @@" in diff


def test_a_missing_line_end_at_the_end_is_said() -> None:
    assert unified("a\nb", ("b", "b\n")) == snapshot("""\
--- f.txt
+++ f.txt
@@ -1,2 +1,2 @@
 a
-b
\\ No newline at end of file
+b\
""")


def test_a_new_file_comes_from_nothing() -> None:
    created = make_patch(Document.of(b""), [Splice(0, 0, b"a\nb\n")])
    assert created.unified("new.txt") == "--- new.txt\n+++ new.txt\n@@ -0,0 +1,2 @@\n+a\n+b"
    assert (created.added, created.removed) == (2, 0)


def test_a_deleted_text_leaves_a_hunk_at_line_zero() -> None:
    emptied = make_patch(Document.of(b"a\nb\n"), [Splice(0, 4, b"")])
    assert emptied.hunks[0].as_data() == {
        "oldStart": 1,
        "oldLines": 2,
        "newStart": 0,
        "newLines": 0,
        "lines": ["-a", "-b"],
    }


def test_many_equal_lines_do_not_blow_up_the_diff() -> None:
    before = "x\n" * 3000
    document = Document.of(before.encode())
    after = make_patch(document, [replace_text(document, "x\n" * 1500 + "y\n" + "x\n" * 1500)])
    assert (after.added, after.removed, len(after.hunks)) == (1, 0, 1)


def test_wide_texts_are_numbered_like_any_other() -> None:
    data = "\ufeffa\r\nb\r\nc\r\n".encode("utf-16-le")
    document = Document.of(data)
    spliced = [replace_span(document, span, "B\nB2") for span in document.find("b")]
    assert str(make_patch(document, spliced).hunks[0]) == "@@ -1,3 +1,4 @@\n a\n-b\n+B\n+B2\n c"
    assert apply_splices(data, spliced).decode("utf-16") == "a\r\nB\r\nB2\r\nc\r\n"


def test_the_snippet_shows_the_new_lines_with_five_around() -> None:
    document = Document.of(TWENTY.encode())
    lines = (
        make_patch(document, [replace_span(document, span, "TEN\nAND") for span in document.find("line 10")])
        .snippet()
        .split("\n")
    )
    assert lines[0] == "5\tline 5" and lines[-1] == "16\tline 15" and "10\tTEN" in lines and len(lines) == 12


def test_a_long_line_is_cut_in_the_diff() -> None:
    document = Document.of(b"x" * 100_000)
    diff = make_patch(document, [Splice(0, 1, b"y")]).unified("f")
    assert len(diff) < 2_000 and "(100001 characters)" in diff


def test_thousands_of_changes_give_a_bounded_make_patch() -> None:
    document = Document.of(b"x\n" + b"\n" * 20 + b"".join(b"y\n" + b"-\n" * 20 for _ in range(3_000)))
    result = make_patch(document, [replace_span(document, span, "z") for span in document.find("y")])
    assert result.truncated and len(result.hunks) == 500
    assert result.hunks[-1].old_start == 22 + 499 * 21 - 5
    assert len(result.unified("f").split("\n")) < 200
