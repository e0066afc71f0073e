from __future__ import annotations

import base64
import io
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from PIL import Image as pillow

from wieldy.core.errors import ToolFailure
from wieldy.core.outcome import Image, Text
from wieldy.files.reading.media import MAX_PAGES, parse_page_numbers, read_pdf


def pdf(*pages: str) -> bytes:
    """A document of plain pages, each with one line of text."""
    kids = " ".join(f"{4 + 2 * n} 0 R" for n in range(len(pages)))
    objects = [
        "<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {len(pages)} >>",
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    for n, text in enumerate(pages):
        stream = f"BT /F1 24 Tf 72 700 Td ({text}) Tj ET" if text else ""
        resources = "/Resources << /Font << /F1 3 0 R >> >>"
        objects.append(f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] {resources} /Contents {5 + 2 * n} 0 R >>")
        objects.append(f"<< /Length {len(stream)} >>\nstream\n{stream}\nendstream")
    out, places = b"%PDF-1.4\n", []
    for number, body in enumerate(objects, 1):
        places.append(len(out))
        out += f"{number} 0 obj\n{body}\nendobj\n".encode()
    table = "".join(f"{place:010} 00000 n \n" for place in places)
    size = len(objects) + 1
    trailer = f"trailer << /Size {size} /Root 1 0 R >>\nstartxref\n{len(out)}\n%%EOF\n"
    return out + f"xref\n0 {size}\n0000000000 65535 f \n{table}{trailer}".encode()


def test_the_text_comes_page_by_page() -> None:
    found = read_pdf(pdf("First page", "Second page"), "it")
    assert found.texts == ("First page", "Second page")
    assert found.content == (Text("<page 1 of 2>\nFirst page\n\n<page 2 of 2>\nSecond page"),)


def test_a_page_without_text_says_how_to_see_it() -> None:
    (block,) = read_pdf(pdf(""), "it").content
    assert isinstance(block, Text)
    assert "as_images=true" in block.text


def test_pages_are_drawn_on_request() -> None:
    found = read_pdf(pdf("One", "Two", "Three"), "it", pages="2-3", as_images=True)
    assert [block.text for block in found.content if isinstance(block, Text)] == ["Page 2 of 3:", "Page 3 of 3:"]
    images = [block for block in found.content if isinstance(block, Image)]
    assert len(images) == 2
    drawn = pillow.open(io.BytesIO(base64.b64decode(images[0].data)))
    assert drawn.height == 1568
    darkest, lightest = drawn.convert("L").getextrema()
    assert (darkest, lightest) == (0, 255)


def test_a_long_document_asks_which_pages() -> None:
    long = pdf(*(f"Page {n}" for n in range(1, 31)))
    with pytest.raises(ToolFailure, match=r'it has 30 pages\. Say which to read with `pages`, for example "1-10"'):
        read_pdf(long, "it")
    assert read_pdf(long, "it", pages="7, 29-30").texts == ("Page 7", "Page 29", "Page 30")


@pytest.mark.parametrize(
    ("pages", "numbers"),
    [
        ("1", (1,)),
        ("2-4", (2, 3, 4)),
        ("3,1,3", (3, 1)),
        ("28-", (28, 29, 30)),
        ("29-99", (29, 30)),
        (" 1 - 2 ", (1, 2)),
    ],
)
def test_pages_are_named_by_number_and_range(pages: str, numbers: tuple[int, ...]) -> None:
    assert parse_page_numbers(pages, 30) == numbers


@pytest.mark.parametrize("pages", ["x", "1,,2", "0", "5-2", "31", "-3", "1-30", "1-15,16-30", "1--2", "²", "9" * 30])
def test_pages_that_make_no_sense_are_explained(pages: str) -> None:
    with pytest.raises(ToolFailure, match=r"^`pages`: .* has 30 pages"):
        read_pdf(pdf(*map(str, range(30))), "it", pages=pages)


def test_no_more_pages_than_a_model_can_take_in() -> None:
    assert len(parse_page_numbers(f"1-{MAX_PAGES}", 100)) == MAX_PAGES
    with pytest.raises(ValueError, match="at most"):
        parse_page_numbers(f"1-{MAX_PAGES + 1}", 100)


def test_a_damaged_document_is_refused() -> None:
    with pytest.raises(ToolFailure, match="it is damaged or no PDF"):
        read_pdf(b"%PDF-1.7\nnothing more", "it")


def test_a_locked_document_is_refused() -> None:
    locked = pdf("Secret").replace(
        b"trailer << ",
        b"trailer << /ID [<00> <00>] /Encrypt << /Filter /Standard /V 1 /R 2 /P -4 "
        b"/O <" + b"11" * 32 + b"> /U <" + b"22" * 32 + b"> >> ",
    )
    with pytest.raises(ToolFailure, match="it is protected by a password"):
        read_pdf(locked, "it")


def exponential_document() -> bytes:
    """A document of a few kilobytes whose page holds 10²⁴ letters, by forms that hold ten others each."""
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 9 9] /Contents 4 0 R /Resources << /XObject << /X 6 0 R >> >> >>",
        b"<< /Length 5 >> stream\n/X Do\nendstream",
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    for number in range(7, 32):
        content = b"/X Do " * 10 if number < 31 else b"BT /F 9 Tf (x) Tj ET"
        resources = b"<< /Font << /F 5 0 R >> /XObject << /X %d 0 R >> >>" % number
        head = b"<< /Type /XObject /Subtype /Form /BBox [0 0 9 9] /Resources %b /Length %d >>" % (
            resources,
            len(content),
        )
        objects.append(head + b" stream\n" + content + b"\nendstream")
    body = b"".join(b"%d 0 obj %b endobj\n" % (number, each) for number, each in enumerate(objects, 1))
    return b"%PDF-1.7\n" + body + b"trailer << /Size 32 /Root 1 0 R >>\n%%EOF"


@pytest.mark.parametrize("as_images", [False, True])
def test_a_document_that_exhausts_memory_or_time_is_refused_and_harms_nobody(as_images: bool) -> None:
    document = exponential_document()
    assert len(document) < 10_000
    with pytest.raises(ToolFailure, match=r"it cannot be read: it takes more than 30 s or 1024 MB of memory"):
        read_pdf(document, "it", as_images=as_images)
    assert read_pdf(pdf("Still here"), "it").texts == ("Still here",)


def test_a_page_with_endless_text_is_cut() -> None:
    (text,) = read_pdf(pdf(") Tj (".join(["word " * 1_000] * 200)), "it").texts
    assert text.startswith("word word ")
    assert text.endswith("characters)") and len(text) < 600_000


def test_several_documents_are_read_side_by_side_without_harm() -> None:
    documents = [pdf(*(f"Document {d} page {p}" for p in range(5))) for d in range(8)]
    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(lambda data: read_pdf(data, "it").texts, documents))
    assert found == [tuple(f"Document {d} page {p}" for p in range(5)) for d in range(8)]


def test_without_the_library_the_error_says_what_to_install() -> None:
    program = (
        "import sys; sys.modules['pypdfium2'] = None\n"
        "from wieldy.files.reading.media import read_pdf\n"
        "try: read_pdf(b'%PDF-', 'it')\n"
        "except Exception as error: print(error)\n"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, timeout=60)
    assert done.stdout == "it is a PDF, and reading it needs pypdfium2: pip install 'wieldy[docs]'.\n"
