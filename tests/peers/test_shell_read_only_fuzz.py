"""Random options and random sed and awk programs: those that we call read-only are run, and must change nothing."""

from __future__ import annotations

import os
import shlex
import string
import subprocess
from pathlib import Path
from random import Random

import pytest

from wieldy.shell.policy.analysis import analyze

pytestmark = pytest.mark.peer
_PROGRAMS = """
sort uniq cut head tail wc grep sed awk find xxd od base64 diff cmp comm join paste column stat file du ls nl fold fmt tar
gzip tac rev expand shuf md5sum strings cat tr seq dirname realpath iconv numfmt tree hexdump
"""
_LONG = """
--output --output=out --out=out --files0-from=a --compress-program=./p --in-place --in-place=.x --file=a --expression=p --null
--zero --count --unique --reverse --key=1 --lines=1 --check --recursive --include=a --to-command=x --remove-files --append
"""
_AWK = """
print printf_ "f" / " ) ( ; { } >_ >> | "touch_f" system("touch_f") % , 1 x $1 if_(1)_ ! ~ # \\ exit_ "touch_f"_|_getline /"/
/a/ "x" BEGIN_ ++ -- in_ x[1] = length_ function_g()_ g() return_ && getline_y_<_"a"
"""
_SED = """
s/a/b/ p w_f e_touch_f 1 $ /x/ ! { } ; % s / a b g i\\ a\\ c y/x/z/ # r_a = , q l h \\ [ ] | I M s|x|y| w e t b_a :a n ~2 +1
s/x/y/w_f s/x/y/e 0 x D N
"""
PROGRAMS, LONG = _PROGRAMS.split(), _LONG.split()
# In these two `_` is a blank and `%` a line break.
AWK, SED = _AWK.split(), _SED.split()
VALUES = ["1", "x", "a", "out", "w out", "s/a/b/w out", "{print}", '{print > "out"}', "-", "5p", "b", "1e touch out"]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    for name in "ab":
        (tmp_path / name).write_text("x 1\ny 2\n")
    (tmp_path / "p").write_text("#!/bin/sh\ntouch out\ncat\n")
    (tmp_path / "p").chmod(0o755)
    return tmp_path


def snapshot(place: Path) -> dict[str, tuple[int, bytes]]:
    return {path.name: (path.stat().st_mode, path.read_bytes()) for path in place.iterdir()}


def run_if_read_only(command: str, place: Path, before: dict[str, tuple[int, bytes]]) -> bool:
    if analyze(command, cwd=str(place), home=str(place)).verdict != "read_only":
        return False
    subprocess.run(
        ["timeout", "3", "bash", "--norc", "-c", command],
        cwd=place,
        env={"PATH": os.environ["PATH"], "HOME": str(place)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        timeout=20,
    )
    assert snapshot(place) == before, command
    return True


def random_arguments(random: Random) -> list[str]:
    found = []
    for _ in range(random.randint(0, 4)):
        kind = random.random()
        if kind < 0.4:
            found.append("-" + "".join(random.choices(string.ascii_letters, k=random.choice([1, 1, 2, 3]))))
        else:
            found.append(random.choice(LONG if kind < 0.55 else VALUES))
    return [*found, random.choice("ab")]


@pytest.mark.parametrize("seed", range(3))
def test_random_options_of_read_only_calls_change_nothing(seed: int, place: Path) -> None:
    random, before, ran = Random(seed), snapshot(place), 0
    for _ in range(300):
        arguments = " ".join(map(shlex.quote, random_arguments(random)))
        ran += run_if_read_only(f"{random.choice(PROGRAMS)} {arguments}", place, before)
    assert ran > 20


@pytest.mark.parametrize(("program", "pieces", "shape"), [("awk", AWK, "{{{}}}"), ("sed", SED, "{}")])
def test_random_programs_of_read_only_calls_change_nothing(
    program: str, pieces: list[str], shape: str, place: Path
) -> None:
    random, before, ran = Random(7), snapshot(place), 0
    for _ in range(350):
        text = "".join(random.choices(pieces, k=random.randint(2, 8))).replace("_", " ").replace("%", "\n")
        ran += run_if_read_only(f"{program} {shlex.quote(shape.format(text))} a", place, before)
    assert ran > 20
