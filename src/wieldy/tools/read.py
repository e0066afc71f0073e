"""Read: a file as a model can take it in, page by page."""

from __future__ import annotations

import threading
from typing import Annotated

from wieldy.core.declare import tool, words
from wieldy.core.failure import ToolFailure
from wieldy.core.threads import in_thread
from wieldy.core.tool import Output, ToolContext
from wieldy.reading.extent import CHARS, LIMIT
from wieldy.schema.annotate import Param

DESCRIPTION, PROMPT = words(__file__)


@tool(
    name="Read",
    description=DESCRIPTION,
    prompt=PROMPT,
    reads="file_path",
    aliases={"path": "file_path"},
    max_result_chars=CHARS + 1000,
    timeout=120.0,
)
async def TOOL(
    ctx: ToolContext,
    file_path: str,
    offset: Annotated[int, Param("First line, from 1", ge=0)] = 1,
    limit: Annotated[int, Param("Number of lines", ge=1)] = LIMIT,
    pages: Annotated[str, 'Of a PDF, such as "1-5,8"'] = "",
    as_images: Annotated[bool, "PDF pages as pictures, not text"] = False,
) -> Output:
    """Show one file."""
    from wieldy.edit.readstate import ReadState
    from wieldy.reading.opened import Opened
    from wieldy.reading.repeats import Repeats
    from wieldy.reading.show import Reader, is_plain, is_small

    enough = threading.Event()
    workspace = ctx.workspace
    reader = Reader(
        first=max(offset, 1),
        limit=limit,
        pages=pages,
        as_images=as_images,
        seen=workspace.resident(ReadState),
        repeats=workspace.resident(Repeats) if workspace.setting("read.unchanged_stub", True) else None,
        stopped=enough.is_set,
    )
    try:
        real = ctx.led_to(file_path)
        if not is_small(real):
            return await in_thread(reader.read, file_path, real)
        file = Opened(file_path, real)
        return reader.show(file) if is_plain(file) else await in_thread(reader.show, file)
    except OSError as error:
        from wieldy.reading.unreadable import why_unreadable

        raise ToolFailure(await in_thread(why_unreadable, file_path, error)) from None
    finally:
        enough.set()
