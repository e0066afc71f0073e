"""What a model sees of a page: title, address, the accessibility tree with a ref for each element, and what went wrong."""

from __future__ import annotations

from wieldy.browser.session import BrowserSession
from wieldy.core.decision import Judge

MOST_CHARS = 30_000


async def view(session: BrowserSession, judge: Judge, ref: str = "") -> str:
    """The page as it is now, or one element of it. Raises `ToolFailure`."""
    async with session.act(judge, settle=False) as page:
        seen = await session.element(page, ref) if ref else page
        tree = shortened(await seen.aria_snapshot(mode="ai"))
        if ref:
            # Refs are those of the last snapshot taken: with one of the whole page all stay usable.
            await page.aria_snapshot(mode="ai")
        title, url = await page.title(), page.url
    parts = [f"{title}\n<{url}>".strip(), tree or "(the page is empty)"]
    if problems := session.happenings():
        parts.append("\n".join(("What else happened:", *(f"- {line}" for line in problems))))
    return "\n\n".join(parts)


def shortened(tree: str, most: int = MOST_CHARS) -> str:
    """The first lines of a tree, and how many more there are."""
    if len(tree) <= most:
        return tree
    kept = tree[:most].rpartition("\n")[0] or tree[:most]
    left = tree.count("\n") - kept.count("\n")
    return f"{kept}\n[{left} more lines; BrowserSnapshot with the `ref` of a part shows that part]"
