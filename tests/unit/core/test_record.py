"""A record is a frozen dataclass in everything but what it costs to define."""

from __future__ import annotations

import copy
import pickle
from dataclasses import field
from typing import ClassVar

import pytest

from wieldy.core.record import FrozenError, changed, fields_of, is_record, keyword_record, record


@record
class Point:
    """A point."""

    kind: ClassVar[str] = "point"
    x: int
    y: int = 0
    tags: list[str] = field(default_factory=list)

    def moved(self, by: int) -> Point:
        return changed(self, x=self.x + by)


@keyword_record
class Told:
    at: float = field(default_factory=lambda: 1.5)


@keyword_record
class Named(Told):
    name: str


@record(eq=False)
class Single:
    n: int


def test_fields_come_by_position_or_name_with_defaults():
    assert (Point(1).x, Point(1).y, Point(1).tags) == (1, 0, [])
    assert Point(1, y=2) == Point(1, 2)
    assert Point(1).tags is not Point(1).tags
    with pytest.raises(TypeError, match=r"Point\.__init__"):
        Point()  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        Point(1, z=3)  # type: ignore[call-arg]


def test_it_cannot_be_changed_only_copied_with_changes():
    point = Point(1)
    with pytest.raises(FrozenError):
        point.x = 2  # type: ignore[misc]
    with pytest.raises(FrozenError):
        del point.x
    assert changed(point, y=5) == Point(1, 5)
    assert point.moved(2) == Point(3)


def test_equality_hash_and_repr_follow_the_fields():
    assert Point(1) == Point(1)
    assert Point(1) != Point(2)
    assert Point(1) != object()
    assert repr(Point(1, 2, ["a"])) == "Point(x=1, y=2, tags=['a'])"
    assert len({Named(name="x"), Named(name="x"), Named(name="y")}) == 2
    assert Single(1) != Single(1)


def test_fields_by_name_only_let_a_subclass_add_required_ones():
    named = Named(name="x")
    assert (named.at, named.name) == (1.5, "x")
    assert fields_of(named) == ("at", "name")
    with pytest.raises(TypeError):
        Named("x")  # type: ignore[call-arg, arg-type]


def test_patterns_match_by_position():
    match Point(3, 4):
        case Point(x, y):
            assert (x, y) == (3, 4)
        case _:
            pytest.fail("no match")


def test_it_can_be_copied_and_pickled():
    point = Point(1, 2, ["a"])
    assert copy.copy(point) == point
    assert copy.deepcopy(point) == point
    assert pickle.loads(pickle.dumps(point)) == point


def test_what_is_a_record():
    assert is_record(Point(1))
    assert not is_record({})
    assert Point.kind == "point"
    assert "kind" not in fields_of(Point)


@record
class Owned:
    """Its field has the name of something a constructor may use itself."""

    own: str


def test_a_field_may_have_any_name():
    assert Owned("mine").own == "mine"
    assert Owned("mine") == Owned("mine") != Owned("yours")
