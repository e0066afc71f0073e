from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest

from wieldy.tools.skills.frontmatter import FrontMatterError, parse_markdown


def fields(*lines: str) -> dict[str, Any]:
    return dict(parse_markdown("\n".join(["---", *lines, "---", "body"])).fields)


def test_a_file_is_its_head_and_its_body() -> None:
    page = parse_markdown("\ufeff---\r\nname: x\r\n---\r\n\r\n# Title\r\n---\r\n")
    assert page.fields == {"name": "x"}
    assert page.body == "# Title\n---"


def test_a_file_without_a_head_is_all_body() -> None:
    assert parse_markdown("# Title\n--- \n").fields == {}
    assert parse_markdown("").body == ""


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("plain text", "plain text"),
        ("plain # comment", "plain"),
        ("a#b", "a#b"),
        ("Use this: always", "Use this: always"),
        ('"a \\"quoted\\" # text\\n"', 'a "quoted" # text\n'),
        ('"a" # comment', "a"),
        ("'it''s'", "it's"),
        ("true", True),
        ("false", False),
        ("'true'", "true"),
        ("1.5", "1.5"),
        ("", ""),
        ("[a, 'b, c', \"d\"]", ["a", "b, c", "d"]),
        ("[]", []),
        ("no", "no"),
        ("2026-01-01", "2026-01-01"),
        ("{a: {b: c}}", {"a": {"b": "c"}}),
        ("&anchor x", "x"),
    ],
)
def test_values_on_one_line(line: str, value: Any) -> None:
    assert fields(f"key: {line}") == {"key": value}


@pytest.mark.parametrize("key", ["key:", "key: "])
def test_lists_and_mappings_on_lines_of_their_own(key: str) -> None:
    assert fields(key, "  - a", "", "  # comment", "  - 'b'", "other: c") == {"key": ["a", "b"], "other": "c"}
    assert fields(key, "- a", "- b: c") == {"key": ["a", {"b": "c"}]}
    assert fields(key, "  a: 1", "  b: 'x'") == {"key": {"a": "1", "b": "x"}}
    assert fields(key, "other: x") == {"key": "", "other": "x"}


def test_long_texts() -> None:
    assert fields("key: |", "  one", "    two", "", "  three", "last: x") == {
        "key": "one\n  two\n\nthree\n",
        "last": "x",
    }
    assert fields("key: >-", "  one", "  two", "", "  three") == {"key": "one two\nthree"}
    assert fields("key: one", "  two", "  three # comment", "last: x") == {"key": "one two three", "last": "x"}


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["name: a", "name: b"], "line 3: `name` is there twice"),
        (["a:", "  b: 1", "  b: 2"], "line 4: `b` is there twice"),
        (["- a"], "line 2: `name: value` was expected"),
        (["name:a"], "line 2: `name: value` was expected"),
        (["b: c", 'a: "open'], "line 3: found unexpected end of stream while scanning a quoted scalar"),
        (["a: 'open"], "line 2: found unexpected end of stream"),
        (["a: [b"], "line 2: did not find expected"),
        (["a: *b"], "line 2: aliases are not supported"),
        (["a:", "\tb: c"], "line 3: found character that cannot start any token"),
        (["? [a]", ": b"], "line 2: a name must be a text"),
        (["a: " + "[" * 30], "line 2: nested more than 20 deep"),
        (["a: &x [b, *x]"], "line 2: aliases are not supported"),
    ],
)
def test_faults_have_their_line(lines: list[str], message: str) -> None:
    with pytest.raises(FrontMatterError) as caught:
        fields(*lines)
    assert str(caught.value).startswith(message)


def test_a_head_that_is_never_closed_is_a_fault() -> None:
    with pytest.raises(FrontMatterError, match="never closed"):
        parse_markdown("---\nname: x\n")


def test_a_colon_in_an_unquoted_text_is_tolerated() -> None:
    lines = ["name: x", "description: Use when: it's late: # yes", "tools: Read"]
    assert fields(*lines) == {"name": "x", "description": "Use when: it's late:", "tools": "Read"}
    with pytest.raises(FrontMatterError, match="line 4"):
        fields("a: b: c", "d: e", "f: [g")


HOSTILE = ["'" * 100_000, '["' + "\\" * 100_000, "[" + "'" * 99_999, "[" + "a'" * 50_001, " #" * 50_000]
HOSTILE += ["[" * 100_000, "{" * 100_000, "[a, " * 1_000 + "&x"]


@pytest.mark.parametrize("hostile", HOSTILE)
def test_a_head_made_to_be_slow_is_read_at_once(hostile: str) -> None:
    with suppress(FrontMatterError):
        fields(f"key: {hostile}")
