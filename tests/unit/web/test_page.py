from __future__ import annotations

import base64
import io
import sys
from pathlib import Path

import pytest

from wieldy.core.errors import ToolFailure
from wieldy.core.outcome import Image
from wieldy.web.fetch import FetchedResponse
from wieldy.web.page import WebPage, html_to_markdown, read_page
from wieldy.web.url import parse_url

HTML = b"""<!doctype html><html><head><title>Tea &amp;
 cake</title><script>steal()</script><style>p{}</style></head><body><nav><a href=/menu>Menu</a></nav>
<h1>Tea</h1><p>Hot <b>tea</b>, see <a href="../cake?a=1&amp;b=2">cake</a>. <img src="data:image/png;base64,AAAA" alt="cup">
<img src="/pot.png" alt="pot"></p><pre><code class="language-python">def pour():
    return 1
</code></pre><table><tr><th>a</th><th>b</th></tr><tr><td>1</td><td>2</td></tr></table></body></html>"""


async def page_of(folder: Path, body: bytes, media_type: str = "", *, status: int = 200, cut: bool = False) -> WebPage:
    headers = {"content-type": media_type} if media_type else {}
    address = parse_url("https://e.org/shop/tea")
    return await read_page(FetchedResponse(address, status, "Reason", headers, body, cut), folder / "kept")


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "media_type", ["text/html; charset=utf-8", "", "application/octet-stream", "application/xhtml+xml"]
)
async def test_html_becomes_markdown_with_absolute_links(tmp_path: Path, media_type: str) -> None:
    page = await page_of(tmp_path, HTML, media_type)
    assert page.title == "Tea & cake"
    assert page.text.startswith("# Tea\n\nHot **tea**, see [cake](https://e.org/cake?a=1&b=2).")
    assert "![pot](https://e.org/pot.png)" in page.text
    assert "```python\ndef pour():\n    return 1\n```" in page.text
    assert "| 1 | 2 |" in page.text
    for unwanted in ("steal", "p{}", "Menu", "AAAA"):
        assert unwanted not in page.text


@pytest.mark.asyncio
async def test_other_text_stays_as_it_is(tmp_path: Path) -> None:
    assert (await page_of(tmp_path, b'{"a": [1, "<b>"]}', "application/json")).text == '{"a": [1, "<b>"]}'
    assert (await page_of(tmp_path, b"# md\n<p>", "text/markdown")).text == "# md\n<p>"
    assert (await page_of(tmp_path, "naïve".encode("cp1252"), "text/plain; charset=latin1")).text == "naïve"


@pytest.mark.asyncio
async def test_a_page_without_text_says_so(tmp_path: Path) -> None:
    page = await page_of(tmp_path, b"<html><script>render()</script></html>", "text/html")
    assert "no text" in page.remarks[0]
    for media_type in ("text/plain", "text/html"):
        assert (await page_of(tmp_path, b"", media_type)).remarks == ("The answer is empty.",)


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("tag", "target"),
    [
        ('<meta http-equiv="refresh" content="0; url=../en/latest/?a=1&amp;b=2">', "https://e.org/en/latest/?a=1&b=2"),
        ("<META content='5;URL=\"https://other.org/\"' HTTP-EQUIV=Refresh />", "https://other.org/"),
        ('<meta http-equiv="refresh" content="30">', None),
        ('<meta http-equiv="refresh" content="30; url=tea">', None),
        ('<meta http-equiv="refresh" content="0; url=file:///etc/passwd">', None),
        ('<meta name="x" content="0; url=/elsewhere">', None),
    ],
)
async def test_a_page_that_sends_its_readers_on_says_where(tmp_path: Path, tag: str, target: str | None) -> None:
    page = await page_of(tmp_path, f"<html><head>{tag}</head><body><p>Moved.</p></body></html>".encode(), "text/html")
    assert [f"leads on to {target};" in remark for remark in page.remarks] == ([True] if target else [])


@pytest.mark.asyncio
async def test_what_was_cut_is_said(tmp_path: Path) -> None:
    assert "was not fetched" in (await page_of(tmp_path, b"long", "text/plain", cut=True)).remarks[0]


@pytest.mark.asyncio
async def test_a_picture_stays_a_picture(tmp_path: Path) -> None:
    from PIL import Image as pillow

    png = io.BytesIO()
    pillow.new("RGB", (30, 20), "red").save(png, "PNG")
    page = await page_of(tmp_path, png.getvalue(), "text/html")
    (image,) = page.content
    assert isinstance(image, Image)
    assert base64.b64decode(image.data) == png.getvalue()
    assert page.remarks == ("30×20 pixels",)
    with pytest.raises(ToolFailure, match="larger than"):
        await page_of(tmp_path, png.getvalue(), "image/png", cut=True)


@pytest.mark.asyncio
async def test_a_pdf_is_read_and_a_long_one_is_kept(tmp_path: Path) -> None:
    short = await page_of(tmp_path, pdf_of("Hello from paper"), "application/pdf")
    assert "Hello from paper" in short.text
    assert short.remarks == ()
    long = await page_of(tmp_path, pdf_of(*(f"Sheet {n}" for n in range(1, 31))), "application/pdf")
    assert "Sheet 20" in long.text
    assert "Sheet 21" not in long.text
    (kept,) = (tmp_path / "kept").iterdir()
    assert "30 pages" in long.remarks[0]
    assert str(kept) in long.remarks[0]


@pytest.mark.asyncio
async def test_other_files_are_named_and_refused(tmp_path: Path) -> None:
    with pytest.raises(ToolFailure, match="ZIP archive"):
        await page_of(tmp_path, b"PK\x03\x04" + bytes(100), "text/html")


@pytest.mark.asyncio
async def test_an_error_page_is_an_error_with_its_words(tmp_path: Path) -> None:
    with pytest.raises(ToolFailure, match=r"tea answered 404 Reason\. It said: Tea & cake$"):
        await page_of(tmp_path, HTML, "text/html", status=404)
    with pytest.raises(ToolFailure, match=r'answered 422 Reason\. It said: {"error": "id is missing"}$'):
        await page_of(tmp_path, b'{"error": "id is missing"}', "application/json", status=422)
    with pytest.raises(ToolFailure, match=r"answered 500 Reason\.$"):
        await page_of(tmp_path, b"\0\1\2", "application/octet-stream", status=500)
    with pytest.raises(ToolFailure, match=r"answered 429 Reason\. It said: slow down"):
        await page_of(tmp_path, b"slow down", "text/plain", status=429)


@pytest.mark.asyncio
async def test_deeply_nested_html_neither_breaks_nor_blocks(tmp_path: Path) -> None:
    page = await page_of(tmp_path, b"<p>top</p>" + b"<div><ul><li>" * 20_000 + b"x", "text/html")
    assert page.text.startswith("top")


@pytest.mark.asyncio
async def test_html_that_takes_too_long_is_given_up() -> None:
    with pytest.raises(ToolFailure, match="took more than"):
        await html_to_markdown("<blockquote>" * 300_000, "https://e.org/", timeout=0.3)


@pytest.mark.asyncio
async def test_where_the_converter_is_missing_its_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "html_to_markdown", None)
    with pytest.raises(ToolFailure, match=r"wieldy\[web\]"):
        await page_of(tmp_path, HTML, "text/html")
    assert (await page_of(tmp_path, b"plain", "text/plain")).text == "plain"


def pdf_of(*pages: str) -> bytes:
    """A PDF with one line of text on each page."""
    count = len(pages)
    objects = [
        "<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Count {count} /Kids [{' '.join(f'{4 + 2 * n} 0 R' for n in range(count))}] >>",
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    for n, text in enumerate(pages):
        drawn = f"BT /F1 12 Tf 20 100 Td ({text}) Tj ET"
        objects.append(
            f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 300 200] /Contents {5 + 2 * n} 0 R "
            "/Resources << /Font << /F1 3 0 R >> >> >>"
        )
        objects.append(f"<< /Length {len(drawn)} >>\nstream\n{drawn}\nendstream")
    out, offsets = b"%PDF-1.4\n", []
    for number, body in enumerate(objects, 1):
        offsets.append(len(out))
        out += f"{number} 0 obj\n{body}\nendobj\n".encode()
    table = "".join(f"{offset:010d} 00000 n \n" for offset in offsets)
    size = len(objects) + 1
    tail = f"xref\n0 {size}\n0000000000 65535 f \n{table}trailer << /Size {size} /Root 1 0 R >>\nstartxref\n{len(out)}\n%%EOF"
    return out + tail.encode()


@pytest.mark.asyncio
@pytest.mark.parametrize("depth", [255, 300, 1_200, 20_000])
@pytest.mark.parametrize("tag", ["div", "b", "blockquote", "table><tr><td", "ul><li"])
async def test_no_text_is_lost_however_deep_it_is_nested(tmp_path: Path, depth: int, tag: str) -> None:
    ends = "".join(f"</{name}>" for name in reversed(tag.split("><")))
    levels = depth // len(tag.split("><"))
    body = "<p>before</p>" + f"<{tag}>" * levels + "deep &amp; text" + ends * levels + "<h2>after</h2>"
    page = await page_of(tmp_path, f"<html><body>{body}</body></html>".encode(), "text/html")
    for expected in ("before", "deep & text", "## after"):
        assert expected in page.text


@pytest.mark.asyncio
async def test_many_paragraphs_without_end_tags_are_not_deep(tmp_path: Path) -> None:
    page = await page_of(tmp_path, b"<html><body>" + b"<p>one<ul><li>two</ul>" * 2_000, "text/html")
    assert page.text.count("one\n\n- two") == 2_000
