import json

import pytest

from wieldy.core.schema.json_repair import ReadInput, UnreadableJson, read_object


def as_is(read: ReadInput) -> object:
    assert read.notes == ()
    return read.value


@pytest.mark.parametrize("raw", ["", "   ", "\n", b"", "{}", b"{}", {}])
def test_nothing_is_an_empty_object(raw):
    assert as_is(read_object(raw)) == {}


@pytest.mark.parametrize(
    "text",
    [
        r'{"path": "C:\\new\\table"}',
        '{"path": "C:\\new"}',
        '{"text": "```json\\n{}\\n```"}',
        '{"text": "True, False, None,]}"}',
        '{"a": "\\u0000\\ud83d\\ude00"}',
        '  {"a": [1, 2.5e3, -0, true, null, {"b": {}}]}\r\n',
    ],
)
def test_well_formed_json_is_left_alone(text):
    assert as_is(read_object(text)) == json.loads(text)
    assert as_is(read_object(text.encode())) == json.loads(text)


@pytest.mark.parametrize(
    ("text", "value", "note"),
    [
        ('```json\n{"a": 1}\n```', {"a": 1}, "code fence"),
        ('```\n{"a": 1}```', {"a": 1}, "code fence"),
        ('```json {"a": "```"} ```', {"a": "```"}, "code fence"),
        ('\ufeff{"a": 1}', {"a": 1}, "stray characters"),
        ('\u200b{"a": 1}\0\0', {"a": 1}, "stray characters"),
        ('{"a": 1,}', {"a": 1}, "trailing comma"),
        ('{"a": [1, 2, ], }', {"a": [1, 2]}, "trailing comma"),
        ('{"a": "one\ntwo\tthree"}', {"a": "one\ntwo\tthree"}, "control characters"),
        ('{"a": True, "b": [False, None]}', {"a": True, "b": [False, None]}, "True, False or None"),
        ('{"a": 1}}', {"a": 1}, "closing brace too many"),
        ('{"a": {}}} }', {"a": {}}, "closing brace too many"),
        ('"{\\"a\\": \\"x\\\\ny\\"}"', {"a": "x\ny"}, "inside a string"),
        ('{"a": 1, "a": 2}', {"a": 2}, "more than once"),
        ('{"x": {"a": 1, "b": 0, "a": 3}}', {"x": {"a": 3, "b": 0}}, "more than once"),
        ('{"a": "\\ud99c!"}', {"a": "\ufffd!"}, "lone surrogate"),
        ('{"\\ud99c": ["\\udc00"]}', {"\ufffd": ["\ufffd"]}, "lone surrogate"),
        (b'{"a": "\xed\xa6\x9c"}', {"a": "\ufffd"}, "lone surrogate"),
        ({"a": ["\ud99c"], "\udc00": 1}, {"a": ["\ufffd"], "\ufffd": 1}, "lone surrogate"),
    ],
)
def test_each_repair_is_made_and_named(text, value, note):
    read = read_object(text)
    assert read.value == value
    assert any(note in said for said in read.notes)


def test_several_repairs_are_made_together():
    read = read_object('```json\n{"a": True, "b": "x\ny", "c": [1,],}}\n```')
    assert read.value == {"a": True, "b": "x\ny", "c": [1]}
    assert len(read.notes) == 5


@pytest.mark.parametrize(
    "text",
    [
        '{"file_path":"x","content":"abc',
        '{"a": 1',
        '{"a":',
        '{"a"',
        "{",
        '{"a": [1, 2',
        '{"a": tru',
        '{"a": -',
        '{"a": "x\\',
        '{"a": "x\\u12',
        '"{\\"a\\": 1',
        '"{\\"a\\": 1"',
        '```json\n{"a": 1',
        '{"a": True, "b": "x\ny',
        '{"a": 1,',
        b'{"a": "\xf0\x9f',
    ],
)
def test_what_is_cut_off_is_never_completed(text):
    with pytest.raises(UnreadableJson) as caught:
        read_object(text)
    assert caught.value.cut_off


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{'a': 1}", "double quotes"),
        ("{a: 1}", "double quotes"),
        ('{"a": "say "hi" now"}', 'must be written \\"'),
        ('{"path": "C:\\Users"}', "backslash"),
        ('{"a": 1 "b": 2}', "expected a comma"),
        ('{"a" 1}', "expected a colon"),
        ('{"a": 1]', "found ]"),
        ('{"a": 1,,}', "found ,"),
        ('{"a": 1} {"b": 2}', "expected the end"),
        ('{"a": 1} and so on', "expected the end"),
        ('I will call it: {"a": 1}', "line 1, column 1"),
        ("{,}", "found ,"),
        ("[1, 2]", "a list, but an object is needed"),
        ('"text"', "a string, but an object is needed"),
        ('""', "a string, but an object is needed"),
        ("5", "a number, but an object is needed"),
        ("null", "null, but an object is needed"),
        ("true", "true or false, but an object is needed"),
        ('{"a": NaN}', "NaN is not a number"),
        ('{"a": -Infinity}', "-Infinity is not a number"),
        ('{"a": 1e999}', "1e999 is not a number"),
        ('{"a": 01}', "expected a value"),
        ('{"a": .5}', "expected a value"),
        ('{"a": 1 /* note */}', "expected a comma"),
        (b'{"a": "\xff\xff"}', "not UTF-8"),
        ('{"a": ' + "9" * 5000 + "}", "4300"),
    ],
)
def test_what_is_wrong_is_said_with_its_place_and_a_hint(text, told):
    with pytest.raises(UnreadableJson) as caught:
        read_object(text)
    assert told in caught.value.reason
    assert not caught.value.cut_off


def test_the_place_is_counted_in_lines_and_columns():
    with pytest.raises(UnreadableJson, match="line 3, column 8"):
        read_object('{\n  "a": 1,\n  "b": x\n}')


@pytest.mark.parametrize(
    "raw",
    [
        "[" * 100_000,
        '{"a":' * 100_000,
        '{"a": ' + "[" * 100_000 + "]" * 100_000 + "}",
        '{"a": ' + "[" * 250 + "]" * 250 + ",}",
    ],
)
def test_huge_nesting_is_refused_in_words(raw):
    with pytest.raises(UnreadableJson, match="nested more than 200 levels"):
        read_object(raw)


def test_huge_nesting_of_a_given_dict_is_refused_too():
    value: dict[str, object] = {}
    for _ in range(100_000):
        value = {"a": value}
    with pytest.raises(UnreadableJson, match="nested more than 200 levels"):
        read_object(value)


def test_two_hundred_levels_are_fine():
    text = '{"a": ' + "[" * 199 + "]" * 199 + "}"
    assert read_object(text).value == json.loads(text)
    assert read_object(text[:-1] + ",}").value == json.loads(text)
    assert read_object(json.loads(text)).value == json.loads(text)


@pytest.mark.parametrize(
    "text",
    [
        '{"a": "' + "x" * 5_000_000,
        "x" * 5_000_000,
        '{"a": "' + '\\"' * 2_000_000,
        '{"a": "' + "\n" * 2_000_000 + '",}',
        '"' * 3_000_001,
    ],
)
def test_megabytes_of_garbage_are_read_once(text):
    """Quadratic reading of any of these would take hours, and the test's own time limit would end it."""
    try:
        read_object(text)
    except UnreadableJson as unreadable:
        assert len(unreadable.reason) < 300


def test_mending_is_bounded():
    with pytest.raises(UnreadableJson, match="too long to be repaired"):
        read_object('{"a": True, "b": [1' + ",1" * 200_000 + "]}")


def test_a_given_dict_comes_back_as_an_equal_copy():
    given = {"a": [1, {"b": "é"}]}
    read = read_object(given)
    assert as_is(read) == given
    assert read.value is not given
