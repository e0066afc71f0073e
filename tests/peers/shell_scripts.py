"""Random bash scripts made of harmless stub commands, for comparing what we expect to run with what does run."""

from __future__ import annotations

import shlex
from random import Random

STUBS = tuple(f"c{number}" for number in range(1, 7))
WRAPPERS = (
    "env ",
    "env X=1 ",
    "timeout 5 ",
    "nice ",
    "nohup ",
    "command ",
    "exec ",
    "X=1 ",
    "stdbuf -oL ",
    "env -u Y ",
    "timeout -k 1 5 ",
)


class Scripts:
    """A source of scripts; the same seed gives the same ones."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)

    def script(self, depth: int = 3) -> str:
        parts = [self.statement(depth) for _ in range(self.random.randint(1, 3))]
        text = parts[0]
        for part in parts[1:]:
            text += self.random.choice(["; ", "\n", " && ", " || ", "\n\n"]) + part if "<<" not in text else "\n" + part
        return text

    def statement(self, depth: int) -> str:
        if depth <= 0 or self.random.random() < 0.35:
            return self.simple(depth)
        return self.random.choice(self.shapes)(self, depth - 1)

    def pipe(self, depth: int) -> str:
        return f"{self.simple(depth)} {self.random.choice(['|', '|&'])} {self.simple(depth)}"

    def subshell(self, depth: int) -> str:
        return f"( {self.script(depth)}\n)"

    def braces(self, depth: int) -> str:
        return f"{{ {self.script(depth)}\n}}"

    def branch(self, depth: int) -> str:
        return f"if {self.statement(depth)}\nthen {self.script(depth)}\nelse {self.statement(depth)}\nfi"

    def loop(self, depth: int) -> str:
        words = " ".join(self.word(depth) for _ in range(self.random.randint(1, 3)))
        return f"for v in {words}; do {self.script(depth)}\ndone"

    def once(self, depth: int) -> str:
        return f"while {self.simple(depth)}\ndo {self.simple(depth)}\nbreak; done"

    def case(self, depth: int) -> str:
        arms = f"{self.random.choice('ab')}|zz) {self.script(depth)}\n;; *) {self.statement(depth)}\n;;"
        return f"case {self.word(depth)} in {arms} esac"

    def function(self, depth: int) -> str:
        return f"f{self.random.randint(1, 3)}() {{ {self.script(depth)}\n}}"

    def call(self, depth: int) -> str:
        defined, called = self.random.randint(1, 3), self.random.randint(1, 3)
        return f"f{defined} () {{ {self.simple(depth)}\n}}\nf{called} {self.word(depth)} || true"

    def heredoc(self, depth: int) -> str:
        mark = self.random.choice(["E", "'E'", '"E"', "\\E"])
        body = f"text {self.word(depth)} `{self.stub()} q` $({self.simple(depth)})"
        return f"{self.stub()} <<{mark}\n{body}\nE\n{self.simple(depth)}"

    def herestring(self, depth: int) -> str:
        return f"{self.simple(depth)} <<< {self.word(depth)}"

    def redirect(self, depth: int) -> str:
        return f"{self.simple(depth)} {self.random.choice(['>', '>>', '2>', '&>'])} out{self.random.randint(1, 3)}"

    def wrapped(self, depth: int) -> str:
        return f"{self.random.choice(WRAPPERS[:-2] if depth else WRAPPERS)}{self.simple(depth)}"

    def nested(self, depth: int) -> str:
        return f"{self.random.choice(['bash -c', 'sh -c', 'eval'])} {shlex.quote(self.script(depth))}"

    def background(self, depth: int) -> str:
        return f"{self.simple(depth)} & wait"

    def timed(self, depth: int) -> str:
        return f"time {self.statement(depth)}"

    def negated(self, depth: int) -> str:
        return f"! {self.statement(depth)}"

    def test(self, depth: int) -> str:
        return f"[[ -n {self.word(depth)} && a < b ]] && {self.simple(depth)}"

    def xargs(self, depth: int) -> str:
        return f"echo a b | xargs {self.random.choice(['', '-n1 ', '-I{} '])}{self.simple(0)}"

    shapes = (
        pipe, subshell, braces, branch, loop, once, case, function, call, heredoc, herestring, redirect, wrapped, nested,
        background, timed, negated, test, xargs,
    )  # fmt: skip

    def stub(self) -> str:
        name = self.random.choice(STUBS)
        return self.random.choice(
            [name, name, name, f'"{name}"', f"'{name}'", f"\\{name}", f'c"{name[1:]}"', f"$'\\x63'{name[1:]}"]
        )

    def simple(self, depth: int) -> str:
        words = [self.word(depth) for _ in range(self.random.randint(0, 3))]
        if self.random.random() < 0.1:
            words.append(f"2>&1 {self.random.choice(['', '>/dev/null'])}")
        assign = f"A={self.word(depth)} " if self.random.random() < 0.1 else ""
        return assign + " ".join([self.stub(), *words])

    def word(self, depth: int) -> str:
        plain = [
            "a",
            "b1",
            "-x",
            "--long=v",
            "'q r'",
            '"d e"',
            "a\\ b",
            "$'t\\tu'",
            "x'y'\"z\"",
            "{m,n}",
            "o{1..2}",
            "*.txt",
            "~/z",
            "''",
        ]
        plain += [
            "a#b",
            "a=b",
            "$HOME",
            '"$PWD"',
            "$v",
            '"$v"',
            "${v:-w}",
            '"${v%.txt}"',
            "$((1+2))",
            "'$(c1 no)'",
            "\\$\\(c1\\)",
            "'`c2`'",
        ]
        if depth <= 0 or self.random.random() < 0.6:
            return self.random.choice(plain)
        inner = self.simple(depth - 1)
        return self.random.choice(
            [
                f"$({inner})",
                f'"$({inner})"',
                f"${{v:-$({inner})}}",
                f"<({inner})",
                f'"x$({inner})y"',
                f"$( {inner} ; {self.simple(0)} )",
            ]
            + ([f"`{inner}`"] if "`" not in inner and "\\" not in inner else [])
        )
