"""Beside bash: which variables a script really sets, compared with what our table of assignments says."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from random import Random

import pytest

from wieldy.shell.effects.analysis import analyze
from wieldy.shell.effects.programs.builtins import ASSIGNING_BUILTINS, assigned_variables, is_script_variable
from wieldy.shell.effects.words import literal

pytestmark = pytest.mark.peer
SEED = int(os.environ.get("WIELDY_FUZZ_SEED", "0"))
COUNT = 4_000
NAMES = (
    "x",
    "y",
    "PATH",
    "IFS",
    "HOME",
    "GIT_DIR",
    "F",
    "arr",
    "arr[PATH=7]",
    "'arr[PATH=7]'",
    "TAG",
    "$v",
    "BASH_ENV",
)
VALUES = ("1", "''", "$v", '"$compound"', "'([PATH=1]=a)'", "([PATH=1]=a)", "'PATH=5'", "(1 2)", "$((PATH=3))", "abc")
FLAGS = ("", "-", "#", "+", " ", "0", "'", "-#+ 0")
SIZES = ("", "3", "*", ".2", ".*", "4.1", ".", "1$")
LENGTHS = ("", "h", "hh", "l", "ll", "L", "j", "z", "t", "hLz", "q")
# Bash sets these itself, or our loop does.
OWN = re.compile(
    r"_|script|BASH.*|RANDOM|SRANDOM|SECONDS|EPOCH\w+|LINENO|PIPESTATUS|FUNCNAME|GROUPS|COMP_\w+|SHELLOPTS|COPROC\w*"
)
ARRAY = "arr=(0 1)"
PRELUDE = f"{ARRAY}; v=y; compound='([PATH=1]=a)'"
# Each script runs in a subshell of its own, whose variables are then printed.
HARNESS = f"""
{PRELUDE}
while IFS= read -r -d '' script <&3; do
    ( exec 3<&-; eval "$script" >/dev/null 2>&1 </dev/null; declare -p 2>/dev/null; printf '\\0' ) 2>/dev/null
    printf '\\1'
done
"""


class Assigning:
    """A source of scripts that set variables, or look as if they did; the same seed gives the same ones."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)

    def script(self) -> str:
        return "; ".join(self.random.choice(self.shapes)(self) for _ in range(self.random.choice((1, 1, 2))))

    def name(self) -> str:
        return self.random.choice(NAMES)

    def value(self) -> str:
        return self.random.choice(VALUES)

    def option(self, *options: str) -> str:
        return self.random.choice(("", *options))

    def conversion(self) -> str:
        chosen = [self.random.choice(pieces) for pieces in (FLAGS, SIZES, LENGTHS)]
        return "%" + "".join(chosen) + self.random.choice("nnnnds%bqQcTxn")

    def printf(self) -> str:
        text = "".join(self.random.choice((self.conversion(), "a", "%%", "%(%n)T", "\\x25n")) for _ in range(2))
        option = self.option("--", f"-v {self.name()}", f"-v{self.name()}")
        quoted = '"' + text.replace("$", "\\$") + '"'
        return f"printf {option} {quoted} {self.name()} {self.name()} {self.name()}"

    def declaration(self) -> str:
        program = self.random.choice(("declare", "typeset", "export", "readonly", "local"))
        option = self.option("-x", "-r", "-i", "-a", "-A", "-n", "-p", "-l", "-g", "--", "+x")
        operand = self.random.choice(
            (self.name(), f"{self.name()}={self.value()}", f'"x={self.random.choice(VALUES)}"')
        )
        return f"{program} {option} {operand}"

    def reading(self) -> str:
        option = self.option("-r", "-a", "-d x", "-n 2", "-N 1", "-rs", f"-u {self.name()}", "--")
        return f"read {option} {self.option(self.name(), f'{self.name()} {self.name()}')} <<< 'a b c'"

    def mapping(self) -> str:
        option = self.option("-t", "-n 1", "-O 2", "-s 1", "-d a", "-C 'PATH=2;:' -c 1")
        return f"{self.random.choice(('mapfile', 'readarray'))} {option} {self.option(self.name())} <<< 'a b'"

    def other(self) -> str:
        name, value = self.name(), self.value()
        return self.random.choice(
            (
                f"{name}={value}",
                f"{name}+={value}",
                f"unset {self.option('-v', '-n', '-f', '--')} {name}",
                f"let '{name}=1'",
                f"getopts a:b {name} -a PATH",
                f"(({name}=2))",
                f": $(({name}=2))",
                f": ${{{name}:={value}}}",
                f": ${{{name}={value}}}",
                ": ${x:PATH=0:1}",
                ": ${x[PATH=1]}",
                f"[[ -v {name} ]]",
                f"[[ {name} -eq 1 ]]",
                "[ 'arr[PATH=7]' -eq 1 ]",
                f"test -v {name}",
                f"for {name} in a {value}; do :; done",
                f"select {name} in a; do break; done <<< 1",
                f"for (({name}=1; PATH<1; )); do break; done",
                f": & wait {self.option('-n', '-f')} -p {name}",
                f"exec {{{name}}}> /dev/null",
                f": {{{name}}}> /dev/null",
                f"coproc {name} {{ :; }}",
                f"eval {name}={value}",
                f"IFS= read -r {name} <<< a",
                "cd .",
                f"set -- {name}",
                f"{name}={value} :",
            )
        )

    shapes = (printf, printf, declaration, declaration, reading, mapping, other, other)


def variables(text: str) -> dict[str, str]:
    """The variables of a `declare -p`, by name."""
    found: dict[str, str] = {}
    for line in text.strip().split("\ndeclare -"):
        match = re.match(r"\S+ (\w+)(.*)", line.removeprefix("declare -"), re.DOTALL)
        if match and not OWN.fullmatch(match[1]):
            found[match[1]] = line.strip()
    return found


def run(scripts: list[str], place: Path) -> list[dict[str, str]]:
    (place / "scripts").write_text("".join(f"{script}\0" for script in scripts))
    environment = {"PATH": os.environ["PATH"], "HOME": str(place), "LC_ALL": "C"}
    command = ["bash", "--norc", "--noprofile", "-c", f"exec 3< {place}/scripts\n{HARNESS}"]
    done = subprocess.run(command, cwd=place, env=environment, capture_output=True, text=True, timeout=300)
    answers = done.stdout.split("\1")[:-1]
    assert len(answers) == len(scripts), done.stderr[-500:]
    return [variables(answer.rpartition("\0")[0]) if "\0" in answer else {} for answer in answers]


def changed(before: dict[str, str], after: dict[str, str]) -> set[str]:
    return {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)} if after else set()


def test_a_script_that_is_called_read_only_sets_only_harmless_variables(tmp_path: Path) -> None:
    source = Assigning(SEED)
    scripts = list(dict.fromkeys(source.script() for _ in range(COUNT)))
    before, *results = run([":", *scripts], tmp_path)
    read_only = setting = 0
    for script, after in zip(scripts, results, strict=True):
        names = changed(before, after)
        setting += bool(names)
        if (
            analyze(f"{PRELUDE.partition('; declare')[0]}; {script}", cwd=str(tmp_path), home=str(tmp_path)).verdict
            == "read_only"
        ):
            read_only += 1
            influential = {name for name in names if not is_script_variable(name)} - {"REPLY", "PWD", "OLDPWD"}
            assert not influential, (script, influential)
    assert read_only > 150 and setting > 1_000, (read_only, setting)


def test_a_builtin_sets_no_other_variables_than_the_table_says(tmp_path: Path) -> None:
    source = Assigning(SEED + 1)
    calls = []
    for _ in range(COUNT):
        program = source.random.choice(sorted(ASSIGNING_BUILTINS))
        options = ["-v", "-p", "-a", "-r", "-n", "-x", "-t", "--", "-d", "-u", "-i", "-A", "-g", "-f"]
        plain = [
            "x",
            "y",
            "PATH",
            "arr",
            "arr[PATH=7]",
            "x=1",
            "x=([PATH=1]=a)",
            "arr=([PATH=1]=a)",
            source.conversion(),
            "a b",
        ]
        words = [source.random.choice(options if source.random.random() < 0.4 else plain) for _ in range(3)]
        calls.append((program, [word for word in words if "\\" not in word][: source.random.randint(0, 3)]))
    quoted = [
        " ".join((program, *("'" + word.replace("'", "'\\''") + "'" for word in words))) for program, words in calls
    ]
    before, *results = run([":", *quoted], tmp_path)
    certain = 0
    for (program, words), after, text in zip(calls, results, quoted, strict=True):
        names = assigned_variables(program, tuple(map(literal, words)))
        builtin = ASSIGNING_BUILTINS[program]
        if names is None or builtin is None:
            continue
        certain += 1
        if program == "printf" and analyze(text, cwd="/", home="/").verdict != "read_only":
            continue
        assert changed(before, after) <= {*names, *builtin.always}, text
    assert certain > 500
