"""Search and replace over files does to each line, or to the whole text, what Python's own substitution does."""

from __future__ import annotations

import json
import re

from hypothesis import given, settings
from hypothesis import strategies as st

from wieldy.files.editing.search_replace import FileHits, Sweep, hits_in
from wieldy.files.editing.splicing import apply_splices

TEXTS = st.text(st.sampled_from("abAB é’\n\t$"), max_size=40)
PATTERNS = st.sampled_from(["a", "^", "$", "a*", "(a)(b)?", r"\s+", "b|B", "(?i)a", r"^\s*", "é.", "[^a]+", r"a\Z"])
TEMPLATES = st.sampled_from(["", "x", r"<\g<0>>", "$& $1", r"\\1", "y\\n"])


@given(TEXTS, PATTERNS, TEMPLATES, st.booleans(), st.sampled_from(["\n", "\r\n"]))
@settings(max_examples=400, deadline=None)
def test_the_splices_give_what_python_substitutes(
    text: str, pattern: str, template: str, multiline: bool, end: str
) -> None:
    sweep = Sweep("/", pattern, template, multiline=multiline, splices=True)
    compiled = sweep.compiled()
    data = text.replace("\n", end).encode()
    if multiline:
        expected = compiled.sub(template, text)
    else:
        lines = text.split("\n")
        last = [lines.pop()] if lines[-1] == "" else []
        expected = "\n".join([*(compiled.sub(template, line) for line in lines), *last])
    hits = hits_in("/f", data, compiled, sweep)
    made = data if hits is None else apply_splices(data, hits.splices)
    wanted = expected.replace("\n", end) if "\n" in text or end == "\n" else expected
    assert made == wanted.encode()


@given(TEXTS, PATTERNS)
@settings(max_examples=200, deadline=None)
def test_what_a_process_says_is_what_another_hears(text: str, pattern: str) -> None:
    sweep = Sweep("/", pattern, "x", splices=True)
    hits = hits_in("/f\udce9", text.encode(), re.compile(pattern), sweep)
    if hits is not None:
        assert FileHits.from_json(json.loads(hits.as_json())) == hits
