"""How long it takes to judge a shell command, beside tree-sitter's parse of it alone."""

from __future__ import annotations

import gc
import resource
import time
from collections.abc import Callable, Iterable, Iterator

from bench.claim import Claim, best_of

from wieldy.shell.effects import analysis
from wieldy.shell.parsing.cross_check import _parser

TYPICAL = (
    "git status",
    "cd sub && git diff main...HEAD --name-only | head -30",
    'grep -rn "def main" src | sort | uniq -c | head -20',
    "ls -la src 2>/dev/null && cat README.md",
    "npm run test -- --watch=false",
)
LONG = " && ".join(f'echo "line number {number}" of{number}.txt' for number in range(250))[:9_900].rpartition(" && ")[0]
NESTED = 'for f in a b c; do echo "$(wc -l "$f")"; done'
UNCOMMON = "time echo `wc -l f`"
LONGEST = 9_900
ROUNDS = 4


def filled(pieces: Iterable[str], between: str, head: str = "", tail: str = "") -> str:
    """As many of the pieces as make a text just under 10 KB."""
    taken: list[str] = []
    length = len(head) + len(tail)
    for piece in pieces:
        length += len(piece) + len(between)
        if length > LONGEST:
            break
        taken.append(piece)
    return head + between.join(taken) + tail


def shapes(salt: int) -> dict[str, str]:
    """Commands of 10 KB, each long in another way; another salt makes other texts of the same shapes."""
    n = range(salt, salt + 5_000)
    return {
        "pipelines joined by &&": filled((f'grep -n "word{i}" src/f{i}.py | head -20' for i in n), " && "),
        "pipelines of many programs": filled((f"grep w{i} a | sort -k{i} | uniq -c" for i in n), " && "),
        "one long pipeline": filled((f"grep -v w{i}" for i in n), " | ", "cat f | "),
        "a big here-document": filled((f"line {i} of $text and `code`" for i in n), "\n", "cat >f <<'E'\n", "\nE\n"),
        "an open here-document": filled((f"line {i} of $text ${{x:-y}}" for i in n), "\n", "cat <<E\n", "\nE\n"),
        "many here-documents": filled((f"cat <<E\nline {i}\nE" for i in n), "\n"),
        "commands with redirections": filled((f"echo {i} >out{i}.txt 2>&1" for i in n), "; "),
        "redirections of one command": filled((f">out{i}" for i in n), " ", "echo "),
        "nested substitutions": filled((f'echo "$(basename "$(dirname a/{i})")"' for i in n), "; "),
        "deep substitutions": filled((f"echo {'$(echo ' * 12}{i}{')' * 12}" for i in n), "; "),
        "process substitutions": filled((f"diff <(sort a{i}) <(sort b)" for i in n), "; "),
        "backticks": filled((f"echo `ls a{i}`" for i in n), "; "),
        "subshells": filled((f"(cd d{i}; (ls -l; pwd))" for i in n), " && "),
        "loops": filled((f'for f in a b c d; do wc -l "$f.{i}"; done' for i in n), "; "),
        "loops in loops": filled((f"for f in a b; do for g in 1 2; do cat $f$g.{i}; done; done" for i in n), "; "),
        "while loops": filled((f"while read x{i}; do echo $x; done < f{i}" for i in n), "; "),
        "1000 arguments": filled((f"f{i}.txt" for i in n), " ", "cat "),
        "patterns": filled((f"src/{i}*.txt" for i in n), " ", "cat "),
        "braces": filled((f"a{{b,c}}{i}" for i in n), " ", "echo "),
        "brackets": "echo " + "[" * 9_000 + "]" * 800 + str(salt),
        "dollar signs": "echo " + "$" * 9_000 + str(salt),
        "a long string": filled((f"word {i}" for i in n), " ", 'echo "', '"'),
        "a string with escapes": filled((f'\\$w{i} \\" $x' for i in n), " ", 'echo "', '"'),
        "a case": filled((f"a{i}) echo {i};;" for i in n), " ", "case $x in ", " esac"),
        "ifs": filled((f"if test -f a{i}; then cat a{i}; else echo no; fi" for i in n), "; "),
        "tests": filled((f"[[ -f a{i} && $x == b* ]]" for i in n), " && "),
        "functions": filled((f"f{i}() {{ ls d{i}; }}; f{i}" for i in n), "; "),
        "calls of one function": filled((f"f {i}" for i in n), "; ", "f() { ls; cat x; }; "),
        "commands with variables": filled((f"LANG=C a{i}=1 b=2 ls" for i in n), "; "),
        "variables of one command": filled((f"a{i}=1" for i in n), " ", tail=" ls"),
        "changes of folder": filled((f"cd d{i} || ls" for i in n), "; "),
        "a sed script": filled((f"s/a{i}/b/g" for i in n), ";", "sed -n '", "' f"),
        "an awk program": filled((f"/a{i}/ {{ print $1 }}" for i in n), " ", "awk '", "' f"),
        "git": filled((f"git log --oneline -5 x{i}" for i in n), " && "),
        "find with commands": filled((f"find . -name a{i} -exec cat {{}} \\;" for i in n), "; "),
        "xargs": filled((f"find d{i} -name x | xargs grep -n w" for i in n), "; "),
        "wrappers": filled((f"timeout 5 nice env ls a{i}" for i in n), "; "),
        "shells": filled((f"bash -c 'ls a{i}; cat b'" for i in n), "; "),
        "removals": filled((f"rm -rf d{i}" for i in n), " && "),
        "unknown programs": filled((f"npm run t{i}" for i in n), " && "),
        "as many commands as fit": filled((":" for _ in n), ";") + f" {salt}",
        "not closed": "(" * 5_000 + str(salt),
        "not bash": filled((f"ls a{i}" for i in n), " && ") + " ;;",
    }


def analyzed(command: str) -> Callable[[], object]:
    return lambda: analysis.analyze(command, cwd="/project/here", home="/home/me")


def parsed(command: str) -> Callable[[], object]:
    text = command.encode()
    return lambda: _parser().parse(text)


def spent(work: Callable[[], object]) -> float:
    """Processor time of one run: ours, and that of the processes it waited for."""
    gc.collect()
    gc.disable()
    try:
        start = _processor_time()
        work()
        return _processor_time() - start
    finally:
        gc.enable()


def _processor_time() -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def worst_shape() -> tuple[str, float]:
    """The shape that takes longest, and the least time it took; no text is judged twice."""
    best: dict[str, float] = {}
    for salt in range(1_000, 1_000 + 7 * ROUNDS, 7):
        for name, command in shapes(salt).items():
            best[name] = min(best.get(name, float("inf")), spent(analyzed(command)))
    return max(best.items(), key=lambda item: item[1])


def claims() -> Iterator[Claim]:
    for command in TYPICAL:
        ours, parse = best_of(60, analyzed(command), parsed(command))
        yield Claim(
            f"`{command}` judged", ours * 1e3, 1.0, " ms", f"tree-sitter alone parses it in {parse * 1e3:.3f} ms"
        )
    ours, parse = best_of(40, analyzed(LONG), parsed(LONG))
    yield Claim(
        f"a chain of {len(LONG) / 1000:.1f} KB judged",
        ours * 1e3,
        30.0,
        " ms",
        f"tree-sitter alone parses it in {parse * 1e3:.1f} ms",
    )
    name, worst = worst_shape()
    yield Claim(f"the worst of {len(shapes(0))} shapes of 10 KB judged", worst * 1e3, 30.0, " ms of processor", name)
    (nested,) = best_of(60, analyzed(NESTED))
    yield Claim(f"a nested command, `{NESTED}`, judged", nested * 1e3, 1.0, " ms")
    (uncommon,) = best_of(60, analyzed(UNCOMMON))
    yield Claim(f"an uncommon command, `{UNCOMMON}`, judged", uncommon * 1e3, 1.0, " ms")
