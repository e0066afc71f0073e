from __future__ import annotations

import pytest

from wieldy.shell.parsing.cross_check import parsers_agree
from wieldy.shell.parsing.parser import parse


@pytest.mark.parametrize(
    "text",
    [
        "ls -l | wc",
        'for f in a b; do echo "$(wc -l "$f")"; done',
        "(cd d; (ls))",
        "f() { ls; }; f",
        "cat <<'EOF'\n`ls` $(ls)\nEOF\n",
        "cat <<E\n$(ls)\nE\n",
        "if [ -f x ]; then cat x; elif [[ $a == b* ]]; then ls; else pwd; fi 2>&1",
        "case $x in a*|b) echo 1;; esac",
        "while read line; do echo $line; done < f",
        "diff <(sort a) <(sort b)",
        "export a=b && unset c && d=$(ls)",
        "cat <<< word",
        "echo `ls`",
        "echo ${x:-$(ls)} ${y%.txt} ${#z}",
        "echo $((1 + 2))",
        "a=(x $(ls)) b[0]=1",
        "time -p ls | head",
        "ls && time ls",
        "find . 2>/dev/null -name x",
        "ls a | grep x 2>/dev/null y >f z",
        "ls 2>&-",
        "echo größe | wc",
        "ls 'a'b:$x/c",
    ],
)
def test_the_parsers_agree_on_usual_commands(text: str) -> None:
    assert parsers_agree(text, parse(text))


@pytest.mark.parametrize(
    ("text", "other"),
    [
        ("ls -l | wc", "ls -l ; wc -l"),
        ("ls -l", "ls -ll"),
        ("echo $(date)", "echo `id`"),
        ("ls > a", "ls < a"),
        ("a=b ls", "a=b ls x"),
        ("time ls", "time ls x"),
    ],
)
def test_another_reading_is_a_disagreement(text: str, other: str) -> None:
    assert not parsers_agree(text, parse(other))


@pytest.mark.parametrize("text", ["cat <<E\n`ls`\nE\n", "echo ${x:-`ls`}", "coproc ls", "time { ls; }"])
def test_commands_that_tree_sitter_hides_are_a_disagreement(text: str) -> None:
    assert not parsers_agree(text, parse(text))
