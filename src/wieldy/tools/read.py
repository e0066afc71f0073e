"""Read: shows a file to the model, page by page."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

from msgspec.structs import replace

from wieldy.core.effects import InTurn, Reads
from wieldy.core.errors import ToolFailure
from wieldy.core.schema.fields import Param
from wieldy.core.threads import in_thread
from wieldy.core.tool import Output, ToolContext
from wieldy.core.tool_decorator import tool
from wieldy.files.reading import MAX_CHARS, MAX_LINES

if TYPE_CHECKING:
    from wieldy.files.reading.read_file import Reader


@tool(
    name="Read",
    described_in=__file__,
    rules="read",
    counted="line",
    fails={"file_path": "nowhere"},
    uses_folder=False,
    reads="file_path",
    effects=lambda input, workspace: (Reads(input["file_path"]), InTurn(input["file_path"])),
    aliases={"path": "file_path"},
    max_result_chars=MAX_CHARS + 1000,
    timeout=120.0,
)
async def read(
    ctx: ToolContext,
    file_path: str,
    offset: Annotated[int, Param("First line, from 1", ge=0)] = 1,
    limit: Annotated[int, Param("Number of lines", ge=1)] = MAX_LINES,
    pages: Annotated[str, 'Of a PDF, such as "1-5,8"'] = "",
    as_images: Annotated[bool, "PDF pages as pictures, not text"] = False,
    encoding: Annotated[str | None, "Of the text, where the guess is wrong"] = None,
) -> Output:
    from wieldy.files.reading import read_file

    workspace = ctx.workspace
    reader = read_file.Reader(
        first=max(offset, 1),
        limit=limit,
        pages=pages,
        as_images=as_images,
        encoding=encoding,
        state=workspace.services.read_state,
        recent=workspace.services.recent_reads if workspace.setting("read.unchangedStub") else None,
        files=workspace.files,
    )
    try:
        real = ctx.resolved(file_path)
        file = read_file.open_small_file(file_path, real) if workspace.files.is_local else None
        if file is None:
            return await _in_thread(reader, lambda reader: reader.read(file_path, real))
        return (
            reader.read_open(file)
            if read_file.is_plain_text(file)
            else await _in_thread(reader, lambda reader: reader.read_open(file))
        )
    except OSError as error:
        from wieldy.files.search.format import explain_unreadable

        raise ToolFailure(*await in_thread(explain_unreadable, file_path, error, "", workspace.files)) from None


async def _in_thread(reader: Reader, read: Callable[[Reader], Output]) -> Output:
    """Read in a thread, and stop reading when the call is cancelled."""
    stop = threading.Event()
    try:
        return await in_thread(read, replace(reader, stopped=stop.is_set))
    finally:
        stop.set()
