"""The loop breaker: which calls it refuses, and when it ends a turn."""

from __future__ import annotations

from typing import Any

import pytest

from wieldy.core.call import ToolCall
from wieldy.core.errors import Refusal
from wieldy.engine.turn import LoopBreaker


def call(input: Any = None, name: str = "Bash") -> ToolCall:
    return ToolCall("c", name, {"command": "x"} if input is None else input)


def fail(breaker: LoopBreaker, times: int, call: ToolCall) -> list[bool]:
    return [breaker.record(call, failed=True) for _ in range(times)]


def test_the_third_identical_failing_call_is_refused():
    breaker = LoopBreaker()
    fail(breaker, 1, call())
    breaker.check(call())
    fail(breaker, 1, call())
    with pytest.raises(Refusal, match="has failed 2 times"):
        breaker.check(call())
    breaker.check(call({"command": "y"}))
    breaker.check(call(name="Read"))


def test_the_fifth_ends_the_turn():
    assert fail(LoopBreaker(), 5, call()) == [False, False, False, False, True]


def test_a_success_resets_the_count():
    breaker = LoopBreaker()
    fail(breaker, 2, call())
    breaker.record(call(), failed=False)
    breaker.check(call())


def test_the_order_of_fields_and_the_type_of_raw_json_do_not_matter():
    breaker = LoopBreaker()
    fail(breaker, 2, call({"a": 1, "b": 2}))
    with pytest.raises(Refusal):
        breaker.check(call({"b": 2, "a": 1}))
    fail(breaker, 2, call('{"cut'))
    with pytest.raises(Refusal):
        breaker.check(call(b'{"cut'))


@pytest.mark.parametrize(
    "polling",
    [
        call({"id": 1}, "BashOutput"),
        call({"command": "sleep 5 && curl localhost:8000"}),
        call('{"command": "gh run view; sleep $N"}'),
    ],
)
def test_polling_is_never_refused(polling):
    breaker = LoopBreaker()
    assert not any(fail(breaker, 10, polling))
    breaker.check(polling)


def test_a_command_that_only_speaks_of_sleep_is_no_polling():
    for command in ("grep sleep a.py", "python test_sleep.py"):
        assert fail(LoopBreaker(), 5, call({"command": command}))[-1]


def test_a_change_resets_the_counts_but_not_the_same_change_again():
    breaker, edit = LoopBreaker(), call({"content": "a"}, "Write")
    fail(breaker, 2, call())
    breaker.record(call({"path": "a"}, "Read"), failed=False)
    breaker.record(edit, failed=True, changes=True)
    with pytest.raises(Refusal):
        breaker.check(call())
    breaker.record(edit, failed=False, changes=True)
    breaker.check(call())
    for _ in range(2):
        fail(breaker, 1, call())
        breaker.record(edit, failed=False, changes=True)
    with pytest.raises(Refusal):
        breaker.check(call())


def test_a_reset_forgets_every_failure():
    breaker = LoopBreaker()
    fail(breaker, 4, call())
    breaker.reset()
    breaker.check(call())
    assert fail(breaker, 1, call()) == [False]
