from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wieldy.policy.permissions.patterns import host_of
from wieldy.web.url import InvalidUrl, parse_url


@pytest.mark.parametrize(
    ("written", "canonical"),
    [
        ("https://example.com", "https://example.com/"),
        ("  HTTPS://Example.COM.:443/a?b=c#d  ", "https://example.com/a?b=c"),
        ("http://example.com:8080/", "http://example.com:8080/"),
        ("https://bücher.example/ü?q=ö", "https://xn--bcher-kva.example/%C3%BC?q=%C3%B6"),
        ("https://e.org/a%20b?x=[1]&y=a|b", "https://e.org/a%20b?x=[1]&y=a|b"),
        ("http://[::1]:80/x", "http://[::1]/x"),
        ("http://[0:0:0:0:0:0:0:1]/", "http://[::1]/"),
        ("http://[::ffff:127.0.0.1]/", "http://[::ffff:7f00:1]/"),
        ("http://[::FFFF:A00:0001]/", "http://[::ffff:a00:1]/"),
        ("http://2130706433/", "http://127.0.0.1/"),
        ("http://0x7f.1/", "http://127.0.0.1/"),
        ("http://017700000001/", "http://127.0.0.1/"),
        ("http://0177.0.0.01/", "http://127.0.0.1/"),
        ("http://0x7F000001/", "http://127.0.0.1/"),
        ("http://127.1/", "http://127.0.0.1/"),
        ("http://0/", "http://0.0.0.0/"),
        ("http://１２７.０.０.１/", "http://127.0.0.1/"),
        ("http://ⓛocalhost/", "http://localhost/"),
        ("http://127。0。0。1/", "http://127.0.0.1/"),
    ],
)
def test_an_address_has_one_spelling(written: str, canonical: str) -> None:
    assert str(parse_url(written)) == canonical
    assert str(parse_url(canonical)) == canonical


@pytest.mark.parametrize(
    "written",
    [
        *("", "example.com", "//example.com/", "/etc/passwd", "https://", "https:///x", "http:example.com"),
        *("file:///etc/passwd", "ftp://e.org/", "gopher://e.org/", "javascript:alert(1)", "data:text/html,x"),
        *("http://user@e.org/", "http://e.org:80@127.0.0.1/", "http://e.org\\@127.0.0.1/", "http://e.org/a b"),
        *("http://e.org:0/", "http://e.org:99999/", "http://e.org:x/", "http://e.org/\nHost: x", "http://e.org/\x00"),
        *("http://256.1.1.1/", "http://1.2.3.4.5/", "http://0x100000000/", "http://1.2.3.08/", "http://a.0x1g.1/"),
        *(
            "http://[fe80::1%25eth0]/",
            "http://[::1/",
            "http://[v1.x]/",
            "http://%6cocalhost/",
            "http://a..b/",
            "http://straße.de/",
        ),
        *("http://-a.org/", "http://a_b!.org/", "http://" + "a" * 64 + ".org/", "http://e.org/" + "x" * 9000),
    ],
)
def test_what_could_be_read_in_two_ways_is_no_address(written: str) -> None:
    with pytest.raises(InvalidUrl):
        parse_url(written)


def test_the_message_says_how_to_write_it() -> None:
    with pytest.raises(InvalidUrl, match="starts with https://"):
        parse_url("example.com/x")


def test_references_are_resolved_like_links() -> None:
    page = parse_url("https://e.org/a/b?c")
    assert str(page.join("../d")) == "https://e.org/d"
    assert str(page.join("//other.org/x")) == "https://other.org/x"
    with pytest.raises(InvalidUrl):
        page.join("file:///etc/passwd")


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet="htps:/@#?[]%\\.0127afxlocalhost-_ \t", max_size=40).map(lambda rest: f"http://{rest}"))
def test_rules_see_the_host_that_is_connected_to(written: str) -> None:
    try:
        address = parse_url(written)
    except InvalidUrl:
        return
    assert host_of(str(address)) == address.host
    assert parse_url(str(address)) == address
