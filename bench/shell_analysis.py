"""How long it takes to judge a shell command, beside tree-sitter's parse of it alone and beside starting a shell."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator

from bench.claim import Claim, best_of

from wieldy.shell import analysis
from wieldy.shell.grammar import _parser

TYPICAL = (
    "git status",
    "cd sub && git diff main...HEAD --name-only | head -30",
    'grep -rn "def main" src | sort | uniq -c | head -20',
    "ls -la src 2>/dev/null && cat README.md",
    "npm run test -- --watch=false",
)
LONG = " && ".join(f'echo "line number {number}" of{number}.txt' for number in range(250))[:9_900].rpartition(" && ")[0]
NESTED = 'for f in a b c; do echo "$(wc -l "$f")"; done'


def uncached(command: str) -> Callable[[], object]:
    return lambda: analysis._analyse.__wrapped__(command, "/project/here", "/home/me", "/project/here")


def parsed(command: str) -> Callable[[], object]:
    text = command.encode()
    return lambda: _parser().parse(text)


def claims() -> Iterator[Claim]:
    for command in TYPICAL:
        ours, parse = best_of(60, uncached(command), parsed(command))
        yield Claim(
            f"`{command}` judged", ours * 1e3, 1.0, " ms", f"tree-sitter alone parses it in {parse * 1e3:.3f} ms"
        )
    ours, parse = best_of(40, uncached(LONG), parsed(LONG))
    yield Claim(
        f"a chain of {len(LONG) / 1000:.1f} KB judged",
        ours * 1e3,
        30.0,
        " ms",
        f"tree-sitter alone parses it in {parse * 1e3:.1f} ms",
    )
    (remembered,) = best_of(200, lambda: analysis.analyse(TYPICAL[1], cwd="/project/here", home="/home/me"))
    yield Claim("a command judged before", remembered * 1e3, 0.05, " ms")
    shell = ["bash", "-c", "true"]
    ours, bash = best_of(15, uncached(NESTED), lambda: subprocess.run(shell, check=True))
    yield Claim(
        "a nested command, with shfmt's second opinion, against starting bash",
        ours / bash,
        6.0,
        "×",
        f"{ours * 1e3:.1f} ms",
    )
