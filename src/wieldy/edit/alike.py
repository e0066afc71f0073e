"""How far two contents agree from either end: blocks are compared, and the one in which they part is taken for a number, whose
highest bit in which it differs from the other tells where."""

from __future__ import annotations

BLOCK = 1 << 14


def same_start(one: bytes, other: bytes) -> int:
    """How many bytes two contents begin with alike."""
    shortest = min(len(one), len(other))
    at = 0
    while at < shortest:
        end = min(at + BLOCK, shortest)
        here, there = one[at:end], other[at:end]
        if here != there:
            apart = int.from_bytes(here, "big") ^ int.from_bytes(there, "big")
            return end - (apart.bit_length() + 7) // 8
        at = end
    return shortest


def same_end(one: bytes, other: bytes, most: int) -> int:
    """How many bytes, but no more than `most`, two contents end with alike."""
    done = 0
    while done < most:
        upto = min(done + BLOCK, most)
        here, there = one[len(one) - upto : len(one) - done], other[len(other) - upto : len(other) - done]
        if here != there:
            apart = int.from_bytes(here, "little") ^ int.from_bytes(there, "little")
            return upto - (apart.bit_length() + 7) // 8
        done = upto
    return most
