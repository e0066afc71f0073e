"""`find`: check its expression and extract the commands it would execute."""

from __future__ import annotations

from wieldy.shell.policy.programs.spec import CallEffects, ProgramCall, unknown, word_set
from wieldy.shell.policy.words import Word, literal

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
_EXEC_ACTIONS = frozenset({"-exec", "-execdir", "-ok", "-okdir"})


def split_find_args(args: tuple[Word, ...]) -> tuple[list[Word], list[Word]]:
    """The starting points and the expression."""
    index = 0
    while index < len(args) and args[index].text in _LEADING_OPTIONS and args[index].static:
        index += 1
    start = index
    while index < len(args) and not _begins_expression(args[index]):
        index += 1
    return list(args[start:index]), list(args[index:])


def executed_commands(args: tuple[Word, ...]) -> list[tuple[Word, ...]] | None:
    """The commands that `-exec` and the like would run; None when they cannot be separated from the rest."""
    _, expression = split_find_args(args)
    commands: list[tuple[Word, ...]] = []
    index = 0
    while index < len(expression):
        word = expression[index]
        index += 1
        if not word.static:
            return None
        if word.text in _VALUED or word.text in _FILE_TESTS or word.text in _FILE_ACTIONS:
            index += 2 if word.text == "-fprintf" else 1
        elif word.text in _EXEC_ACTIONS:
            end = next((i for i in range(index, len(expression)) if _ends_command(expression, i)), None)
            if end is None or end == index:
                return None
            commands.append(tuple(expression[index:end]))
            index = end + 1
        elif word.text == "-files0-from" or (word.text.startswith("-newer") and word.text not in _FILE_TESTS):
            index += 1
    return commands


def check_find(call: ProgramCall) -> CallEffects:
    """The effects of the expression itself, without those of the commands it executes."""
    starts, expression = split_find_args(call.args)
    writes: list[Word] = []
    reads = list(starts or [literal(".")])
    index = 0
    while index < len(expression):
        word, value = expression[index], expression[index + 1 : index + 2]
        if not word.static:
            return unknown(f"`{word.source}` could become another expression")
        if word.text in _FLAGS:
            index += 1
        elif word.text in _VALUED or (word.text.startswith("-newer") and len(word.text) == 8):
            if not value or value[0].kind in ("multiple", "glob"):
                return unknown(f"the value of `{word.text}` is not known in advance")
            index += 2
        elif word.text in _FILE_TESTS:
            reads.extend(value)
            index += 2
        elif word.text == "-delete":
            writes.extend(starts or [literal(".")])
            index += 1
        elif word.text in _FILE_ACTIONS:
            writes.extend(value)
            index += 3 if word.text == "-fprintf" else 2
        elif word.text in _EXEC_ACTIONS:
            end = next((i for i in range(index + 1, len(expression)) if _ends_command(expression, i)), None)
            if end is None:
                return unknown(f"the command of `{word.text}` is not closed")
            index = end + 1
        else:
            return unknown(f"the find expression `{word.text}` is not known to be harmless")
    return CallEffects(tuple(reads), tuple(writes), changes=bool(writes))


def _begins_expression(word: Word) -> bool:
    return (
        word.prefix.startswith("-")
        or (not word.prefix and not word.static)
        or (word.static and word.text in ("(", "!", ",", ")"))
    )


def _ends_command(expression: list[Word], index: int) -> bool:
    word = expression[index]
    return word.static and (word.text == ";" or (word.text == "+" and expression[index - 1].text == "{}"))
