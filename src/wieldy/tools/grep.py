"""Grep: searches file contents."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

from wieldy.core.effects import Effects, Reads
from wieldy.core.errors import ToolFailure
from wieldy.core.schema.fields import Param
from wieldy.core.text import plural
from wieldy.core.threads import in_thread
from wieldy.core.tool import Output, ToolContext
from wieldy.core.tool_decorator import tool
from wieldy.core.workspace import Workspace

if TYPE_CHECKING:
    from wieldy.files.search.grep import GrepQuery, GrepResult

HEAD_LIMIT = 250


def _effects(input: Mapping[str, Any], workspace: Workspace) -> Effects:
    return (Reads(input.get("path") or workspace.cwd),)


@tool(
    name="Grep",
    described_in=__file__,
    rules="read",
    counted="line",
    fails={"pattern": "("},
    paths="path",
    effects=_effects,
    read_only=True,
    aliases={"include": "glob", "file_path": "path", "context": "-C", "regex": "pattern"},
)
async def grep(  # noqa: PLR0913 - the options of a search are many
    ctx: ToolContext,
    *,
    pattern: str,
    path: Annotated[str | None, "File or folder"] = None,
    glob: Annotated[str | None, "Such as *.{ts,tsx}"] = None,
    type: Annotated[str | None, "Such as py, js"] = None,
    output_mode: Literal["files_with_matches", "content", "count"] = "files_with_matches",
    ignore_case: Annotated[bool, Param(name="-i")] = False,
    line_numbers: Annotated[bool, Param(name="-n")] = True,
    only_matching: Annotated[bool, Param(name="-o")] = False,
    after: Annotated[int, Param(name="-A")] = 0,
    before: Annotated[int, Param(name="-B")] = 0,
    around: Annotated[int, Param(name="-C")] = 0,
    multiline: bool = False,
    head_limit: Annotated[int, Param("Lines or files shown; 0 = all", ge=0)] = HEAD_LIMIT,
    offset: Annotated[int, Param("Skipped first", ge=0)] = 0,
) -> Output:
    from wieldy.files.search.format import explain_unreadable
    from wieldy.files.search.grep import GrepQuery
    from wieldy.files.search.grep import grep as search
    from wieldy.files.search.patterns import hidden_test, split_globs
    from wieldy.files.search.ripgrep import Ripgrep, SearchFailure

    workspace = ctx.workspace
    query = GrepQuery(
        pattern=pattern,
        root=path or ctx.cwd,
        real_root=ctx.resolved(path or ctx.cwd),
        mode=output_mode,
        globs=tuple(split_globs(glob or "")),
        file_type=type or None,
        ignore_case=ignore_case,
        only_matching=only_matching,
        multiline=multiline,
        before=max(before or around, 0),
        after=max(after or around, 0),
        limit=head_limit,
        offset=offset,
    )
    try:
        result = await search(query, Ripgrep.for_tool("Grep", workspace, query.root), hidden_test(ctx.judge))
    except SearchFailure as failure:
        raise ToolFailure(str(failure)) from None
    except OSError as error:
        reason = await in_thread(explain_unreadable, query.root, error, ctx.cwd, workspace.files)
        raise ToolFailure(*reason) from None
    body = "\n".join(_body(query, result, ctx.cwd, line_numbers))
    text = "\n".join(filter(None, (body, *_notes(query, result))))
    return Output(text, data=_data(query, result, body))


def _body(query: GrepQuery, result: GrepResult, cwd: str, numbered: bool) -> Iterator[str]:
    from wieldy.core.text import relative_path

    if query.mode != "content":
        for file in result.files:
            name = relative_path(file.path, cwd)
            yield name if query.mode == "files_with_matches" else f"{name}:{file.count}"
        return
    last: tuple[str, int] | None = None
    for path, line in result.lines:
        separator = ":" if line.is_match else "-"
        if last and query.has_context and last != (path, line.number - 1):
            yield "--"
        last = (path, line.number)
        number = f"{line.number}{separator}" if numbered else ""
        yield f"{relative_path(path, cwd)}{separator}{number}{line.text}"


def _notes(query: GrepQuery, result: GrepResult) -> Iterator[str]:
    """The totals, how to see more, and what is missing."""
    shown = len(result.lines) if query.mode == "content" else len(result.files)
    if not result.total_files:
        yield "No matches found"
    elif not shown:
        yield f"[{_totals(query, result)}; nothing is left at offset={query.offset}]"
    else:
        first, last = query.offset + 1, query.offset + shown
        what = "lines" if query.mode == "content" else "files"
        page = f"; showing {what} {first}-{last}" if result.more or query.offset else ""
        more = f". Use offset={last} for more" if result.more else ""
        yield f"[{_totals(query, result)}{page}{more}]"
    yield from (f"[{notice}]" for notice in result.notices)


def _totals(query: GrepQuery, result: GrepResult) -> str:
    files = plural(result.total_files, "file")
    if query.mode == "files_with_matches":
        return f"Found in {files}"
    thing = "match" if query.counts_matches else "matching line"
    return f"Found {plural(result.total_matches, thing)} in {files}"


def _data(query: GrepQuery, result: GrepResult, body: str) -> dict[str, Any]:
    from wieldy.core.text import display_path

    data: dict[str, Any] = {
        "mode": query.mode,
        "filenames": [display_path(file.path) for file in result.files],
        "numFiles": result.total_files,
        "truncated": result.more,
    }
    if query.mode == "files_with_matches":
        return data
    return {**data, "content": body, "numLines": len(result.lines), "numMatches": result.total_matches}
