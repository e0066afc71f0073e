"""What the end of a search program means: a failure to explain, or a result that is not whole."""

from __future__ import annotations

from collections.abc import Iterator

from wieldy.search.command import Engine
from wieldy.search.failure import SearchFailure
from wieldy.search.filetypes import nearest_types
from wieldy.search.process import Ending
from wieldy.search.query import Query


def failed(ending: Ending) -> bool:
    """Whether a program could not do its work at all; a complaint about single files is no failure."""
    about_files = ending.complaint.startswith(("rg: ./", "rg: /"))
    return ending.code not in (None, 0, 1) and not about_files


def notices_of(ending: Ending, engine: Engine) -> Iterator[str]:
    """What is missing from a result, in sentences."""
    if ending.out_of_time:
        yield f"The search was stopped after {engine.seconds:g} s, so results are incomplete. Narrow path or glob."
    if ending.unreadable:
        files = "1 file or folder" if ending.unreadable == 1 else f"{ending.unreadable} files or folders"
        yield f"{files} could not be read."


def failure(complaint: str, query: Query) -> SearchFailure:
    """Why a search could not be done, and what to do about it."""
    if "unrecognized file type" in complaint:
        near = ", ".join(nearest_types(query.file_type or ""))
        advice = f" Did you mean: {near}?" if near else ""
        return SearchFailure(
            f"There is no file type {query.file_type!r}.{advice} A `glob` such as '*.ext' works for any file."
        )
    reason = complaint.partition("Consider enabling")[0].removeprefix("rg: ").strip()
    if "is not allowed in a regex" in reason:
        return SearchFailure(f"{reason[0].upper()}{reason[1:]}. Set multiline to true to match across lines.")
    if "regex parse error" not in reason and "ompiled regex" not in reason:
        return SearchFailure(f"The search failed: {reason or 'the search program gave no reason'}")
    # What comes before the error shows the pattern as the program wraps it, which nobody wrote.
    reason = reason.rpartition("error: ")[2]
    return SearchFailure(f"The pattern is not a valid regular expression: {reason}.{_advice(reason)}")


def _advice(reason: str) -> str:
    if "repetition" in reason:
        return " To search for a literal { } * + or ?, write a backslash before it."
    if "group" in reason:
        return " To search for a literal parenthesis, write a backslash before it."
    if "class" in reason:
        return " To search for a literal [ or ], write a backslash before it."
    if "look-around" in reason or "backreference" in reason:
        return " Search for a simpler pattern and judge the lines found."
    return ""
