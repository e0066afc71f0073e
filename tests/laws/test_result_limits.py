"""Whatever blocks a tool returns, the result keeps its limit and its order, and what is not shown is on disk."""

from __future__ import annotations

import base64
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from wieldy.core.call import ToolCall
from wieldy.core.outcome import Block, Done, Image, Text, ToolResult, text_of
from wieldy.engine.results import (
    MAX_BLOCKS,
    MAX_IMAGE_CHARS,
    MAX_IMAGES,
    NO_OUTPUT,
    PREVIEW_CHARS,
    Spill,
    clean,
    finalize,
)

MAX_NOTICE_CHARS = 1_000  # what is said about a result, with the paths of files
TEXT = st.text(st.sampled_from("ab \n\t\x1b") | st.characters(exclude_categories=[]), max_size=40)
BLOCK = (
    TEXT.map(Text)
    | st.sampled_from([10, 3000]).map(lambda size: Text("word\n" * size))
    | st.just(Image("image/png", ""))
)
CALL = ToolCall("call_1", "t", {})


def numbered(blocks: list[Block]) -> tuple[Block, ...]:
    """The blocks, each image with data of its own."""
    encode = base64.b64encode
    return tuple(
        Image("image/png", encode(b"%d" % n).decode()) if isinstance(block, Image) else block
        for n, block in enumerate(blocks)
    )


def shown(content: tuple[Block, ...], limit: int, folder: Path, notes: tuple[str, ...] = ()) -> ToolResult:
    return finalize(CALL, Done(content), limit, Spill(folder), notes)


@given(
    st.lists(BLOCK, max_size=30) | st.lists(BLOCK, min_size=MAX_BLOCKS, max_size=3 * MAX_BLOCKS), st.integers(1, 20_000)
)
@settings(max_examples=150, deadline=None)
def test_any_blocks_give_a_result_within_the_limit_and_the_rest_is_on_disk(blocks, limit):
    content = numbered(blocks)
    texts = [cleaned for block in content if isinstance(block, Text) and (cleaned := clean(block.text)).strip()]
    images = [block for block in content if isinstance(block, Image)]
    with tempfile.TemporaryDirectory() as temp:
        result = shown(content, limit, Path(temp))
        files = sorted(
            (path for path in Path(temp).rglob("*") if path.is_file()), key=lambda path: (len(path.name), path)
        )
        saved_texts = [path.read_bytes().decode() for path in files if path.suffix == ".txt"]
        saved_images = [path.read_bytes() for path in files if path.suffix == ".png"]
    assert len(result.content) <= MAX_BLOCKS + 1
    assert len(result.text) <= max(limit, len(NO_OUTPUT)) + MAX_NOTICE_CHARS
    visible = [block for block in result.content if isinstance(block, Image)]
    assert visible == images[:MAX_IMAGES]
    assert saved_images == [base64.b64decode(image.data) for image in images[MAX_IMAGES:]]
    joined = "\n".join(texts)
    if len(joined) > limit:
        assert saved_texts == [joined]
        assert len(result.text) <= min(limit, PREVIEW_CHARS) + MAX_NOTICE_CHARS
    else:
        assert saved_texts == []
        shown_texts = [block.text for block in result.content if isinstance(block, Text)]
        assert "\n".join(shown_texts).startswith(joined)
    if len(images) > MAX_IMAGES:
        assert f"{len(images) - MAX_IMAGES} of {len(images)} images" in text_of(result.content[-1:])


def test_images_are_bounded_by_their_size_too(tmp_path):
    large = "AAAA" * (MAX_IMAGE_CHARS // 12)
    content: tuple[Block, ...] = (Text("before"), *[Image("image/jpeg", large)] * 4, Text("after"))
    result = shown(content, 1000, tmp_path)
    assert [type(block) for block in result.content] == [Text, *[Image] * 3, Text, Text]
    assert "1 of 4 images" in result.text
    (folder,) = tmp_path.iterdir()
    assert [path.name for path in folder.iterdir()] == ["4.jpg"]


def test_text_between_images_keeps_its_place(tmp_path):
    content: list[Block] = [block for n in range(MAX_BLOCKS) for block in (Text(f"one {n}"), Text(f"two {n}"))]
    content[7] = Image("image/png", "")
    result = shown(tuple(content), 100_000, tmp_path)
    assert [type(block) for block in result.content] == [Text, Image, Text]
    assert result.content[0] == Text("one 0\ntwo 0\none 1\ntwo 1\none 2\ntwo 2\none 3")


def test_blocks_that_cannot_be_saved_are_named(tmp_path):
    (tmp_path / "file").write_text("")
    result = shown((Text("x" * 100), *[Image("image/png", "")] * (MAX_IMAGES + 2)), 50, tmp_path / "file")
    assert "could not be kept on disk" in text_of(result.content[:1])
    assert "2 of 22 images" in text_of(result.content[-1:])
    assert "could not be kept on disk" in text_of(result.content[-1:])


def test_many_blocks_are_limited_in_one_pass(tmp_path):
    result = shown((Text("x" * 100),) * 20_000, 50_000, tmp_path)
    assert len(result.text) < PREVIEW_CHARS + MAX_NOTICE_CHARS
    assert len(list(tmp_path.iterdir())) == 1


def test_notes_on_a_repaired_call_are_kept_beside_a_long_result(tmp_path):
    result = shown((Text("x" * 100),), 50, tmp_path, ("the input was repaired",))
    assert result.content[-1] == Text("(the input was repaired)")
