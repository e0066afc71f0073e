"""What is written down of our tools' inputs takes any input exactly as the tools' declarations do."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wieldy.schema.parameters import Misfit, Parameters
from wieldy.schema.written import Written, described
from wieldy.tools import MODULES, builtin_loaders

TOOLS = {name: load() for name, load in builtin_loaders().items()}
VALUES = (
    st.text("ab./", max_size=3)
    | st.integers(-2, 5)
    | st.booleans()
    | st.none()
    | st.sampled_from([1.0, 0.5, [], ["a"], {}, {"a": 1}, "content", "default"])
)


def taken(parameters: Parameters, input: dict[str, Any]) -> Any:
    try:
        return parameters.accept(dict(input))
    except Misfit as misfit:
        return sorted(map(str, misfit.problems))


@pytest.mark.parametrize("name", MODULES)
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_an_input_is_taken_as_it_is_declared(name, data):
    tool = TOOLS[name]
    names = [*tool.schema["properties"], "other"]
    needed = tool.schema.get("required", [])
    given_names = st.lists(st.sampled_from(names), unique=True, max_size=4).map(lambda chosen: {*chosen, *needed})
    input = {field: data.draw(VALUES, field) for field in sorted(data.draw(given_names, "fields"))}
    assert taken(tool.parameters, input) == taken(tool.declared_parameters(), input)


def test_plain_inputs_are_taken_by_what_is_written():
    def nobody() -> Parameters:
        raise AssertionError("the declarations were asked")

    for name, input in (("Read", {"file_path": "/a", "limit": 3}), ("Bash", {"command": "true", "timeout": 5})):
        written = Written(described(TOOLS[name].declared_parameters()), nobody)
        assert written.accept(input) == input
