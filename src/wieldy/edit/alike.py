"""How far two contents agree from either end, found by comparing blocks and halving the one in which they part."""

from __future__ import annotations

BLOCK = 1 << 14


def same_start(one: bytes, other: bytes) -> int:
    """How many bytes two contents begin with alike."""
    shortest = min(len(one), len(other))
    at = 0
    while at < shortest and one.startswith(other[at : min(at + BLOCK, shortest)], at):
        at += BLOCK
    low, high = at, min(at + BLOCK, shortest)  # they agree up to `low`, and part before `high` or at its very end
    while low < high:
        half = (low + high + 1) // 2
        if one.startswith(other[low:half], low):
            low = half
        else:
            high = half - 1
    return min(low, shortest)


def same_end(one: bytes, other: bytes, most: int) -> int:
    """How many bytes, but no more than `most`, two contents end with alike."""
    done = 0
    while done < most and _ends_alike(one, other, done, min(done + BLOCK, most)):
        done += BLOCK
    low, high = done, min(done + BLOCK, most)
    while low < high:
        half = (low + high + 1) // 2
        if _ends_alike(one, other, low, half):
            low = half
        else:
            high = half - 1
    return min(low, most)


def _ends_alike(one: bytes, other: bytes, beyond: int, upto: int) -> bool:
    """Whether they agree in what lies between two distances from their ends."""
    return one.endswith(other[len(other) - upto : len(other) - beyond], 0, len(one) - beyond)
