"""Whatever stands in a settings file, loading it answers: values that fit, warnings, or one clear error."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from wieldy.core.schema.json_positions import JsonDocument, JsonSyntaxError, parse_json
from wieldy.core.setting_keys import KEYS
from wieldy.policy.settings import load_settings
from wieldy.policy.settings.store import ShapeError, with_items


def read(text: str) -> JsonDocument:
    return parse_json(text, relaxed=True)


NAMES = sorted({part for key in KEYS for part in key.name.split(".")} | {"rule", "match", "not_match", "Bash", "x"})
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=12)
    | st.sampled_from(
        ["Bash(ls:*)", "Read(", "Edit(//x/**)", "plan", "mcp__*", "WebFetch(domain:*)", "Read([)", "Agent(x)"]
    )
)
JSON: st.SearchStrategy[Any] = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(NAMES) | st.text(max_size=5), inner, max_size=5)
    ),
    max_leaves=25,
)
QUICK = settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def loaded(text: str, trusted: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / ".wieldy").mkdir()
        (root / ".wieldy" / "settings.json").write_bytes(text.encode("utf-8", "surrogatepass"))
        (root / ".claude").mkdir()
        (root / ".claude" / "settings.json").write_bytes(text.encode("utf-8", "surrogatepass"))
        env = {"HOME": folder, "WIELDY_HOME": f"{folder}/w", "WIELDY_TRUST": "1" if trusted else ""}
        found = load_settings(root, env=env, managed=root / "none.json", explicit={"compat": {"claude": True}})
        for problem in (*found.warnings, *found.errors, *found.report):
            assert str(problem)
        if found.errors:
            assert found.rules.broken
        for one in found.pending:
            assert len(one.digest) == 64


@QUICK
@given(value=JSON, trusted=st.booleans())
def test_any_json_value_loads(value: Any, trusted: bool) -> None:
    loaded(json.dumps(value), trusted)


@QUICK
@given(text=st.text(alphabet='{}[]",:/*\\ \n-1.eEtruefalsn\ud800é', max_size=60), trusted=st.booleans())
def test_any_text_loads(text: str, trusted: bool) -> None:
    loaded(text, trusted)


@QUICK
@given(value=JSON)
def test_settings_given_in_code_load(value: Any) -> None:
    if isinstance(value, dict):
        load_settings("/", explicit=value, files=False, env={})


@QUICK
@given(value=JSON, indent=st.sampled_from([None, 1, 2]))
def test_json_is_read_as_everybody_reads_it(value: Any, indent: int | None) -> None:
    assert read(json.dumps(value, indent=indent)).value == value


@QUICK
@given(value=JSON, cut=st.integers(0, 200))
def test_half_a_file_is_an_error_with_a_place_or_a_whole_value(value: Any, cut: int) -> None:
    text = json.dumps(value)[:cut]
    try:
        read(text)
    except JsonSyntaxError as problem:
        assert problem.line >= 1 and problem.column >= 1


@QUICK
@given(
    value=st.dictionaries(st.sampled_from(["permissions", "env", "a"]), JSON, max_size=3),
    indent=st.sampled_from([None, 2]),
)
def test_adding_a_rule_changes_nothing_else(value: dict[str, Any], indent: int | None) -> None:
    try:
        after = read(with_items(json.dumps(value, indent=indent), ("permissions", "allow"), ["A"])).value
    except ShapeError:
        return
    held = value.get("permissions", {}).get("allow", [])
    expected = held if "A" in held else [*held, "A"]
    assert after == {**value, "permissions": {**value.get("permissions", {}), "allow": expected}}
