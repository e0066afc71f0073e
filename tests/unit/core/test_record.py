"""A record is a frozen dataclass in everything but what it costs to define."""

from __future__ import annotations

import copy
import pickle
from typing import ClassVar

import pytest

from wieldy.core.record import (
    FEW,
    FrozenError,
    changed,
    field,
    fields_of,
    finish,
    is_record,
    keyword_record,
    mutable,
    record,
)


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


@mutable
class Counter:
    name: str
    count: int = 0
    seen: list[str] = field(default_factory=list)


def test_a_mutable_one_changes_in_place_and_equals_itself_only():
    counter = Counter("a")
    counter.count += 1
    counter.seen.append("x")
    assert (counter.name, counter.count, counter.seen) == ("a", 1, ["x"])
    assert counter == counter  # noqa: PLR0124 - that is the question
    assert Counter("a") != Counter("a")
    assert changed(counter, name="b").count == 1
    with pytest.raises(TypeError):
        Counter("a", name="b")  # type: ignore[misc]


def instances(kind: str) -> list[object]:
    """Some more than the few that are made without an `__init__` of the class's own."""

    @record
    class Made:
        x: int
        y: int = 5
        tags: list[str] = field(default_factory=list)

    match kind:
        case "positional":
            return [Made(1, 2) for _ in range(FEW + 3)]
        case "named":
            return [Made(y=2, x=1) for _ in range(FEW + 3)]
        case _:
            return [Made(1) for _ in range(FEW + 3)]


@pytest.mark.parametrize("kind", ["positional", "named", "defaults"])
def test_the_first_instances_are_like_all_later_ones(kind):
    made = instances(kind)
    assert all(one == made[0] for one in made)
    assert {repr(one) for one in made} == {repr(made[0])}
    assert {tuple(vars(one)) for one in made} == {("x", "y", "tags")}
    assert len({id(vars(one)["tags"]) for one in made}) == FEW + 3


@pytest.mark.parametrize("args", [((), {}), ((1, 2, [], 4), {}), ((1,), {"x": 1}), ((1,), {"z": 1}), ((), {"y": 1})])
def test_arguments_that_do_not_fit_are_refused_from_the_first_instance_on(args):
    positional, named = args
    for _ in range(5):

        @record
        class Fresh:
            x: int
            y: int = 5
            tags: list[str] = field(default_factory=list)

        with pytest.raises(TypeError, match=r"Fresh\.__init__\(\)"):
            Fresh(*positional, **named)
        assert Fresh(1) == Fresh(1)


def test_all_of_a_module_can_be_finished_before_there_is_any():
    @record
    class Pair:
        one: int
        other: int = 2

    class Loud(Pair):
        pass

    before = Pair.__init__
    finish({"Pair": Pair, "Loud": Loud, "number": 3, "again": Pair})
    assert Pair.__init__ is not before
    assert Loud.__init__ is Pair.__init__
    assert Loud(1) == Loud(1, other=2)
    with pytest.raises(FrozenError):
        Pair(1).one = 2  # type: ignore[misc]
