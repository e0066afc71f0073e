"""Glob: finds files by a path pattern."""

from __future__ import annotations

import stat
import time
from collections.abc import Mapping
from typing import Annotated, Any

from wieldy.core.effects import Effects, Reads
from wieldy.core.errors import ToolFailure
from wieldy.core.schema.fields import Param
from wieldy.core.threads import in_thread
from wieldy.core.tool import Output, ToolContext
from wieldy.core.tool_decorator import tool
from wieldy.core.workspace import Workspace

DEFAULT_LIMIT = 100


def _effects(input: Mapping[str, Any], workspace: Workspace) -> Effects:
    from wieldy.files.search.glob import split_pattern

    folder, _ = split_pattern(input["pattern"], input.get("path") or workspace.cwd, workspace.files)
    return (Reads(folder),)


@tool(
    name="Glob",
    described_in=__file__,
    rules="read",
    counted="path",
    fails={"pattern": "*", "path": "nowhere"},
    paths="path",
    effects=_effects,
    read_only=True,
    aliases={"file_path": "path"},
)
async def glob(
    ctx: ToolContext,
    pattern: str,
    path: Annotated[str | None, "Folder to search"] = None,
    limit: Annotated[int, Param("Most files to list; 0 = all", ge=0)] = DEFAULT_LIMIT,
) -> Output:
    from wieldy.core.text import display_path, relative_path
    from wieldy.files.search.format import explain_unreadable
    from wieldy.files.search.glob import find_files
    from wieldy.files.search.patterns import hidden_test
    from wieldy.files.search.ripgrep import Ripgrep, SearchFailure

    started = time.perf_counter()
    workspace = ctx.workspace
    folder = path or ctx.cwd
    files = workspace.files
    try:
        if not stat.S_ISDIR((await files.run(files.stat, folder)).st_mode):
            raise ToolFailure(f"{folder} is a file, and Glob searches folders.", "Use Read for a file.")
        ripgrep = Ripgrep.for_tool("Glob", workspace, folder)
        result = await find_files(pattern, folder, ripgrep, limit, hidden_test(ctx.judge), ctx.resolved)
    except SearchFailure as failure:
        raise ToolFailure(str(failure)) from None
    except OSError as error:
        raise ToolFailure(*await in_thread(explain_unreadable, folder, error, ctx.cwd, files)) from None
    lines = [relative_path(file, ctx.cwd) for file in result.files]
    truncated = result.total > len(result.files)
    if not result.total:
        lines.append("No files found")
    elif truncated:
        lines.append(
            f"[{len(result.files)} newest of {result.total} files. Narrow the pattern or raise limit for more]"
        )
    lines += [f"[{notice}]" for notice in result.notices]
    data = {
        "filenames": [display_path(file) for file in result.files],
        "numFiles": result.total,
        "truncated": truncated,
        "durationMs": round((time.perf_counter() - started) * 1000),
    }
    return Output("\n".join(lines), data=data)
