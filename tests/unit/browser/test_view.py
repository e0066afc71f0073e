from __future__ import annotations

from wieldy.browser.session import shortened


def test_a_long_tree_is_cut_between_lines_and_says_so() -> None:
    tree = "\n".join(f"- link {n} [ref=e{n}]" for n in range(1000))
    short = shortened(tree, 200)
    *lines, told = short.splitlines()
    assert tree.startswith("\n".join(lines))
    assert len(short) < 320
    assert told.startswith(f"[{1000 - len(lines)} more lines")


def test_a_short_tree_stays() -> None:
    assert shortened("- link") == "- link"
