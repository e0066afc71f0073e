from __future__ import annotations

from wieldy.web.browser import truncate_tree


def test_a_long_tree_is_cut_between_lines_and_says_so() -> None:
    tree = "\n".join(f"- link {n} [ref=e{n}]" for n in range(1000))
    shortened = truncate_tree(tree, 200)
    *lines, last = shortened.splitlines()
    assert tree.startswith("\n".join(lines))
    assert len(shortened) < 320
    assert last.startswith(f"[{1000 - len(lines)} more lines")


def test_a_short_tree_stays() -> None:
    assert truncate_tree("- link") == "- link"
