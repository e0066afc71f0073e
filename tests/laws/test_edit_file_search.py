"""Search and replace over files does to each line, or to the whole text, what Python's own substitution does."""

from __future__ import annotations

import re

from hypothesis import given, settings
from hypothesis import strategies as st

from wieldy.core.schema.strict_json import from_json, to_json
from wieldy.files.editing.document import apply_splices
from wieldy.files.editing.search_replace import FileSearchRequest, FileSearchResult, search_file

TEXTS = st.text(st.sampled_from("abAB é’\n\t$"), max_size=40)
PATTERNS = st.sampled_from(["a", "^", "$", "a*", "(a)(b)?", r"\s+", "b|B", "(?i)a", r"^\s*", "é.", "[^a]+", r"a\Z"])
TEMPLATES = st.sampled_from(["", "x", r"<\g<0>>", "$& $1", r"\\1", "y\\n"])


@given(TEXTS, PATTERNS, TEMPLATES, st.booleans(), st.sampled_from(["\n", "\r\n"]))
@settings(max_examples=400, deadline=None)
def test_the_splices_give_what_python_substitutes(
    text: str, pattern: str, template: str, multiline: bool, end: str
) -> None:
    request = FileSearchRequest("/", pattern, template, multiline=multiline, with_splices=True)
    compiled = request.compile_pattern()
    data = text.replace("\n", end).encode()
    if multiline:
        expected = compiled.sub(template, text)
    else:
        lines = text.split("\n")
        last = [lines.pop()] if lines[-1] == "" else []
        expected = "\n".join([*(compiled.sub(template, line) for line in lines), *last])
    result = search_file("/f", data, compiled, request)
    made = data if result is None else apply_splices(data, result.splices)
    wanted = expected.replace("\n", end) if "\n" in text or end == "\n" else expected
    assert made == wanted.encode()


@given(TEXTS, PATTERNS)
@settings(max_examples=200, deadline=None)
def test_what_a_process_says_is_what_another_hears(text: str, pattern: str) -> None:
    request = FileSearchRequest("/", pattern, "x", with_splices=True)
    result = search_file("/f\udce9", text.encode(), re.compile(pattern), request)
    if result is not None:
        assert from_json(to_json(result), FileSearchResult) == result
