"""Laws of the shell analysis: no spelling and no wrapping turns a command that may change something into a harmless one."""

from __future__ import annotations

import shlex
from pathlib import Path

from hypothesis import example, given, settings
from hypothesis import strategies as st

from wieldy.shell.effects.analysis import Analysis, analyze
from wieldy.shell.parsing.parser import parse
from wieldy.shell.parsing.syntax import SimpleCommand, Unparsable

CORPUS = Path(__file__).parents[1] / "corpora" / "shell" / "not_read_only.txt"


def analysis_of(command: str) -> Analysis:
    return analyze(command, cwd="/project/here", home="/home/me", root="/project/here")


def parses(text: str) -> bool:
    try:
        return bool(parse(text).and_or_lists)
    except Unparsable:
        return False


HOSTILE = [
    line for line in CORPUS.read_text(encoding="utf-8").splitlines() if not line.startswith("#") and parses(line)
]
SIMPLE_HOSTILE = [
    line
    for line in HOSTILE
    if len(stages := parse(line).and_or_lists[0].links[0][1].stages) == 1
    and isinstance(stages[0], SimpleCommand)
    and stages[0].source == line
    and stages[0].words
    and stages[0].words[0].source.isalnum()
    and not stages[0].assignments
]

AROUND = st.sampled_from(
    [
        "{ {}\n}",
        "( {}\n)",
        "true && {}",
        "false || {}",
        "ls; {}",
        "ls\n{}",
        "ls & {}",
        "! {}",
        "time {}",
        'echo "$({}\n)"',
        "echo <({}\n)",
        "x=$({}\n)",
        "if true; then {}\nfi",
        "if {}\nthen true; fi",
        "for i in 1 2; do {}\ndone",
        "while {}\ndo break; done",
        "case a in *) {}\n;; esac",
        "f() { {}\n}; f",
        "cat <<EOF\n$({}\n)\nEOF",
        "echo ${x:-$({}\n)}",
        "coproc { {}\n}",
        "[[ -n $({}\n) ]]",
        "   {}   ",
        "{} # the end",
        "\n\n{}\n\n",
    ]
)
BEFORE = st.sampled_from(
    [
        "timeout 5 ",
        "nice ",
        "nice -n 3 ",
        "nohup ",
        "stdbuf -oL ",
        "env ",
        "env LANG=C ",
        "command ",
        "sudo ",
        "setsid ",
        "exec ",
        "ionice -c 2 ",
        "xargs ",
        "xargs -n 1 ",
        "busybox ",
    ]
)


@settings(max_examples=250, deadline=None)
@given(st.sampled_from(HOSTILE), st.lists(AROUND, min_size=1, max_size=3))
def test_no_surroundings_make_a_command_harmless(command: str, around: list[str]) -> None:
    for shape in around:
        command = shape.replace("{}", command)
    assert analysis_of(command).verdict != "read_only", command


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(SIMPLE_HOSTILE), st.lists(BEFORE, min_size=1, max_size=3))
def test_no_wrapper_makes_a_command_harmless(command: str, wrappers: list[str]) -> None:
    assert analysis_of("".join(wrappers) + command).verdict != "read_only"


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(HOSTILE), st.integers(1, 3), st.sampled_from(["bash -c", "sh -c", "eval"]))
def test_no_nesting_of_shells_makes_a_command_harmless(command: str, depth: int, shell: str) -> None:
    for _ in range(depth):
        command = f"{shell} {shlex.quote(command)}"
    assert analysis_of(command).verdict != "read_only"


def spelled(draw: st.DrawFn, name: str) -> str:
    forms = [
        lambda c: c,
        lambda c: f"'{c}'",
        lambda c: f'"{c}"',
        lambda c: f"\\{c}",
        lambda c: f"$'{''.join(f'{chr(92)}x{byte:x}' for byte in c.encode())}'",
        lambda c: f"''{c}",
    ]
    return "".join(draw(st.sampled_from(forms))(char) for char in name)


@st.composite
def spellings(draw: st.DrawFn) -> tuple[str, str]:
    """A hostile command, and the same with its program's name spelled another way."""
    # A redirection in front is no name: quoted, it would be another command.
    command = draw(st.sampled_from(SIMPLE_HOSTILE).filter(lambda text: not set("<>") & set(text.split()[0])))
    name, blank, rest = command.partition(" ")
    gap = draw(st.sampled_from([" ", "  ", "\t", " \\\n "])) if blank else ""
    return command, spelled(draw, name) + gap + rest


@settings(max_examples=200, deadline=None)
@given(spellings())
def test_no_spelling_of_a_program_makes_it_harmless_or_hides_it_from_a_rule(pair: tuple[str, str]) -> None:
    plain, odd = pair
    analysis = analysis_of(odd)
    assert analysis.verdict != "read_only"
    named = {text for part in analysis.parts for text in part.rules.deny}
    assert analysis_of(plain).parts[-1].rules.deny[0] in named or analysis.problems


@settings(max_examples=200, deadline=None)
@given(st.lists(BEFORE, max_size=3), st.lists(AROUND, max_size=3))
# bash does not understand this one either, so that only a rough reading is left.
@example([], ["{} # the end", "cat <<EOF\n$({}\n)\nEOF", "cat <<EOF\n$({}\n)\nEOF"])
def test_a_denied_command_is_named_through_any_wrapping(wrappers: list[str], around: list[str]) -> None:
    command = "".join(wrappers) + "rm x"
    for shape in around:
        command = shape.replace("{}", command)
    assert any(text == "rm x" for part in analysis_of(command).parts for text in part.rules.deny), command


@settings(max_examples=60, deadline=None)
@given(
    st.integers(3, 8),
    st.sampled_from(["F", "./F", "sub/F"]),
    st.booleans(),
    st.sampled_from(["", "-u ", "-nr ", "--reverse "]),
)
def test_every_abbreviation_of_a_writing_option_writes(length: int, target: str, joined: bool, others: str) -> None:
    option = "--output"[:length]
    analysis = analysis_of(f"sort {others}{option}{'=' if joined else ' '}{target} x")
    assert analysis.verdict != "read_only"


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from("bdfgiMhnRrVmsuz"), max_size=5, unique=True), st.booleans())
def test_a_writing_flag_is_seen_in_any_bundle(flags: list[str], joined: bool) -> None:
    analysis = analysis_of(f"sort -{''.join(flags)}o{'' if joined else ' '}F x")
    assert analysis.verdict == "known"
    assert "it writes /project/here/F" in {part.why for part in analysis.parts}


SHELLISH = st.lists(
    st.one_of(
        st.sampled_from("abrmls -/.~*?[]{}()<>|&;!#$`'\"\\=\n\t@%^,:+0123"),
        st.sampled_from(
            [
                "rm",
                "ls",
                "$(",
                "${",
                "$((",
                "<<",
                "<(",
                "&&",
                "||",
                ";;",
                "if ",
                "then ",
                "fi",
                "do ",
                "done",
                "case ",
                "in ",
                "[[ ",
                " ]]",
            ]
        ),
    ),
    max_size=25,
).map("".join)


@settings(max_examples=400, deadline=None)
@given(st.one_of(SHELLISH, st.text(max_size=30)))
def test_any_text_gets_an_answer(text: str) -> None:
    analysis = analysis_of(text)
    if analysis.verdict == "read_only":
        assert analysis.parts and not analysis.problems and not analysis.catastrophic
        assert all(part.read_only and part.known for part in analysis.parts)
    assert all(part.rules.deny for part in analysis.parts if part.argv)
