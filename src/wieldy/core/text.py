"""Text for models and people: cut it, make invisible characters visible, count, name sizes and durations, find near names.

`escape_controls` is for text of any kind: what could command a terminal or reorder text is spelled out, and blanks and
joiners that languages and emoji need stay. `escape_invisible` is for text that a person decides about: no character that
cannot be seen stays. `printable_path` is for names of files.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

# Cutting.

LINE_SLACK = 200  # how many characters may be given up to cut at a line break


def truncate(text: str, limit: int) -> str:
    """Return the text, its end replaced by an ellipsis where it is longer than `limit` characters."""
    return text if len(text) <= limit else text[: max(limit - 1, 0)] + "…"


def truncate_line(text: str, limit: int) -> str:
    """Return the text on one line, runs of whitespace collapsed, of at most `limit` characters."""
    return truncate(" ".join(text.split()), limit)


def truncate_middle(text: str, limit: int, head_share: float = 2 / 3) -> str:
    """Return head and tail of a text that is longer than `limit`, and how many characters are missing between them."""
    if len(text) <= limit:
        return text
    head_limit = int(limit * head_share)
    head, tail = keep_head(text, head_limit), keep_tail(text, limit - head_limit)
    omitted = len(text) - len(head) - len(tail)
    return f"{head.rstrip()}\n… {omitted:,} characters left out …\n{tail}"


def keep_head(text: str, limit: int) -> str:
    """Return the first `limit` characters, cut at a line break where one is near."""
    head = text[:limit]
    end = head.rfind("\n") + 1
    return head[:end] if end and end > limit - min(LINE_SLACK, limit // 2) else head


def keep_tail(text: str, limit: int) -> str:
    """Return the last `limit` characters, cut at a line break where one is near."""
    tail = text[len(text) - limit :]
    start = tail.find("\n") + 1
    return tail[start:] if 0 < start < min(LINE_SLACK, limit // 2) else tail


_REMINDER = re.compile(r"\s*<system-reminder>.*?</system-reminder>", re.DOTALL)


def without_reminders(text: str) -> str:
    """Return a text for a person, made from one for a model: without the reminders in it."""
    return _REMINDER.sub("", text)


# Escaping.

# Zero-width, direction-changing and invisible-operator characters, tags, odd blanks and control characters.
_INVISIBLE = re.compile(
    "[\u00a0\u00ad\u034f\u061c\u115f\u1160\u1680\u17b4\u17b5\u180e\u2000-\u200f\u2028-\u202f\u205f-\u206f\u3000\u3164"
    "\ud800-\udfff\ufeff\uffa0\U000e0000-\U000e0fff\x00-\x08\x0b-\x1f\x7f-\x9f]"
)
# C0 without tab and line feed, DEL, C1, direction marks and overrides, zero-width characters, line separators, annotations,
# tags and surrogates. The tags of a flag, and a joiner between characters beyond ASCII, are part of what is seen.
CONTROL = re.compile(
    "(?P<visible>\U0001f3f4[\U000e0020-\U000e007e]{1,8}\U000e007f"
    "|(?<=[^\x00-\xa0\u2000-\u206f])[\u200c\u200d](?=[^\x00-\xa0\u2000-\u206f]))"
    "|\r\n"
    "|[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e0fff]"
)
_CONTROL_IN_PATH = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_SURROGATE = re.compile("[\ud800-\udfff]")
MIN_PADDING = 80
_PADDING = re.compile(rf"(?<=\S)[ \t]{{{MIN_PADDING},}}(?=\S)")


def escape_controls(text: str) -> str:
    """Show control characters as `<U+001B>`. CRLF becomes a line feed; a lone carriage return is a control character."""
    return CONTROL.sub(_escape_control, text)


def _escape_control(match: re.Match[str]) -> str:
    text = match[0]
    if match.lastgroup == "visible":
        return text
    return "\n" if text == "\r\n" else f"<U+{ord(text):04X}>"


def escape_invisible(text: str) -> str:
    """Show invisible characters as `<U+200B>`, and count long runs of blanks."""
    escaped = _INVISIBLE.sub(lambda match: f"<U+{ord(match[0]):04X}>", text)
    return _PADDING.sub(lambda match: f" <{len(match[0])} blanks> ", escaped)


def escape_to_line(text: str) -> str:
    """Like `escape_invisible`, on one line."""
    return escape_invisible(text).replace("\n", "⏎")


def describe_invisible(text: str) -> str | None:
    """Describe the invisible part of a text; None where everything is visible."""
    if (character := _INVISIBLE.search(text)) is not None:
        return f"a character that cannot be seen (U+{ord(character[0]):04X})"
    if (padding := _PADDING.search(text)) is not None:
        return f"a run of {len(padding[0])} blanks"
    return None


def display_path(path: str) -> str:
    """A path as valid text; bytes that are not UTF-8 become replacement characters."""
    return path if path.isascii() else _SURROGATE.sub("\N{REPLACEMENT CHARACTER}", path)


def printable_path(path: str) -> str:
    r"""A path as valid text on one line, with control characters as bash and Python write them, such as `\n`."""
    return _CONTROL_IN_PATH.sub(lambda match: repr(match[0])[1:-1], display_path(path))


def relative_path(path: str, cwd: str) -> str:
    """A path as a model can use it again: relative when it is below the working directory, else absolute."""
    short = path.removeprefix(cwd.rstrip("/") + "/")
    return printable_path(f"./{short}" if short.startswith("~") else short)


# Numbers.


def plural(count: int, noun: str) -> str:
    """A count with its noun: `1 match`, `2 matches`, `3 entries`."""
    if count == 1:
        return f"1 {noun}"
    if noun.endswith("y") and noun[-2] not in "aeiou":
        return f"{count:,} {noun[:-1]}ies"
    return f"{count:,} {noun}{'es' if noun.endswith(('s', 'x', 'ch', 'sh')) else 's'}"


def format_size(count: int) -> str:
    """A number of bytes in a readable unit."""
    if count < 1000:
        return plural(count, "byte")
    amount = float(count)
    for unit in ("KB", "MB", "GB"):
        amount /= 1000
        if amount < 999.5:
            return f"{amount:.3g} {unit}"
    return f"{amount / 1000:.3g} TB"


def format_cost(dollars: float, unpriced: int = 0, *, digits: int = 2) -> str:
    """A sum in dollars, which is a lower bound where the prices of some models are unknown: `≥ $0.31 (2 models unpriced)`."""
    text = f"${dollars:,.{digits}f}"
    return f"≥ {text} ({plural(unpriced, 'model')} unpriced)" if unpriced else text


def format_duration(seconds: float) -> str:
    """A duration in a short form: `0.4 s`, `42 s`, `3 min 12 s`, `2 h 5 min`, `3 d 4 h`."""
    if seconds < 9.95:
        return f"{round(max(seconds, 0), 1):g} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    if whole < 86400:
        return f"{whole // 3600} h {whole % 3600 // 60} min"
    return f"{whole // 86400} d {whole % 86400 // 3600} h"


# Near names.

SIMILAR = 0.6
MISSPELLED = 0.75
MAX_NAME_CHARS = 100  # comparing takes time that grows with the square of the length


def nearest_names(name: str, names: Iterable[str], *, cutoff: float = SIMILAR, most: int = 3) -> list[str]:
    """Return the most similar names, best first; case and separators do not count.

    `cutoff` is `MISSPELLED` where the answer decides about something and is not only a suggestion.
    """
    from difflib import get_close_matches

    by_folded_name = {_fold(candidate): candidate for candidate in names}
    matches = get_close_matches(_fold(name[:MAX_NAME_CHARS]), by_folded_name, n=most, cutoff=cutoff)
    return [by_folded_name[match] for match in matches]


def nearest_name(name: str, names: Iterable[str], *, cutoff: float = SIMILAR) -> str | None:
    """Return the most similar name, or None. One of the same letters goes first: they were swapped."""
    near = nearest_names(name, names, cutoff=cutoff)
    return max(near, key=lambda other: sorted(other) == sorted(name), default=None)


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """The end of a sentence that suggests the most similar name; empty where there is none."""
    near = nearest_name(name, names)
    return f"; did you mean `{near}`?" if near else ""


def suggest_name(name: str, names: Iterable[str]) -> str:
    """Like `did_you_mean`; lists the names where none is similar."""
    known = list(names)
    listed = f"; there are {', '.join(f'`{each}`' for each in sorted(known))}" if known else "; there are none"
    return did_you_mean(name, known) or listed


def _fold(name: str) -> str:
    return name.lower().replace("-", "").replace("_", "").replace(" ", "")
