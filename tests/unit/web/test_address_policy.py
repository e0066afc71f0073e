from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wieldy.web.address_policy import non_public_kind


@pytest.mark.parametrize(
    "address", ["1.1.1.1", "93.184.216.34", "2606:4700::1111", "::ffff:1.1.1.1", "64:ff9b::101:101"]
)
def test_public_addresses(address: str) -> None:
    assert non_public_kind(address) is None


@pytest.mark.parametrize(
    ("address", "kind"),
    [
        *(
            ("127.0.0.1", "loopback"),
            ("127.255.1.2", "loopback"),
            ("::1", "loopback"),
            ("::ffff:127.0.0.1", "loopback"),
        ),
        *(("10.0.0.1", "private"), ("172.16.0.1", "private"), ("192.168.1.1", "private"), ("fd00:ec2::254", "private")),
        *(("100.100.100.200", "private"), ("fec0::1", "private"), ("198.18.0.1", "private"), ("192.0.2.1", "private")),
        *(("169.254.169.254", "link-local"), ("fe80::1", "link-local"), ("fe80::1%eth0", "link-local")),
        *(
            ("::ffff:169.254.169.254", "link-local"),
            ("64:ff9b::a9fe:a9fe", "link-local"),
            ("64:ff9b::7f00:1", "loopback"),
        ),
        *(("0.0.0.0", "unspecified"), ("::", "unspecified"), ("224.0.0.1", "multicast"), ("ff02::1", "multicast")),
        *(("255.255.255.255", "broadcast"), ("240.0.0.1", "reserved"), ("192.0.0.192", "reserved")),
        *(("168.63.129.16", "metadata"), ("::ffff:168.63.129.16", "metadata")),
        *(("2002:7f00:1::", "tunnel"), ("2002:101:101::", "tunnel"), ("2001:0:53aa:64c::1", "tunnel")),
        *(("64:ff9b:1::7f00:1", "tunnel"), ("::7f00:1", "reserved"), ("localhost", "malformed"), ("", "malformed")),
    ],
)
def test_inside_addresses_have_a_kind(address: str, kind: str) -> None:
    assert non_public_kind(address) == kind


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_wrapping_an_address_in_another_makes_it_no_more_public(number: int) -> None:
    plain = non_public_kind(str(ipaddress.IPv4Address(number)))
    mapped = non_public_kind(str(ipaddress.IPv6Address((0xFFFF << 32) | number)))
    translated = non_public_kind(str(ipaddress.IPv6Address((0x64FF9B << 96) | number)))
    assert mapped == plain == translated
