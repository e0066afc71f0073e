"""Whatever the bytes, the codec named for them decodes them, or says that it does not quite."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from wieldy.files.detection import binary_kind, decodes, detect_encoding

LAW = settings(max_examples=200, deadline=None)
codecs = st.sampled_from(["utf-8", "gbk", "shift_jis", "euc_kr", "big5", "cp1251", "cp1252", "utf-16", "utf-32"])
words = st.text(st.sampled_from("ab \n\té漢字テстюя한글—“"), max_size=40)
anything = st.one_of(st.binary(max_size=300), st.builds(lambda t, c: t.encode(c, "ignore"), words, codecs))


@LAW
@given(data=anything)
def test_the_codec_decodes_the_bytes_strictly_unless_it_is_a_broken_unicode_text(data: bytes) -> None:
    found = detect_encoding(data)
    assert data.startswith(found.bom)
    body = data[len(found.bom) :]
    if not decodes(body, found.name):
        assert not found.valid
        assert found.bom or found.name == "utf-8"
    body.decode(found.name, "replace")


@LAW
@given(data=anything)
def test_a_strict_decoding_gives_the_bytes_back(data: bytes) -> None:
    found = detect_encoding(data)
    body = data[len(found.bom) :]
    if found.name in {"utf-8", "latin-1", "cp1252", "utf-16-le", "utf-16-be"} and decodes(body, found.name):
        assert found.bom + body.decode(found.name).encode(found.name) == data


@LAW
@given(text=st.text(min_size=1))
def test_utf8_is_always_recognised(text: str) -> None:
    data = text.encode()
    if b"\0" not in data:
        found = detect_encoding(data)
        assert (found.name, found.doubtful) == ("utf-8", False)


@LAW
@given(data=anything, cut=st.integers(0, 300))
def test_a_head_of_a_text_is_never_refused(data: bytes, cut: int) -> None:
    found = detect_encoding(data[:cut], whole=False)
    assert found.valid <= decodes(data[:cut][len(found.bom) :], found.name, whole=False)


@LAW
@given(data=st.binary(max_size=200))
def test_a_file_without_nul_is_binary_only_by_its_signature(data: bytes) -> None:
    if b"\0" not in data:
        assert binary_kind(data) != "binary data"
