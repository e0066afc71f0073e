"""FileSearch: a regular expression searched, and replaced, over many files at once."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any

from wieldy.core.call import PlannedCall, ToolCall
from wieldy.core.effects import Effects, Reads, Writes
from wieldy.core.errors import ToolFailure
from wieldy.core.events import ToolProgress
from wieldy.core.filesystem import FileSystem
from wieldy.core.schema.fields import Param
from wieldy.core.schema.strict_json import from_json
from wieldy.core.text import plural
from wieldy.core.threads import in_thread
from wieldy.core.tool import Output, ToolContext
from wieldy.core.tool_decorator import tool
from wieldy.core.workspace import Workspace

if TYPE_CHECKING:
    from wieldy.files.editing.search_replace import FileSearchRequest, FileSearchResult
    from wieldy.files.search.patterns import HiddenTest

SHOWN_LINES = 300
MAX_FILES = 100
MAX_REMOTE_FILES = 10_000


def _applies(input: Mapping[str, Any]) -> bool:
    return input.get("preview_only") is False and input.get("replace_with") is not None


def _effects(input: Mapping[str, Any], workspace: Workspace) -> Effects:
    root = input.get("path") or workspace.cwd
    return (Reads(root), Writes(root)) if _applies(input) else (Reads(root),)


def _enabled(workspace: Workspace) -> bool | str:
    """Whether our own Python can run where the files are."""
    files = workspace.files
    return files.has_host_programs or f"it cannot run on {files.place}; find with Grep, change with Edit"


@tool(
    name="FileSearch",
    described_in=__file__,
    level="confirm",
    fails={"pattern": "("},
    paths="path",
    effects=_effects,
    needs_permission=_applies,
    enabled=_enabled,
    aliases={"file_path": "path", "glob": "file_glob"},
    replay="journal",
)
async def file_search(  # noqa: PLR0913 - the options of a search are many
    ctx: ToolContext,
    *,
    pattern: Annotated[str, "Python regular expression"],
    replace_with: Annotated[str | None, r"Text; \1 and \g<name> are groups, \\ a backslash"] = None,
    path: Annotated[str | None, "File or folder"] = None,
    file_glob: Annotated[str | None, "Such as *.{ts,tsx}"] = None,
    exclude: Annotated[str | None, "Globs to leave out"] = None,
    preview_only: Annotated[bool, "false applies"] = True,
    multiline: Annotated[bool, "Match across lines"] = False,
    max_files: Annotated[int, Param(ge=1)] = MAX_FILES,
) -> Output:
    """Search, preview or apply."""
    from wieldy.files.editing.revision import EditSettings
    from wieldy.files.editing.search_replace import FileSearchRequest
    from wieldy.files.search.patterns import split_globs

    workspace = ctx.workspace
    apply = replace_with is not None and not preview_only
    request = FileSearchRequest(
        root=path or ctx.cwd,
        pattern=pattern,
        replace=replace_with,
        multiline=multiline,
        globs=tuple(split_globs(file_glob or "")),
        excluded=tuple(split_globs(exclude or "")),
        max_bytes=EditSettings.of(workspace).max_bytes,
        with_splices=apply,
    )
    files, more = await _swept(ctx, request, max_files)
    if apply and more:
        raise ToolFailure(
            f"More than {max_files} files match, and all or none are changed: nothing was.",
            "Raise max_files, or narrow the search with path, file_glob or exclude.",
        )
    notes = await _apply(ctx, request, files) if apply and files else ()
    return _report(files, more, request, ctx.cwd, notes)


async def _swept(ctx: ToolContext, request: FileSearchRequest, max_files: int) -> tuple[list[FileSearchResult], bool]:
    """The files with matches, and whether there are more than wanted."""
    from wieldy.files.search.patterns import hidden_test
    from wieldy.files.search.ripgrep import run_process

    is_local = ctx.workspace.files.is_local
    await in_thread(_refuse, request, ctx)
    hidden = hidden_test(ctx.judge)
    # On a backend, where a file leads is looked up afterwards, in a thread.
    gathered = _Gathered(ctx, hidden, max_files) if is_local else _Gathered(ctx, None, MAX_REMOTE_FILES)
    result = await run_process(
        request.command,
        cwd="/",
        env=ctx.workspace.env,
        seconds=ctx.workspace.setting("search.seconds"),
        consume=gathered.consume,
        backend=ctx.workspace.files.backend,
    )
    if gathered.error:
        raise ToolFailure(gathered.error)
    if result.timed_out:
        raise ToolFailure(
            "The search took too long and was stopped; nothing was changed.",
            "Narrow path or file_glob, or simplify the pattern: nested repetitions such as (a+)+ can take for ever.",
        )
    if result.exit_code not in (0, None):
        raise ToolFailure(f"The search failed: {result.stderr[-500:]}")
    files = gathered.files
    if not is_local and hidden is not None:
        files = await in_thread(lambda: [file for file in files if not hidden(file.path)])
    return files[:max_files], len(files) > max_files


class _Gathered:
    """Collects what the search prints, line by line."""

    def __init__(self, ctx: ToolContext, omit: HiddenTest | None, most: int) -> None:
        self.files: list[FileSearchResult] = []
        self.error = ""
        self._ctx, self._omit, self._most = ctx, omit, most
        self._rest = b""

    def consume(self, piece: bytes) -> bool:
        *lines, self._rest = (self._rest + piece).split(b"\n")
        for line in lines:
            self._take(line)
        return bool(self.error) or len(self.files) > self._most

    def _take(self, line: bytes) -> None:
        from wieldy.files.editing.search_replace import FileSearchResult

        if line.startswith(b"["):
            hits = from_json(line, FileSearchResult)
            if self._omit is None or not self._omit(hits.path):
                self.files.append(hits)
            return
        message = json.loads(line)
        if "error" in message:
            self.error = message["error"]
        else:
            text = f"{message['seen']} files searched, {len(self.files)} with matches"
            self._ctx.emit(ToolProgress(call_id=self._ctx.call_id, name="FileSearch", text=text, data=message))


def _refuse(request: FileSearchRequest, ctx: ToolContext) -> None:
    """Refuse a pattern, a template, a glob or a path that cannot be read, and a path that no longer leads where it did."""
    import re

    from wieldy.core.realpath import PathChanged
    from wieldy.files.search.format import explain_unreadable
    from wieldy.files.search.patterns import BadGlob, compile_globs

    request.compile_pattern()
    try:
        compile_globs((*request.globs, *request.excluded))
    except (BadGlob, re.error) as error:
        raise ToolFailure(f"The glob cannot be read: {error}.") from None
    workspace = ctx.workspace
    try:
        workspace.files.stat(request.root)
        if workspace.files.realpath(request.root) != ctx.resolved(request.root):
            raise PathChanged(request.root)
    except OSError as error:
        raise ToolFailure(*explain_unreadable(request.root, error, workspace.cwd, workspace.files)) from None


async def _apply(ctx: ToolContext, request: FileSearchRequest, files: list[FileSearchResult]) -> tuple[str, ...]:
    """Write all files or none; returns notes."""
    from wieldy.core.errors import StaleFileError
    from wieldy.files.apply_edit import apply_edits
    from wieldy.files.writing.disk import WriteError

    await in_thread(_require_permission, ctx, request.root, files)
    try:
        changed, notes = await in_thread(_without_hard_links, files, ctx.resolved(request.root), ctx.workspace.files)
        return (*notes, *await apply_edits(ctx, {file.path: file for file in changed}, tool="FileSearch"))
    except StaleFileError as error:
        raise ToolFailure(f"{error.path} {error.reason}. No file was changed.", "Send the same again.") from error
    except WriteError as error:
        raise ToolFailure(f"{error.message} No file was changed.") from error


def _without_hard_links(
    files: list[FileSearchResult], root: str, system: FileSystem
) -> tuple[list[FileSearchResult], list[str]]:
    """The files to write, each with one name, and a note on each other name. All must lie where writing was permitted."""
    from wieldy.core.errors import StaleFileError

    inodes: dict[tuple[int, int], str] = {}
    changed: list[FileSearchResult] = []
    notes: list[str] = []
    for file in files:
        real_path = system.realpath(file.path)
        if real_path != root and not real_path.startswith(root.rstrip(os.sep) + os.sep):
            raise StaleFileError(file.path, f"leads out of {root} now")
        try:
            stat = system.stat(real_path)
        except OSError:
            raise StaleFileError(file.path, "was changed by someone else meanwhile") from None
        first = inodes.setdefault((stat.st_dev, stat.st_ino), file.path)
        if first == file.path:
            changed.append(file)
        else:
            notes.append(f"{file.path} is another name of {first} (hard link) and changed with it")
    return changed, notes


def _require_permission(ctx: ToolContext, root: str, files: list[FileSearchResult]) -> None:
    """Refuse files that are better guarded than the folder the call was allowed for."""

    def reasons(path: str) -> set[tuple[str, str]]:
        call = ToolCall(ctx.call_id, "FileSearch", {"path": path})
        plan = PlannedCall(call, file_search, {"path": path}, {}, (Writes(path),))
        return {(r.kind, r.behavior) for r in ctx.judge.decide(plan, ()).reasons if r.behavior != "allow"}

    allowed = reasons(root)
    guarded = [file.path for file in files if reasons(file.path) - allowed]
    if guarded:
        listed = ", ".join(guarded[:5]) + (" …" if len(guarded) > 5 else "")
        raise ToolFailure(
            f"No file was changed, because writing some is not permitted: {listed}.", "Leave them out with exclude."
        )


def _report(
    files: list[FileSearchResult], more: bool, request: FileSearchRequest, cwd: str, notes: tuple[str, ...]
) -> Output:
    from wieldy.core.text import display_path, relative_path

    count = sum(file.count for file in files)
    shown = [line for file in files for line in _lines(relative_path(file.path, cwd), file)]
    if len(shown) > SHOWN_LINES:
        shown = [*shown[:SHOWN_LINES], f"… {plural(len(shown) - SHOWN_LINES, 'more line')}"]
    data = {
        "files": [{"filePath": display_path(f.path), "matches": f.count} for f in files],
        "numFiles": len(files),
        "numMatches": count,
        "applied": request.with_splices and bool(files),
        "truncated": more,
    }
    return Output("\n".join((*shown, *notes, _summary(len(files), count, more, request))), data)


def _lines(name: str, file: FileSearchResult) -> Iterator[str]:
    for hit in file.hits:
        if hit.after is None:
            yield from (f"{name}:{hit.line + n}: {line}" for n, line in enumerate(hit.before.split("\n")))
            continue
        yield f"{name}:{hit.line}"
        yield from (f"- {line}" for line in hit.before.split("\n"))
        yield from (f"+ {line}" for line in hit.after.split("\n"))


def _summary(files: int, matches: int, more: bool, request: FileSearchRequest) -> str:
    if not files:
        return "No matches found"
    things = f"{plural(matches, 'match')} in {plural(files, 'file')}"
    if request.with_splices:
        return f"[Replaced {things}; one undo takes all of it back]"
    cut = f"; more than {files} files match, raise max_files to see them" if more else ""
    preview = "; nothing was written, send preview_only=false to apply" if request.replace is not None else ""
    return f"[{things}{cut}{preview}]"
