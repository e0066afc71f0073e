from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import pytest
from inline_snapshot import snapshot

from wieldy.core.schema.check import InvalidInput, explain, suggest_retry
from wieldy.core.schema.fields import Param
from wieldy.core.schema.parameters import Parameters


@dataclass
class Edit:
    old_string: str
    new_string: str
    replace_all: bool = False


def multi_edit(
    file_path: Annotated[str, "The file to change."],
    edits: Annotated[list[Edit], Param("What to replace, in order.", min_length=1)],
    limit: int | None = None,
):
    raise AssertionError


PARAMETERS = Parameters.from_function(multi_edit)


def told(input: dict[str, Any], parameters: Parameters = PARAMETERS) -> str:
    with pytest.raises(InvalidInput) as caught:
        parameters.accept(input)
    problem = explain("MultiEdit", caught.value.problems, parameters.schema)
    return f"{problem}\n{suggest_retry('MultiEdit', parameters.schema)}"


def test_missing_unknown_and_wrong_fields_are_told_together():
    assert told({"filePath": "a.py", "edits": [{"old_string": "a", "new_str": 1}], "limit": "ten"}) == snapshot("""\
MultiEdit was not run, its input has 5 problems:
- `file_path` is required but missing (string: The file to change.)
- `edits[0].new_string` is required but missing (string)
- `edits[0].new_str` is not a known field; did you mean `new_string`?
- `limit`: expected an integer or null, got the string "ten"
- `filePath` is not a known field; did you mean `file_path`?
Correct this and call MultiEdit again. Fields: file_path (required), edits (required), limit.\
""")


def test_one_problem_is_one_line():
    assert told({"file_path": "a.py", "edits": []}) == snapshot("""\
MultiEdit was not run, its input has 1 problem:
- `edits`: expected at least 1 item, got an empty list
Correct this and call MultiEdit again. Fields: file_path (required), edits (required), limit.\
""")


def test_a_field_far_from_any_name_gets_no_guess():
    assert told({"file_path": "a.py", "edits": [{"old_string": "", "new_string": ""}], "zzz": 1}) == snapshot("""\
MultiEdit was not run, its input has 1 problem:
- `zzz` is not a known field
Correct this and call MultiEdit again. Fields: file_path (required), edits (required), limit.\
""")


def test_an_empty_input_lists_what_is_needed():
    assert told({}) == snapshot("""\
MultiEdit was not run, its input has 2 problems:
- `file_path` is required but missing (string: The file to change.)
- `edits` is required but missing (array: What to replace, in order.)
Correct this and call MultiEdit again. Fields: file_path (required), edits (required), limit.\
""")


def test_a_tool_without_fields_says_so():
    assert told({"x": 1}, Parameters.from_schema({"type": "object", "additionalProperties": False})) == snapshot("""\
MultiEdit was not run, its input has 1 problem:
- `x` is not a known field
Call MultiEdit again with {}: it takes no fields.\
""")


def test_a_flood_of_problems_is_cut_with_a_count():
    text = told({"file_path": "a.py", "edits": [1] * 500})
    assert len(text.splitlines()) == 23
    assert "- and 480 more" in text


def test_a_long_value_does_not_make_a_long_text():
    assert len(told({"file_path": ["x" * 100_000], "edits": "y" * 100_000, "z" * 100_000: 1})) < 1000


def test_a_tool_open_to_any_field_is_not_said_to_take_none():
    assert told({}, Parameters.from_schema({"type": "object", "required": ["x"]})) == snapshot("""\
MultiEdit was not run, its input has 1 problem:
- `x` is required but missing
Correct this and call MultiEdit again.\
""")


def test_unknown_fields_below_alternatives_and_references_are_matched_too():
    schema = {
        "type": "object",
        "properties": {"node": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}},
        "$defs": {
            "node": {"type": "object", "properties": {"colour": {"type": "string"}}, "additionalProperties": False}
        },
    }
    assert "`node.color` is not a known field; did you mean `colour`?" in told(
        {"node": {"color": "red"}}, Parameters.from_schema(schema)
    )
