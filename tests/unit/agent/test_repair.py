"""Whatever a history looks like, after repair the API takes it."""

from __future__ import annotations

from typing import Any

from tests.unit.agent.oracle import check_history, check_request

from wieldy.agent.repair import EMPTY, INTERRUPTED, repair
from wieldy.core.messages import Message


def user(*blocks: Any) -> Message:
    return Message("user", tuple({"type": "text", "text": b} if isinstance(b, str) else b for b in blocks))


def model(*blocks: Any) -> Message:
    return Message("assistant", tuple({"type": "text", "text": b} if isinstance(b, str) else b for b in blocks))


def call(id: str, name: str = "Read", **input: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": id, "name": name, "input": input}


def result(id: str, content: Any = "ok", **more: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": id, "content": content, **more}


def repaired(*history: Message) -> list[dict[str, Any]]:
    once = repair(history)
    assert [m.as_dict() for m in repair(once)] == [m.as_dict() for m in once], "a second pass changes nothing"
    messages = [message.as_dict() for message in once]
    check_history(messages)
    return messages


def test_a_sound_history_stays_the_very_same_objects():
    history = [user("hi"), model("well", call("a")), user(result("a")), model("done")]
    assert all(new is old for new, old in zip(repair(history), history, strict=True))


def test_a_call_without_result_gets_one_that_says_so():
    messages = repaired(user("hi"), model(call("a"), call("b")), user(result("b")))
    check_request(messages)
    first, second = messages[2]["content"]
    assert (first["tool_use_id"], first["content"], first["is_error"]) == ("a", INTERRUPTED, True)
    assert second["content"] == "ok"


def test_calls_at_the_very_end_are_answered():
    check_request(repaired(user("hi"), model(call("a"))))


def test_a_result_without_call_is_left_out():
    assert repaired(user("hi", result("x")), model("yes"), user(result("y"), "go"))[2]["content"][0]["text"] == "go"


def test_a_result_in_the_wrong_place_does_not_count():
    messages = repaired(user("hi"), model(call("a")), user("wait"), model("?"), user(result("a")))
    assert messages[2]["content"][0]["content"] == INTERRUPTED


def test_results_are_put_in_the_order_of_the_calls_and_before_anything_else():
    messages = repaired(user("hi"), model(call("a"), call("b")), user("so", result("b", "B"), result("a", "A")))
    assert [b.get("content", b.get("text")) for b in messages[2]["content"]] == ["A", "B", "so"]


def test_a_second_result_for_one_call_is_left_out():
    messages = repaired(user("hi"), model(call("a")), user(result("a", "first"), result("a", "second")))
    assert [b["content"] for b in messages[2]["content"]] == ["first"]


def test_ids_a_model_repeats_are_told_apart_with_their_results():
    messages = repaired(
        user("hi"),
        model(call("a", word=1), call("a", word=2)),
        user(result("a", "one"), result("a", "two")),
        model(call("a", word=3)),
        user(result("a", "three")),
    )
    ids = [b["id"] for m in messages if m["role"] == "assistant" for b in m["content"]]
    assert ids == ["a", "a-2", "a-3"]
    assert [b["content"] for m in messages[2::2] for b in m["content"]] == ["one", "two", "three"]


def test_blank_text_and_empty_messages_vanish_and_their_neighbours_join():
    messages = repaired(user("hi"), model(" \n"), user("", "there"), model("yes"))
    assert [b["text"] for b in messages[0]["content"]] == ["hi", "there"]


def test_results_that_say_nothing_say_so():
    for nothing in ("", "  \n", [], None, [{"type": "text", "text": " "}]):
        messages = repaired(user("hi"), model(call("a")), user(result("a", nothing)))
        assert messages[2]["content"][0]["content"] in (EMPTY, [{"type": "text", "text": EMPTY}])


def test_half_characters_and_control_characters_never_reach_the_api():
    messages = repaired(user("a\ud83db\x00"), model(call("x")), user(result("x", "c\udc00\x1b")))
    assert messages[0]["content"][0]["text"] == "a\ufffdb"
    assert messages[2]["content"][0]["content"] == "c\ufffd"


def test_thoughts_are_left_as_they_are_and_are_never_all_there_is():
    thought = {"type": "thinking", "thinking": "hm\x07 ", "signature": "s"}
    messages = repaired(user("hi"), model(thought, call("a")), user(result("a")), model(thought), user("more"))
    assert messages[1]["content"][0] is not None
    assert messages[1]["content"][0] == thought
    assert len(messages) == 3


def test_the_first_word_is_the_users():
    assert repaired(model("hello"), user("hi"))[0]["role"] == "user"
    assert repaired(user(result("x")), model("hello"))[0]["content"][0]["type"] == "text"


def test_pictures_no_provider_takes_become_a_line():
    def image(data: str, kind: str = "image/png") -> dict[str, Any]:
        return {"type": "image", "source": {"type": "base64", "media_type": kind, "data": data}}

    messages = repaired(user("see", image("x" * 6_000_000), image("eA==", "image/tiff"), image(""), image("eA==")))
    kinds = [block["type"] for block in messages[0]["content"]]
    assert kinds == ["text", "text", "text", "text", "image"]
    assert "too large" in messages[0]["content"][1]["text"]


def test_names_and_inputs_no_api_takes_are_mended():
    messages = repaired(
        user("hi"), model(call("a", "my tool!"), {"type": "tool_use", "id": "b", "name": "", "input": 3})
    )
    first, second = messages[1]["content"]
    assert (first["name"], second["name"], second["input"]) == ("my_tool_", "unknown", {})


def test_blocks_in_the_wrong_mouth_are_left_out():
    messages = repaired(user("hi", call("a"), {"type": "thinking", "thinking": "x"}), model("yes", result("a")))
    assert [len(message["content"]) for message in messages] == [1, 1]


def test_a_part_is_repaired_in_the_light_of_what_came_before():
    seen = {"a"}
    part = repair([model(call("a")), user(result("a"))], seen, whole=False)
    assert part[0].role == "assistant"
    assert part[0].content[0]["id"] == "a-2"
    assert seen == {"a", "a-2"}
