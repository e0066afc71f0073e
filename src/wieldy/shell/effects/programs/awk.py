"""`awk`: a small grammar of programs that every awk reads in the same way and that only print; the rest is unknown.

What matters is where strings and regexes end, because a quote or slash read differently hides what follows it. A slash is
accepted only where it must begin a regex or must divide. Functions of the program's own and `switch` are not accepted.
"""

from __future__ import annotations

import re

from wieldy.shell.effects.programs.spec import CallEffects, ProgramCall, option_table, parse_args, unknown, word_set

_OPTIONS = "-F: -v: --field-separator= --assign= --posix --traditional --re-interval --version"
# A comment that ends with a backslash is not accepted: some versions continue it on the next line.
_TOKEN = re.compile(
    r"""(?P<blank>[ \t]+|\\\n|\#[^\n]*(?<!\\)(?=\n|\Z))
      | (?P<string>"(?:[^"\\\n]|\\[^\n])*")
      | (?P<number>\d+\.?\d*(?:[eE][+-]?\d+)?(?!\w)|\.\d+(?!\w))
      | (?P<name>[A-Za-z_][A-Za-z0-9_]*)
      | (?P<operator>\+\+|--|\|\||&&|!~|[-+*%^=!<>]=|[-+*%^=!<>?:~,;{}()\[\]$\n/])""",
    re.VERBOSE,
)
# A bracket holds no slash, backslash or bracket, except escapes of letters and whole classes such as [:alpha:].
_REGEX = re.compile(r"/(?:[^/\\\n\[]|\\[^\n]|\[\^?(?:\[:[a-z]+:\]|\\[a-z]|[^\]\[/\\\n])+\])*/")
_FUNCTIONS = word_set(
    "length substr index split sub gsub match sprintf sin cos atan2 exp log sqrt int rand srand tolower toupper "
    "strftime systime mktime gensub asort asorti strtonum and or xor lshift rshift compl"
)
_KEYWORDS = word_set("BEGIN END if else while for do in next exit break continue print printf delete nextfile")
_FORBIDDEN = word_set(
    "system getline close fflush function func switch case default return extension ARGV ARGC ARGIND PROCINFO SYMTAB FUNCTAB "
    "BEGINFILE ENDFILE eval load include namespace"
)
_BEFORE_REGEX = frozenset(["\n", ";", "{", "}", "(", ",", "!", "~", "!~", "&&", "||"])


def check_awk(call: ProgramCall) -> CallEffects:
    parsed = parse_args(call.args, option_table(_OPTIONS, stops_at_operand=True))
    if not parsed.operands or parsed.operands[0].kind != "literal":
        return unknown("the awk program is not written out")
    if problem := _program_problem(parsed.operands[0].text):
        return unknown(problem)
    files = [
        word for word in parsed.operands[1:] if not (word.kind == "literal" and re.match(r"[A-Za-z_]\w*=", word.text))
    ]
    if any(word.prefix.startswith("/inet") for word in files):
        return unknown("gawk opens connections under /inet")
    return CallEffects(reads=tuple(files))


def _program_problem(program: str) -> str:
    """Why a program is not accepted; nothing if it is."""
    printing = False
    last = "\n"
    at = 0
    while at < len(program):
        match = _TOKEN.match(program, at) if program[at] != "/" else _slash(program, at, last)
        if match is None:
            return f"the awk program is not understood at `{program[at : at + 12]}`"
        at = match.end()
        token = {"string": '""', "number": "0"}.get(match.lastgroup or "", match.group())
        if match.lastgroup == "blank":
            continue
        if token in _FORBIDDEN:
            return f"`{token}` in the awk program can run programs or open other files"
        if token in ("print", "printf"):
            printing = True
        elif token in (";", "}"):
            # Not at a line break: after a comma the statement continues.
            printing = False
        elif printing and token in (">", ">="):
            return "the awk program prints to a file"
        elif token == "(" and last.isidentifier() and last not in _KEYWORDS | _FUNCTIONS:
            return f"the awk function `{last}` is not known"
        last = token if match.re is _TOKEN else "//"
    return ""


def _slash(program: str, at: int, last: str) -> re.Match[str] | None:
    """The regex or the division that a slash begins, if the token before it leaves no doubt which."""
    if last in _BEFORE_REGEX:
        return _REGEX.match(program, at)
    divides = last in ("0", "]") or (last.isidentifier() and last not in _KEYWORDS | _FUNCTIONS)
    return _TOKEN.match(program, at) if divides and program[at + 1 : at + 2] != "=" else None
