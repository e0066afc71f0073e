"""Read: a file as a model can take it in, page by page."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import cache
from types import ModuleType
from typing import TYPE_CHECKING, Annotated

from msgspec.structs import replace

from wieldy.core.errors import ToolFailure
from wieldy.core.threads import in_thread
from wieldy.core.tool import Output, ToolContext
from wieldy.core.tool_decorator import load_description, tool
from wieldy.files.reading.pages import CHARS, LIMIT
from wieldy.schema.fields import Param

if TYPE_CHECKING:
    from wieldy.files.editing.read_state import ReadState
    from wieldy.files.reading.read_file import Reader, RecentReads

DESCRIPTION, PROMPT = load_description(__file__)


@tool(
    name="Read",
    description=DESCRIPTION,
    prompt=PROMPT,
    reads="file_path",
    aliases={"path": "file_path"},
    max_result_chars=CHARS + 1000,
    timeout=120.0,
)
async def read(
    ctx: ToolContext,
    file_path: str,
    offset: Annotated[int, Param("First line, from 1", ge=0)] = 1,
    limit: Annotated[int, Param("Number of lines", ge=1)] = LIMIT,
    pages: Annotated[str, 'Of a PDF, such as "1-5,8"'] = "",
    as_images: Annotated[bool, "PDF pages as pictures, not text"] = False,
) -> Output:
    """Show one file."""
    workspace = ctx.workspace
    show, ReadState, RecentReads = _craft()
    reader = show.Reader(
        first=max(offset, 1),
        limit=limit,
        pages=pages,
        as_images=as_images,
        seen=workspace.service(ReadState),
        repeats=workspace.service(RecentReads) if workspace.setting("read.unchanged_stub", True) else None,
    )
    try:
        real = ctx.resolved(file_path)
        file = show.small(file_path, real)
        if file is None:
            return await _in_thread(reader, lambda reader: reader.read(file_path, real))
        return reader.show(file) if show.is_plain(file) else await _in_thread(reader, lambda reader: reader.show(file))
    except OSError as error:
        from wieldy.files.reading.opening import why_unreadable

        raise ToolFailure(await in_thread(why_unreadable, file_path, error)) from None


async def _in_thread(reader: Reader, read: Callable[[Reader], Output]) -> Output:
    """Read where it may take its time; a read that nobody waits for any more ends soon."""
    enough = threading.Event()
    try:
        return await in_thread(read, replace(reader, stopped=enough.is_set))
    finally:
        enough.set()


@cache
def _craft() -> tuple[ModuleType, type[ReadState], type[RecentReads]]:
    """What a read takes, loaded with the first: to look for modules takes as long as to look at a small file."""
    from wieldy.files.editing.read_state import ReadState
    from wieldy.files.reading import read_file as show
    from wieldy.files.reading.read_file import RecentReads

    return show, ReadState, RecentReads
