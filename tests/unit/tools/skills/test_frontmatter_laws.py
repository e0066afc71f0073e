"""For any text: the head is read, or refused with a line; nothing else happens."""

from __future__ import annotations

import json
from contextlib import suppress

from hypothesis import given, settings
from hypothesis import strategies as st

from wieldy.tools.skills.frontmatter import FrontMatterError, parse_markdown

PRINTABLE = st.text(st.characters(max_codepoint=0xFFFF).filter(str.isprintable), max_size=30)
LINES = st.text(st.sampled_from("ab:- #'\"[]|>,\t\\&é{}"), max_size=12)


@given(st.lists(LINES, max_size=8), st.sampled_from(["\n", "\r\n"]))
@settings(max_examples=400, deadline=None)
def test_any_head_is_read_or_refused(lines: list[str], end: str) -> None:
    with suppress(FrontMatterError):
        parse_markdown(end.join(["---", *lines, "---", "body"]))


@given(st.dictionaries(st.text("abc-", min_size=1).filter(lambda key: key[0] != "-"), PRINTABLE, max_size=5))
@settings(max_examples=200, deadline=None)
def test_quoted_texts_come_back_as_they_went_in(fields: dict[str, str]) -> None:
    head = [f"{name}: {json.dumps(value)}" for name, value in fields.items()]
    assert parse_markdown("\n".join(["---", *head, "---", "b"])).fields == fields
    head = ["{}: '{}'".format(name, value.replace("'", "''")) for name, value in fields.items()]
    assert parse_markdown("\n".join(["---", *head, "---", "b"])).fields == fields


@given(st.lists(st.text(st.sampled_from("ab '#:"), min_size=1, max_size=8).map(str.strip).filter(bool), max_size=5))
@settings(max_examples=200, deadline=None)
def test_lists_come_back_in_both_spellings(items: list[str]) -> None:
    quoted = list(map(json.dumps, items))
    assert parse_markdown(f"---\nkey: [{', '.join(quoted)}]\n---").fields == {"key": items}
    if items:
        block = "\n".join(f"  - {item}" for item in quoted)
        assert parse_markdown(f"---\nkey:\n{block}\n---").fields == {"key": items}
