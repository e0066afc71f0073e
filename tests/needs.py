"""Skip a test whose program or platform is missing. `tests/conftest.py` lists these skips at the end of a run."""

from __future__ import annotations

from typing import NoReturn

import pytest

MARK = "NOT TESTED: "


def skip_untested(reason: str) -> NoReturn:
    """Skip the running test and have the reason listed in the summary."""
    pytest.skip(MARK + reason)
