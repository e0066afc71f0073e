"""Interpreters: which program or script a command runs, which files it names, and which files its code opens.

What is known only when the command runs could be what rules forbid, so it is said here. Of code on the command line, a small
part of Python, plain substitutions of Perl and plain queries are understood; all other code may open any file.
"""

from __future__ import annotations

import ast
import builtins
import itertools
import math
import os
import re
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from typing import TYPE_CHECKING

from msgspec import Struct

from wieldy.shell.effects.programs.profiles import argument_words, profile_of
from wieldy.shell.effects.programs.spec import word_set

if TYPE_CHECKING:
    from wieldy.shell.effects.command_part import CommandPart
    from wieldy.shell.effects.words import Word

SHELL = re.compile(r"(ba|da|z|k|fi|a|c|tc|rba)?sh|eval|source|\.")
# These run their input as commands whatever their arguments are.
READS_COMMANDS = re.compile(r"ssh|su|at|batch|parallel|crontab")
INTERPRETER = re.compile(
    r"(python|pypy|perl|ruby|php|lua|node|tclsh)[\d.]*|nodejs|luajit|deno|bun|expect|Rscript|osascript|pwsh|powershell"
    r"|julia|elixir|erl|guile|racket|sbcl|groovy|emacs|n?vim|view|vi|ex|ed|gdb|lldb|sqlite3|psql|mysql|g?make|bc|dc"
)
ARGUMENTS_ARE_CODE = re.compile(r"[gmn]?awk|g?sed|alias|trap|complete|compgen|bind|mapfile|readarray|fc")
# Of these, the code is for a shell; awk and sed have languages of their own, which the analysis understands or not.
_SHELL_CODE = re.compile(r"alias|trap|complete|compgen|bind|mapfile|readarray|fc")
_SCRIPT_LANGUAGE = re.compile(r"[gmn]?awk|g?sed")
# What a shell expands, so that the text does not say which program runs.
SHELL_SPECIAL = re.compile(r"[$`*?\[{]")
CODE_OPTION = re.compile(r"-[A-Za-z]*[ceErpx]|--(eval|print|command|execute|run|batch)\b.*|-[ce].*|\+.*", re.DOTALL)
# These read commands of their own from the input, whatever their arguments are.
READS_OWN_COMMANDS = frozenset(
    {"ed", "ex", "vi", "vim", "nvim", "view", "gdb", "lldb", "sqlite3", "psql", "mysql", "bc", "dc"}
)
READS_INPUT = frozenset({"-", "-s", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"})
# The word after these is their value, of some interpreters at least, and no script.
_VALUE_OPTIONS = frozenset(
    {"-o", "+o", "-O", "+O", "--rcfile", "--init-file", "-W", "-X", "-I", "--require", "--import", "--loader"}
)
# Code that can start programs. What it computes is not followed, so it could start any.
STARTS_PROGRAMS = re.compile(
    r"system|popen|subprocess|spawn|exec|fork|eval|compile|child_process|importlib|__\w+__|getattr|globals|vars\(|ctypes|cffi|pty"
    r"|pexpect|plumbum|import sh\b|from sh\b|fabric|pickle|marshal|runpy|multiprocessing|modules|builtins|syscall|dlopen|posix\b"
    r"|`|qx\b|%x|getline|shell|Open3|Process|^\s*:?!|\|\s*\"",
    re.IGNORECASE | re.MULTILINE,
)
_PLAIN_WORD = re.compile(r"[\w./~-]*")


def unknown_code(part: CommandPart) -> str | None:
    """Say which program or script of a part is known only when it runs; None where all it runs is named."""
    from wieldy.shell.effects.programs.wrappers import WRAPPERS
    from wieldy.shell.effects.words import PROCESS_SUBSTITUTION_PATH

    if any("$" in value or "`" in value for value in part.code.variables):
        return "the value of a variable that programs obey"
    if part.code.code_variable:
        return f"what runs with this `{part.code.code_variable}`"
    if part.program is None:
        return "which program runs" if part.argv else None
    name = os.path.basename(part.program)
    if name in WRAPPERS and not SHELL.fullmatch(name):
        return f"what `{name}` runs"
    if name in ("alias", "hash", "enable") and any(re.match("-|.*=", word.text) for word in part.argv[1:]):
        return f"what runs by the names that `{name}` gives"
    if name == "git" and any(word.prefix.startswith(("--config-env", "--exec-path=")) for word in part.argv):
        return "the value of a git setting"
    if _SCRIPT_LANGUAGE.fullmatch(name):
        return f"what the script of `{name}` runs"
    if (
        SHELL.fullmatch(name)
        and (word := next((word for word in part.argv[1:] if word.kind != "literal"), None)) is not None
    ):
        return _name_of(word)
    if _SHELL_CODE.fullmatch(name) or READS_COMMANDS.fullmatch(name):
        text = next((word.text for word in part.argv[1:] if SHELL_SPECIAL.search(word.text)), None)
        if text is not None:
            return f"what `{text}` becomes"
    if not profile_of(name).subcommands or INTERPRETER.fullmatch(name):
        word = next((word for word in argument_words(part) if word.dynamic and not word.scope), None)
        if word is not None:
            return _name_of(word)
    for position, interpreter in interpreters(part):
        texts = [word.text for word in part.argv[position + 1 :]]
        if PROCESS_SUBSTITUTION_PATH in texts or (
            reads_input(interpreter, texts) and _has_unknown_input(part, is_shell=bool(SHELL.fullmatch(interpreter)))
        ):
            return f"the script of `{interpreter}`"
    return None


def imports_modules(part: CommandPart) -> bool:
    """Whether a part is `python3 -m`, which looks for modules in the current folder first."""
    return part.program in ("python", "python3") and part.known and [word.text for word in part.argv[1:2]] == ["-m"]


def interpreters(part: CommandPart) -> Iterator[tuple[int, str]]:
    """Yield the words of a part that name a shell or another interpreter: the program, or what an unknown one may start."""
    is_single = profile_of(part.program).subcommands
    for position, word in enumerate(part.argv[:1] if is_single else part.argv):
        name = os.path.basename(word.text) if word.kind == "literal" else ""
        if SHELL.fullmatch(name) or INTERPRETER.fullmatch(name) or (not position and READS_COMMANDS.fullmatch(name)):
            yield position, name


def reads_input(interpreter: str, texts: Sequence[str]) -> bool:
    """Whether an interpreter with these arguments takes its code, or commands beside it, from its input."""
    if not READS_INPUT.isdisjoint(texts) or READS_COMMANDS.fullmatch(interpreter):
        return True
    if interpreter in READS_OWN_COMMANDS:
        return True
    return interpreter not in ("source", ".", "make", "gmake") and not names_script(texts)


def names_script(texts: Sequence[str]) -> bool:
    """Whether there may be a script among the arguments of an interpreter, so that it does not run its input."""
    return READS_INPUT.isdisjoint(texts) and any(
        not text.startswith(("-", "+")) and not (position and texts[position - 1] in _VALUE_OPTIONS)
        for position, text in enumerate(texts)
    )


def _has_unknown_input(part: CommandPart, *, is_shell: bool) -> bool:
    if part.code.piped or part.redirects.problem:
        return True
    return any(SHELL_SPECIAL.search(text) if is_shell else "$" in text for text in part.code.texts)


def unknown_file(part: CommandPart) -> str | None:
    """Say which file of a part is known only when it runs; None where all its words are known."""
    if part.redirects.problem:
        return part.redirects.problem
    words = list(argument_words(part))
    word = next((word for word in words if word.dynamic and not word.scope), None)
    if word is not None:
        return _name_of(word)
    if not part.cwds and not profile_of(part.program).subcommands:
        relative = next((word for word in words if not word.prefix.startswith(("/", "-"))), None)
        return f"the folder of `{relative.source}`" if relative is not None else None
    return None


def _name_of(word: Word) -> str:
    return word.shown if word.source else "what its input names"


def argument_texts(part: CommandPart, *, plain: bool = False) -> list[str]:
    """List the texts of a part in which a file may be named: arguments, input and variables; plain words if wanted."""
    words = [word.text if word.kind == "literal" else word.source for word in argument_words(part)]
    # A plain word is judged as a path.
    words = [word for word in words if plain or not _PLAIN_WORD.fullmatch(word)]
    return [*words, *part.code.texts, *part.code.variables]


# Code on the command line, and the files that it opens

MAX_CODE_CHARS = 20_000
# Modules whose tools read all of a folder.
_PACKING_MODULES = frozenset({"http.server", "zipfile", "tarfile", "zipapp"})
_CODE_MODULES = frozenset({"timeit", "pdb", "trace", "cProfile", "profile", "runpy", "code"})
_HARMLESS_BUILTINS = word_set(
    "abs all any ascii bin bool bytearray bytes callable chr dict divmod enumerate exit filter float format frozenset hash hex "
    "input int isinstance issubclass iter len list map max min next oct ord pow print quit range repr reversed round set slice "
    "sorted str sum tuple zip Exception ValueError KeyError IndexError TypeError StopIteration AssertionError"
)
_HARMLESS_MODULES = word_set(
    "base64 binascii cmath collections csv datetime decimal fractions functools hashlib html itertools json math "
    "pprint random re statistics string struct sys textwrap time unicodedata urllib.parse uuid"
)
# Of these modules and what they return, no attribute of these names opens a file or leads to another module that could.
_HARMLESS_ATTRIBUTES = word_set(
    "parse load loads dump dumps JSONDecodeError stdin stdout stderr argv version version_info executable platform "
    "maxsize byteorder compile sub subn findall search match split finditer fullmatch escape IGNORECASE I M S X "
    "MULTILINE DOTALL VERBOSE datetime date timedelta timezone time UTC strftime ctime sleep monotonic perf_counter "
    "gmtime localtime Counter defaultdict OrderedDict namedtuple deque reduce partial b64encode b64decode b32encode "
    "b32decode b16encode b16decode urlsafe_b64encode urlsafe_b64decode md5 sha1 sha224 sha256 sha384 sha512 blake2b "
    "blake2s digest hexdigest mean median mode stdev pstdev variance dedent wrap indent fill shorten pprint pformat "
    "ascii_letters ascii_lowercase ascii_uppercase digits hexdigits punctuation whitespace random randint choice "
    "choices shuffle sample seed uniform uuid4 UUID hex quote unquote quote_plus unquote_plus urlparse urlsplit "
    "parse_qs parse_qsl urlencode urljoin scheme netloc query fragment hostname port unescape reader DictReader "
    "writer DictWriter writerow writerows pack unpack calcsize Decimal Fraction exit read readline readlines write "
    "flush buffer most_common elements group groups groupdict start end span hexlify unhexlify category normalize "
    "numerator denominator"
)
_OPEN_KEYWORDS = word_set("mode encoding errors newline")
_HARMLESS_TYPES = (str, bytes, int, float, list, tuple, dict, set, datetime, timedelta)
_SUBSTITUTION = re.compile(
    r"\s*(?:\d+\s*,?\s*)?(?:s|y|tr)([/|#,!])(?:(?!\1)[^\\\n]|\\.)*\1(?:(?!\1)[^\\\n]|\\.)*\1[gimsxrud]*\s*;?\s*|1|print;?"
)
_PERL_FLAGS = re.compile(r"-[lpnai]*e")
_PERL_OPTIONS = re.compile(r"-[lpnai]*e?|-[lpna]*i\.\w+")
_PERL_CODE = re.compile(r"\(\?\??\{|[@$]\{|`")
_QUERY_LANGUAGES = frozenset({"sqlite3", "psql", "mysql"})
# Parts of queries that read or write files, or commands of the client.
_QUERY_WITH_FILES = re.compile(
    r"readfile|writefile|edit\s*\(|load_|fsdir|zipfile|attach|pragma|pg_|lo_|copy\b|source\b|system\b|infile|outfile|dumpfile"
    r"|^\s*\.|\\",
    re.IGNORECASE | re.MULTILINE,
)
_CALCULATORS = frozenset({"bc", "dc"})


class InlineScript(Struct, frozen=True):
    """Code for an interpreter. `files`: the files it opens by name; None if that is not known. `packs`: all of the folder."""

    interpreter: str
    files: tuple[str, ...] | None = None
    packs: bool = False


def inline_scripts(part: CommandPart) -> Iterator[InlineScript]:
    """Yield the code that a part hands to interpreters. Shells are not among them: their code is analyzed."""
    for position, name in interpreters(part):
        family = name if name in _QUERY_LANGUAGES else name.rstrip("0123456789.")
        if SHELL.fullmatch(name) or not INTERPRETER.fullmatch(name) or family in ("make", "gmake"):
            continue
        words = part.argv[position + 1 :]
        if family in ("python", "pypy"):
            yield from _python_scripts(name, words, part.code.texts)
            continue
        texts = [_text(word) for word in words]
        has_code = any(map(CODE_OPTION.fullmatch, texts)) or family in _QUERY_LANGUAGES
        if has_code or (reads_input(name, texts) and part.code.texts):
            yield InlineScript(name, None if _may_open_files(family, (*texts, *part.code.texts)) else ())


def _python_scripts(name: str, words: Sequence[Word], input_texts: Sequence[str]) -> Iterator[InlineScript]:
    rest = iter(words)
    for word in rest:
        text = _text(word)
        flags = text[1:] if text.startswith("-") and not text.startswith("--") else ""
        if "c" in flags:
            code = flags.partition("c")[2] or _text_of_next(rest)
            yield InlineScript(name, python_files(code))
            return
        if "m" in flags:
            module = flags.partition("m")[2] or _text_of_next(rest)
            if module in _PACKING_MODULES or module in _CODE_MODULES:
                yield InlineScript(name, packs=module in _PACKING_MODULES)
            return
        if flags[-1:] in ("W", "X"):
            next(rest, None)
        elif text in ("-", "/dev/stdin"):
            break
        elif not text.startswith("-"):
            return
    yield from (InlineScript(name, python_files(text)) for text in input_texts)


def _text(word: Word) -> str:
    return word.text if word.kind == "literal" else word.source


def _text_of_next(rest: Iterator[Word]) -> str:
    word = next(rest, None)
    return "" if word is None else _text(word)


def _may_open_files(family: str, texts: Sequence[str]) -> bool:
    """Whether code in another language may open files; the arguments themselves are judged elsewhere."""
    if family in _QUERY_LANGUAGES:
        return any(map(_QUERY_WITH_FILES.search, texts))
    if family == "perl":
        options = [text for text in texts if text.startswith("-")]
        codes = [following for text, following in pairwise(texts) if _PERL_FLAGS.fullmatch(text)]
        is_plain = all(_SUBSTITUTION.fullmatch(code) and not _PERL_CODE.search(code) for code in codes)
        return not (codes and is_plain and all(map(_PERL_OPTIONS.fullmatch, options)))
    return family not in _CALCULATORS


def python_files(code: str) -> tuple[str, ...] | None:
    """The files that Python code opens by name; None if not all its names are its own or known to be harmless."""
    try:
        tree = ast.parse(code) if len(code) <= MAX_CODE_CHARS else None
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        tree = None
    loaded: list[str] = []
    stored: set[str] = set()
    files: list[str] = []
    for node in ast.walk(tree) if tree is not None else ():
        accepted = not isinstance(node, ast.AsyncFunctionDef | ast.ClassDef | ast.Global | ast.Nonlocal | ast.Match)
        match node:
            case ast.Import(names=names):
                stored |= {one.name.partition(".")[0] for one in names}
                accepted = all(one.name in _HARMLESS_MODULES and one.asname is None for one in names)
            case ast.ImportFrom(module=module, names=names, level=level):
                stored |= {one.asname or one.name for one in names}
                accepted = not level and module in _HARMLESS_MODULES and all(_is_harmless(one.name) for one in names)
            case ast.Attribute(attr=name):
                accepted = _is_harmless(name)
            case ast.Call(func=ast.Name(id="open"), args=[ast.Constant(value=str(name)), *values], keywords=keywords):
                files.append(name)
                values += [keyword.value for keyword in keywords]
                accepted = len(values) == sum(isinstance(value, ast.Constant) for value in values)
                accepted = accepted and {keyword.arg for keyword in keywords} <= _OPEN_KEYWORDS
            case ast.Name(id=name, ctx=ast.Load()):
                loaded.append(name)
            case ast.Name(id=name) | ast.FunctionDef(name=name) | ast.ExceptHandler(name=str(name)) | ast.arg(arg=name):
                stored.add(name)
        if not accepted:
            return None
    # A builtin is used before code gives its name to something else, and `open` is there to be called only.
    is_own = stored.isdisjoint(dir(builtins)) and set(loaded) <= stored | _HARMLESS_BUILTINS | {"open"}
    return tuple(files) if tree is not None and is_own and loaded.count("open") == len(files) else None


def _is_harmless(attribute: str) -> bool:
    if attribute.startswith("_"):
        return False
    modules = (math, itertools)
    return attribute in _HARMLESS_ATTRIBUTES or any(hasattr(each, attribute) for each in (*_HARMLESS_TYPES, *modules))


def opened_files(script: InlineScript, cwds: Sequence[str]) -> Iterator[str]:
    """Yield the files of a script, from each folder it may run in."""
    for name in script.files or ():
        for cwd in cwds or ("/",):
            yield os.path.normpath(os.path.join(cwd, name))
