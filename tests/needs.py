"""Skip a test whose program or platform is missing. `tests/conftest.py` lists these skips at the end of a run."""

from __future__ import annotations

from importlib import import_module
from typing import Any, NoReturn

import pytest

MARK = "NOT TESTED: "


def skip_untested(reason: str) -> NoReturn:
    """Skip the running test and have the reason listed in the summary."""
    pytest.skip(MARK + reason)


def import_or_skip(module: str) -> Any:
    """Import a package that cannot be installed everywhere, or skip the module of tests that needs it."""
    try:
        return import_module(module)
    except ImportError as error:
        pytest.skip(f"{MARK}{module} cannot be imported: {error}", allow_module_level=True)
