"""`find`: check its expression and extract the commands it would execute."""

from __future__ import annotations

from collections.abc import Iterator

from wieldy.shell.effects.programs.spec import CallEffects, ProgramCall, UnknownArguments, unknown, word_set
from wieldy.shell.effects.words import Word, literal

_LEADING_OPTIONS = frozenset({"-H", "-L", "-P", "-O0", "-O1", "-O2", "-O3"})
_FLAGS = word_set(
    "-depth -d -daystart -follow -ignore_readdir_race -noignore_readdir_race -mount -xdev -nowarn -warn -empty "
    "-executable -false -true -nogroup -nouser -readable -writable -print -print0 -prune -quit -ls -not -a -and -o "
    "-or ! ( ) , -help --help -version --version"
)
_VALUED = word_set(
    "-maxdepth -mindepth -regextype -amin -atime -cmin -ctime -fstype -gid -group -ilname -iname -inum -ipath -iregex "
    "-iwholename -links -lname -mmin -mtime -name -path -perm -regex -size -type -uid -used -user -wholename -xtype "
    "-context -printf"
)
_FILE_TESTS = frozenset({"-newer", "-anewer", "-cnewer", "-samefile"})
_FILE_ACTIONS = frozenset({"-fprint", "-fprint0", "-fls", "-fprintf"})
_VALUED_PREFIXES = ("-newer", "-files0-from")
_EXEC_ACTIONS = frozenset({"-exec", "-execdir", "-ok", "-okdir"})


def split_find_args(args: tuple[Word, ...]) -> tuple[list[Word], list[Word]]:
    """The starting points and the expression."""
    index = 0
    while index < len(args) and args[index].text in _LEADING_OPTIONS and args[index].kind == "literal":
        index += 1
    start = index
    while index < len(args) and not _begins_expression(args[index]):
        index += 1
    return list(args[start:index]), list(args[index:])


def commands_of_find(args: tuple[Word, ...]) -> list[tuple[Word, ...]] | None:
    """The commands that `-exec` and the like would run; None when they cannot be separated from the rest."""
    try:
        return [tuple(values) for name, values in primaries_of(split_find_args(args)[1]) if name in _EXEC_ACTIONS]
    except UnknownArguments:
        return None


def check_find(call: ProgramCall) -> CallEffects:
    """The effects of the expression itself, without those of the commands it executes."""
    starts, expression = split_find_args(call.args)
    reads = starts or [literal(".")]
    follows_links = any(word.text in ("-L", "-follow") for word in call.args if word.kind == "literal")
    writes: list[Word] = []
    for name, values in primaries_of(expression):
        if name in _FILE_TESTS:
            reads = [*reads, *values]
        elif name == "-delete":
            writes.extend(starts or [literal(".")])
        elif name in _FILE_ACTIONS:
            writes.extend(values[:1])
        elif name in _VALUED or (name.startswith("-newer") and len(name) == 8):
            if not values or values[0].kind in ("multiple", "glob"):
                return unknown(f"the value of `{name}` is not known in advance")
        elif name not in _FLAGS and name not in _EXEC_ACTIONS:
            return unknown(f"the find expression `{name}` may do more than read")
    return CallEffects(tuple(reads), tuple(writes), changes=bool(writes), follows_links=follows_links)


def listed_links(args: tuple[Word, ...]) -> str | None:
    """A pattern for the names of the symlinks that `find` may list; None if it lists none."""
    expression = split_find_args(args)[1]
    depth, negated, pattern, lists_links = 0, False, "*", True
    for name, values in primaries_of(expression):
        if name in ("(", ")"):
            depth += 1 if name == "(" else -1
        elif name in ("-o", "-or", ","):
            if depth == 0:
                return "*"
        elif name in ("!", "-not"):
            negated = True
            continue
        elif depth == 0 and not negated and values and values[0].kind == "literal":
            lists_links = lists_links and (name != "-type" or "l" in values[0].text)
            if name in ("-name", "-iname"):
                pattern = values[0].text
        negated = False
    return pattern if lists_links else None


def primaries_of(expression: list[Word]) -> Iterator[tuple[str, list[Word]]]:
    """The tests, actions and operators of an expression, each with its arguments. Raises `UnknownArguments`."""
    index = 0
    while index < len(expression):
        word = expression[index]
        index += 1
        if word.kind != "literal":
            raise UnknownArguments(f"`{word.source}` could become another expression")
        if word.text in _EXEC_ACTIONS:
            end = next((at for at in range(index, len(expression)) if _ends_command(expression, at)), index)
            if end == index:
                raise UnknownArguments(f"the command of `{word.text}` is missing or not closed")
            yield word.text, expression[index:end]
            index = end + 1
        else:
            takes_value = word.text in _VALUED | _FILE_TESTS | _FILE_ACTIONS or word.text.startswith(_VALUED_PREFIXES)
            count = 2 if word.text == "-fprintf" else int(takes_value)
            yield word.text, expression[index : index + count]
            index += count


def _begins_expression(word: Word) -> bool:
    return (
        word.prefix.startswith("-")
        or (not word.prefix and word.kind != "literal")
        or (word.kind == "literal" and word.text in ("(", "!", ",", ")"))
    )


def _ends_command(expression: list[Word], index: int) -> bool:
    word = expression[index]
    return word.kind == "literal" and (word.text == ";" or (word.text == "+" and expression[index - 1].text == "{}"))
