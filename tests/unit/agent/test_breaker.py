"""The same failing call, again and again."""

from __future__ import annotations

from wieldy.agent.breaker import Breaker


def failing(breaker: Breaker, times: int, name: str = "Bash", input: object = None) -> list[bool]:
    return [breaker.note(name, {"command": "x"} if input is None else input, failed=True) for _ in range(times)]


def test_the_third_identical_failing_call_is_refused_in_other_words():
    breaker = Breaker()
    failing(breaker, 1)
    assert breaker.refusal("Bash", {"command": "x"}) is None
    failing(breaker, 1)
    assert "has failed 2 times" in str(breaker.refusal("Bash", {"command": "x"}))
    assert breaker.refusal("Bash", {"command": "y"}) is None
    assert breaker.refusal("Read", {"command": "x"}) is None


def test_the_fifth_ends_the_turn():
    assert failing(Breaker(), 5) == [False, False, False, False, True]


def test_a_success_starts_the_count_anew():
    breaker = Breaker()
    failing(breaker, 2)
    breaker.note("Bash", {"command": "x"}, failed=False)
    assert breaker.refusal("Bash", {"command": "x"}) is None


def test_the_order_of_fields_makes_no_difference_and_raw_json_counts_too():
    breaker = Breaker()
    failing(breaker, 2, input={"a": 1, "b": 2})
    assert breaker.refusal("Bash", {"b": 2, "a": 1}) is not None
    failing(breaker, 2, input='{"cut')
    assert breaker.refusal("Bash", b'{"cut') is not None


def test_polling_may_fail_as_often_as_it_likes():
    breaker = Breaker()
    assert not any(failing(breaker, 10, "BashOutput", {"id": 1}))
    assert breaker.refusal("BashOutput", {"id": 1}) is None
