"""LS: shows a folder as a tree."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any

from wieldy.core.effects import Effects, Reads
from wieldy.core.errors import ToolFailure
from wieldy.core.text import plural
from wieldy.core.threads import in_thread
from wieldy.core.tool import Output, ToolContext
from wieldy.core.tool_decorator import tool
from wieldy.core.workspace import Workspace

if TYPE_CHECKING:
    from wieldy.files.search.tree import Tree


def _effects(input: Mapping[str, Any], workspace: Workspace) -> Effects:
    return (Reads(input.get("path") or workspace.cwd),)


@tool(
    name="LS",
    described_in=__file__,
    rules="read",
    counted="entry",
    fails={"path": "nowhere"},
    paths="path",
    effects=_effects,
    read_only=True,
    aliases={"file_path": "path"},
)
async def ls(
    ctx: ToolContext,
    path: Annotated[str | None, "Folder"] = None,
    ignore: Annotated[list[str] | None, "Globs to leave out"] = None,
) -> Output:
    from wieldy.core.text import display_path, printable_path
    from wieldy.files.search.format import explain_unreadable
    from wieldy.files.search.patterns import BadGlob, hidden_test
    from wieldy.files.search.tree import list_tree

    folder, files = path or ctx.cwd, ctx.workspace.files
    try:
        tree = await in_thread(
            list_tree,
            ctx.resolved(folder),
            ignore or (),
            hidden_test(ctx.judge),
            stopped=lambda: ctx.abort.aborted,
            respect_ignore_files=ctx.workspace.setting("respectGitignore"),
            files=files,
        )
    except BadGlob as error:
        raise ToolFailure(f"A glob in `ignore` cannot be read: {error}.") from None
    except OSError as error:
        if isinstance(error, NotADirectoryError) and await in_thread(files.exists, folder):
            raise ToolFailure(f"{folder} is a file, not a folder.", "Use Read to see it.") from None
        raise ToolFailure(*await in_thread(explain_unreadable, folder, error, ctx.cwd, files)) from None
    heading = printable_path(folder).rstrip("/") + "/"
    notes = (f"[{note}]" for note in _notes(tree))
    text = "\n".join((heading, *(f"  {line}" for line in tree.lines()), *notes))
    data = {
        "path": display_path(folder),
        "entries": tree.names(),
        "numEntries": tree.listed,
        "truncated": not tree.complete,
        "hidden": tree.hidden,
        "ignored": tree.ignored,
    }
    return Output(text, data=data)


def _notes(tree: Tree) -> Iterator[str]:
    if not tree.listed:
        yield "Nothing to show" if tree.hidden or tree.ignored else "The folder is empty"
    if not tree.complete:
        yield f"Only {tree.listed} entries are shown. List a folder below to see the rest of it"
    if tree.hidden:
        yield f"{plural(tree.hidden, 'hidden entry')} not shown"
    if tree.ignored:
        yield f"{plural(tree.ignored, 'entry')} left out by ignore files"
