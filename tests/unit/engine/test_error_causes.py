"""A tool that raises: the model reads why, the person one line."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from wieldy import tool
from wieldy.core.outcome import ToolResult

pytestmark = pytest.mark.asyncio

FAILS = "import sys; print('half done'); print('no such table: users', file=sys.stderr); sys.exit(2)"


@pytest.fixture
def result_of(make_box) -> Callable[..., Any]:
    async def call(run: Callable[[], object]) -> ToolResult:
        @tool(read_only=True)
        async def broken() -> str:
            """Break."""
            run()
            return ""

        async with make_box(broken) as box:
            result: ToolResult = await box.call("broken")
            return result

    return call


@pytest.mark.parametrize("text", [True, False])
async def test_the_output_of_a_program_that_failed_is_shown(result_of, text):
    result = await result_of(
        lambda: subprocess.run([sys.executable, "-c", FAILS], check=True, capture_output=True, text=text)
    )
    lines = result.text.splitlines()
    assert lines[0].startswith("broken failed: CalledProcessError: ")
    assert lines[1:] == ["stderr:", "no such table: users", "stdout:", "half done"]
    assert result.person_text == lines[0]


async def test_causes_and_contexts_are_named_unless_they_are_suppressed(result_of):
    def chain(*, hide: bool) -> None:
        try:
            try:
                raise KeyError("id")
            except KeyError:
                raise ValueError("bad row")  # noqa: B904 - the context is what is tested
        except ValueError as error:
            if hide:
                raise RuntimeError("import failed") from None
            raise RuntimeError("import failed") from error

    result = await result_of(lambda: chain(hide=False))
    assert result.text.splitlines() == [
        "broken failed: RuntimeError: import failed",
        "Caused by ValueError: bad row",
        "While handling KeyError: 'id'",
    ]
    assert result.person_text == "broken failed: RuntimeError: import failed"
    hidden = await result_of(lambda: chain(hide=True))
    assert hidden.text == "broken failed: RuntimeError: import failed"


async def test_the_members_of_a_group_are_named(result_of):
    def fail() -> None:
        raise ExceptionGroup("two failed", [OSError(2, "No such file", "a"), ExceptionGroup("in", [ValueError("b")])])

    assert (await result_of(fail)).text.splitlines() == [
        "broken failed: ExceptionGroup: two failed (2 sub-exceptions)",
        "1 of 2: FileNotFoundError: [Errno 2] No such file: 'a'",
        "2 of 2: ExceptionGroup: in (1 sub-exception)",
        "1 of 1: ValueError: b",
    ]


class Hostile(Exception):
    def __str__(self) -> str:
        raise SystemExit(3)

    @property
    def stderr(self) -> str:
        raise GeneratorExit

    @property
    def stdout(self) -> list[int]:
        return [1]


class HostileCause(ExceptionGroup[Exception]):
    @property
    def exceptions(self) -> tuple[Exception, ...]:
        raise MemoryError

    @property
    def __cause__(self) -> None:  # type: ignore[override]
        raise SystemExit

    __context__ = __cause__


async def test_exceptions_that_cannot_be_looked_at_are_survived(result_of):
    def fail() -> None:
        raise Hostile

    assert (await result_of(fail)).text == "broken failed: Hostile: (its message cannot be shown)"

    def fail_as_a_group() -> None:
        raise HostileCause("no members", [ValueError("a")])

    assert (await result_of(fail_as_a_group)).text.splitlines()[0].startswith("broken failed: HostileCause: ")


def _cycle() -> Exception:
    one, two = ValueError("one"), ValueError("two")
    one.__cause__, two.__cause__ = two, one
    return one


def _chain() -> Exception:
    error = ValueError(0)
    for n in range(1, 500):
        following = ValueError(n)
        following.__cause__ = error
        error = following
    return error


def _with_much_output() -> Exception:
    return subprocess.CalledProcessError(1, ["x"], output=b"o" * 5_000_000, stderr="e" * 5_000_000)


@pytest.mark.parametrize(
    ("make", "lines"),
    [
        (_cycle, 2),
        (_chain, 11),
        (lambda: ExceptionGroup("many", [ValueError("x")] * 1_000_000), 3),
        (lambda: ExceptionGroup("one", [ExceptionGroup("many", [ValueError("x")] * 1_000_000)]), 4),
        (lambda: ExceptionGroup("many", [ValueError(n) for n in range(1_000)]), 11),
        (lambda: ValueError("word " * 1_000_000), 1),
        (_with_much_output, 12),
    ],
)
async def test_what_is_said_of_an_exception_is_bounded(result_of, make, lines):
    def fail() -> None:
        raise make()

    result = await result_of(fail)
    assert len(result.text.splitlines()) <= lines
    assert len(result.text) <= 10_100
    assert "\n" not in result.person_text
