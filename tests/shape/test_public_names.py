"""Every public name can be imported, and the list of names is the list of modules."""

from __future__ import annotations

import re
from pathlib import Path
from pkgutil import resolve_name

import wieldy

API_PAGES = Path(__file__).parents[2] / "docs" / "api"


def test_every_public_name_can_be_imported() -> None:
    for name in wieldy.__all__:
        assert getattr(wieldy, name) is not None


def test_the_names_for_type_checkers_are_those_that_exist() -> None:
    assert sorted([*wieldy._MODULE_OF, "__version__"]) == sorted(wieldy.__all__)
    assert dir(wieldy) == sorted(wieldy.__all__)


def test_every_name_on_the_pages_of_the_api_exists() -> None:
    names = [
        name for page in API_PAGES.glob("*.md") for name in re.findall(r"^::: (\S+)", page.read_text(), re.MULTILINE)
    ]
    assert names
    for name in names:
        assert resolve_name(name) is not None, name
