"""A model's regular expression over a shell's output."""

from __future__ import annotations

import pytest

from wieldy.core.errors import ToolFailure
from wieldy.shell.running.background import matching_lines

TEXT = "alpha\nbeta 12\ngamma error: x\n\nerror at the end"


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("error", ["gamma error: x", "error at the end"]),
        (r"\d+", ["beta 12"]),
        (r"^(alpha|beta.*\d+)$", ["alpha", "beta 12"]),
        (r"(.)\1", ["gamma error: x", "error at the end"]),
        ("nothing like it", []),
        ("(?i)ALPHA", ["alpha"]),
    ],
)
async def test_lines_that_match_are_kept_in_order(pattern, expected):
    assert await matching_lines(pattern, TEXT) == expected


@pytest.mark.asyncio
async def test_a_pattern_that_would_run_for_ever_is_stopped():
    with pytest.raises(ToolFailure, match="did not finish"):
        await matching_lines(r"(a+)+$", "a" * 60 + "b")


@pytest.mark.asyncio
@pytest.mark.parametrize("pattern", ["(", "[", "a{2,1}", "*"])
async def test_a_pattern_that_is_none_is_explained(pattern):
    with pytest.raises(ToolFailure, match="no valid regular expression"):
        await matching_lines(pattern, TEXT)
