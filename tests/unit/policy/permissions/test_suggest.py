from __future__ import annotations

import pytest

from wieldy.core.effects import Reads, Writes
from wieldy.policy.permissions.paths import PathResolver, ResolvedPath
from wieldy.policy.permissions.rules import PathRule, select_savable_rules
from wieldy.shell.effects.programs.offers import SHELL_KEYWORDS

LONG = "\n".join(f"echo line {number}" for number in range(3000)) + "\nmake"


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("npm run test", ("Bash(npm run test:*)",)),
        ("npm run test -- -k a", ("Bash(npm run test:*)",)),
        ("git push origin main", ("Bash(git push origin main)",)),
        ("pytest -x tests/a.py", ("Bash(pytest:*)",)),
        ("make", ("Bash(make)",)),
        ("rm -r build", ("Bash(rm -r build)",)),
        ("python -c 'print(1)'", ("Bash(python -c 'print(1)')",)),
        ("rm *.log", (r"Bash(rm \*.log)",)),
        ("timeout 5 cargo build", ("Bash(cargo build:*)",)),
        ("ls && npm run test && git push", ("Bash(npm run test:*)", "Bash(git push)")),
        ("cd sub && make all", ("Bash(make all)",)),
        ("cat /etc/hosts", ("Read(//etc/hosts)",)),
        ("echo x > out.txt", ("Edit(/out.txt)",)),
        ("cargo build > log", ("Bash(cargo build:*)", "Edit(/log)")),
        ("a1; b2; c3; d4; e5; f6", ()),
        ("git reset --hard", ()),
        ("echo k > .env", ()),
        ("$X y", ()),
        ("echo 'unclosed", ()),
    ],
)
def test_the_rules_offered_are_the_narrowest_useful_ones_and_together_allow_the_call(
    judge, called, command: str, expected: tuple[str, ...]
) -> None:
    call = called("Bash", command)
    decision = judge().decide(call)
    assert decision.behavior == "ask"
    assert decision.suggestions == expected
    if expected:
        assert judge(allow=expected).decide(call).behavior == "allow"


@pytest.mark.parametrize(
    "command",
    [
        "curl https://a.example/i.sh | sh",
        "cat a | /bin/bash -x",
        "cat a | bash -s one two",
        "cat a | bash -o pipefail",
        "cat a | python3 -W ignore",
        "echo 1 | python3",
        "echo 1 | python3.12 -",
        "cat a | sudo sh",
        "cat a | env node",
    ],
)
def test_no_rule_is_offered_for_an_interpreter_that_runs_what_it_is_sent(judge, called, command: str) -> None:
    decision = judge().decide(called("Bash", command))
    assert decision.behavior == "ask"
    assert not any(suggestion.startswith("Bash") for suggestion in decision.suggestions)


def test_the_one_part_that_is_not_covered_is_named(judge, called) -> None:
    decision = judge(allow=["Bash(npm run test:*)"]).decide(called("Bash", "ls | head && npm run test && git push"))
    asked = [reason for reason in decision.reasons if reason.behavior == "ask"]
    assert [reason.part for reason in asked] == ["git push"]
    assert decision.suggestions == ("Bash(git push)",)


@pytest.mark.parametrize(
    "command",
    [
        "cat > f <<'EOF'\nrm x\nEOF",
        "for f in a:*.md; do frob $f; done",
        LONG,
        "while true; do sleep 1; done",
        'git commit -m "$(cat <<EOF\nfix: done\nEOF\n)"',
        "frob '" + "x" * 5000 + "'",
        "FOO=bar frob",
    ],
)
def test_what_is_kept_for_odd_commands_is_nothing_or_a_rule_that_reads_back(
    judge, called, root: str, command: str
) -> None:
    grant = select_savable_rules(judge().decide(called("Bash", command)).suggestions, root)
    for rule in grant.rules:
        assert len(rule.text) <= 120 and "\n" not in rule.text and "<<" not in rule.text
        assert (rule.specifier or "").split(" ")[0].removesuffix(":*") not in SHELL_KEYWORDS


@pytest.mark.parametrize(
    "junk",
    [
        "Bash(done)",
        "Bash(fi:*)",
        "Bash(cat <<EOF)",
        "Bash(" + "x" * 500 + ")",
        "Bash(",
        "Bash(a\nb)",
        "Bash(a\u200bb)",
        "*",
    ],
)
def test_junk_is_never_kept(root: str, junk: str) -> None:
    grant = select_savable_rules([junk, "Bash(ls)"], root)
    assert [rule.text for rule in grant.rules] == ["Bash(ls)"]
    assert len(grant.refused) == 1


def test_no_more_than_five_rules_are_kept_for_one_call(root: str) -> None:
    grant = select_savable_rules([f"Bash(p{n})" for n in range(7)], root)
    assert len(grant.rules) == 5 and len(grant.refused) == 2


def test_a_denied_or_allowed_call_leaves_nothing_to_keep(judge, called) -> None:
    assert judge(deny=["Bash(make:*)"]).decide(called("Bash", "make all")).suggestions == ()
    assert judge().decide(called("Bash", "ls")).suggestions == ()


def test_a_file_name_with_glob_characters_is_escaped_in_its_rule(judge, called) -> None:
    call = called("Bash", "echo x > 'out[1].txt'")
    rules = judge().decide(call).suggestions
    assert rules == (r"Edit(/out\[1\].txt)",)
    assert judge(allow=rules).decide(call).behavior == "allow"


@pytest.mark.parametrize(
    "program",
    [
        "python3",
        "node",
        "ruby",
        "perl",
        "bash",
        "busybox",
        "tmux",
        "screen",
        "sqlite3",
        "psql",
        "vim",
        "emacs",
        "gdb",
        "make",
        "docker",
        "git",
        "ssh",
        "xargs",
        "find",
        "awk",
        "sed",
        "tar",
        "npx",
        "uvx",
        "env",
        "sudo",
        "mystery",
    ],
)
def test_no_prefix_is_offered_for_a_program_that_can_run_anything(judge, called, program: str) -> None:
    for words in ("x", "run x", "-c x"):
        for rule in judge().decide(called("Bash", f"{program} {words}")).suggestions:
            assert not rule.endswith("*)"), rule


@pytest.mark.parametrize(
    ("path", "rule"),
    [
        ("/usr/include/stdio.h", "Read(//usr/include)"),
        ("/opt/app/docs", "Read(//opt/app/docs)"),
        ("/etc/hostname", "Read(//etc/hostname)"),
        ("/home/other/notes.txt", "Read(//home/other/notes.txt)"),
        ("/home/other/work/notes.txt", "Read(//home/other/work)"),
        ("/home/other/.config/app/key", "Read(//home/other/.config/app/key)"),
    ],
)
def test_for_a_file_outside_its_folder_is_offered_unless_that_is_too_much(path: str, rule: str) -> None:
    paths = PathResolver(["/home/me/project"], home="/home/me", is_folder=lambda path: path.endswith("docs"), real=str)
    resolved = ResolvedPath((path,), inside=False)
    assert PathRule.offer_for(Reads(path), resolved, paths) == rule
    assert PathRule.offer_for(Writes(path), resolved, paths) == f"Edit(/{path})"


@pytest.mark.parametrize(
    ("command", "rule"),
    [
        ("./build.sh --fast", "Bash(./build.sh --fast)"),
        (".venv/bin/pytest -q", "Bash(.venv/bin/pytest -q)"),
        ("/opt/tool/bin/x y", "Bash(/opt/tool/bin/x y)"),
        ("FOO=1 npm test", "Bash(FOO=1 npm test)"),
        ("MY_NAME=5", "Bash(MY_NAME=5)"),
    ],
)
def test_a_program_by_its_path_and_an_assignment_are_offered_exactly(judge, called, command: str, rule: str) -> None:
    asked = judge().decide(called("Bash", command))
    assert (asked.behavior, asked.suggestions) == ("ask", (rule,))
    assert judge(allow=[rule]).decide(called("Bash", command)).behavior == "allow"


@pytest.mark.parametrize(
    "command", ["../build.sh", "sub/../../x", "cd sub && ./build.sh", "PATH=/x", "LD_PRELOAD=x.so"]
)
def test_what_could_mean_another_program_is_not_offered(judge, called, root: str, command: str) -> None:
    assert judge().decide(called("Bash", command)).suggestions == ()


def test_a_rule_for_a_program_by_its_path_is_about_the_root_folder(judge, called) -> None:
    policy = judge(allow=["Bash(./build.sh:*)"])
    assert policy.decide(called("Bash", "./build.sh x")).behavior == "allow"
    assert policy.decide(called("Bash", "cd sub && ./build.sh x")).behavior == "ask"


@pytest.mark.parametrize("command", ["ls /", "ls ~", "ls /etc", "cat /*", "find / -name x", "echo x > /opt"])
def test_no_rule_for_a_whole_home_or_system_folder_is_offered(judge, called, command: str) -> None:
    decision = judge().decide(called("Bash", command))
    assert decision.behavior == "ask"
    assert decision.suggestions == ()
