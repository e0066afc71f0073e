"""Every public name can be imported, and the list of names is the list of modules."""

from __future__ import annotations

import wieldy


def test_every_public_name_can_be_imported() -> None:
    for name in wieldy.__all__:
        assert getattr(wieldy, name) is not None


def test_the_names_for_type_checkers_are_those_that_exist() -> None:
    assert sorted([*wieldy._MODULE_OF, "__version__"]) == sorted(wieldy.__all__)
    assert dir(wieldy) == sorted(wieldy.__all__)
