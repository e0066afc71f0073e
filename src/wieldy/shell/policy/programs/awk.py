"""`awk`: tokenize its program and refuse pipes, redirections, `system`, `getline` and unknown functions."""

from __future__ import annotations

import re
from itertools import pairwise

from wieldy.shell.policy.programs.spec import CallEffects, ProgramCall, option_table, parse_args, unknown, word_set

_OPTIONS = "-F: -v: --field-separator= --assign= --posix --traditional --re-interval --version"
_TOKEN = re.compile(
    r"""(?P<blank>[ \t\r]+|\\\n|\#[^\n]*)
      | (?P<string>"(?:[^"\\\n]|\\.)*")
      | (?P<number>\d+\.?\d*(?:[eE][+-]?\d+)?|\.\d+)
      | (?P<name>[A-Za-z_]\w*)
      | (?P<step>\+\+|--)
      | (?P<operator>\|\||&&|[-+*/%^=!<>]=|[-+*%^=!<>?:~,;{}()\[\]$\n/|&@])""",
    re.VERBOSE | re.DOTALL,
)
_REGEX = re.compile(r"/(?:[^/\\\n\[]|\\.|\[\^?\]?(?:[^\]\\\n]|\\.)*\])*/")
_FUNCTIONS = word_set(
    "length substr index split sub gsub match sprintf sin cos atan2 exp log sqrt int rand srand tolower toupper "
    "strftime systime mktime gensub asort asorti strtonum and or xor lshift rshift compl isarray typeof patsplit "
    "fflush"
)
_KEYWORDS = word_set(
    "BEGIN END if else while for do in next exit return break continue print printf delete function func switch "
    "case default nextfile"
)
_BEFORE_REGEX = word_set("print printf return exit in case else do")
_FORBIDDEN = word_set("system getline close ARGV ARGC PROCINFO SYMTAB FUNCTAB extension BEGINFILE ENDFILE")


def check_awk(call: ProgramCall) -> CallEffects:
    parsed = parse_args(call.args, option_table(_OPTIONS, stops_at_operand=True))
    if not parsed.operands or not parsed.operands[0].static:
        return unknown("the awk program is not written out")
    if problem := _program_problem(parsed.operands[0].text):
        return unknown(problem)
    files = [word for word in parsed.operands[1:] if not (word.static and re.match(r"[A-Za-z_]\w*=", word.text))]
    return CallEffects(reads=tuple(files))


def _program_problem(program: str) -> str:
    tokens = _tokens(program)
    if tokens is None:
        return "the awk program is not understood"
    defined = {name for before, name in pairwise(tokens) if before in ("function", "func")}
    printing = False
    for index, token in enumerate(tokens):
        following = tokens[index + 1] if index + 1 < len(tokens) else ""
        if token in ("|", "&", "@"):
            return f"`{token}` in the awk program can run a program"
        if token in _FORBIDDEN:
            return f"`{token}` in the awk program can run programs or open other files"
        if token in ("print", "printf"):
            printing = True
        elif token in (";", "}"):
            # Not at a line break: after a comma the statement goes on.
            printing = False
        elif printing and token in (">", ">="):
            return "the awk program prints to a file"
        if following == "(" and token.isidentifier() and token not in _KEYWORDS and token not in _FUNCTIONS | defined:
            return f"the awk function `{token}` is not known"
    return ""


def _tokens(program: str) -> list[str] | None:
    """The tokens without blanks, strings as `""` and regexes as `//`; None where a slash is ambiguous."""
    tokens: list[str] = []
    at = 0
    while at < len(program):
        if program[at] == "/" and tokens[-1:] == [")"] and '"' in program:
            # A regex here could hold a quote, and the quote hide what follows.
            return None
        if program[at] == "/" and _regex_may_start(tokens):
            match = _REGEX.match(program, at)
            if match is None or (tokens and tokens[-1] in ("++", "--")):
                return None
            tokens.append("//")
        else:
            match = _TOKEN.match(program, at)
            if match is None:
                return None
            if match.lastgroup == "string":
                tokens.append('""')
            elif match.lastgroup != "blank":
                tokens.append(match.group())
        at = match.end()
    return tokens


def _regex_may_start(tokens: list[str]) -> bool:
    if not tokens:
        return True
    last = tokens[-1]
    if last in _BEFORE_REGEX:
        return True
    return not (last in (")", "]", '""', "//") or last[0].isalnum() or last[0] in "_.")
