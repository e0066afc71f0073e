from __future__ import annotations

import pytest
from tests.unit.shell.effects.rule_matching import HOME, ROOT, analysis_of, denied, reads, uncovered, writes

from wieldy.core.effects import Fetches, Runs, Writes
from wieldy.shell.effects.command_part import CommandPart


def one(command: str) -> CommandPart:
    (part,) = analysis_of(command).parts
    return part


def test_every_layer_of_wrappers_can_be_denied_and_transparent_ones_need_no_rule() -> None:
    part = one("timeout 5 sudo rm x")
    assert part.rules.deny == ("timeout 5 sudo rm x", "sudo rm x", "rm x")
    assert part.rules.allow == ("timeout 5 sudo rm x", "sudo rm x")
    assert (part.program, part.wrappers) == ("rm", ("timeout", "sudo"))


@pytest.mark.parametrize(
    ("command", "text"),
    [
        ("npm run test", "npm run test"),
        ("timeout 5 npm test", "npm test"),
        ("time npm test", "npm test"),
        ("nice -n 5 nohup stdbuf -oL npm test", "npm test"),
        ("command npm test", "npm test"),
        ("xargs npm test", "npm test"),
        ("xargs -n1 npm test", "xargs -n1 npm test"),
        ("env A=1 npm test", "env A=1 npm test"),
        ("CI=1 NO_COLOR=1 npm test", "npm test"),
        ("NODE_OPTIONS=x npm test", "NODE_OPTIONS=x npm test"),
        ("setsid npm test", "setsid npm test"),
        ("\"npm\" 'test'", "npm test"),
        (r"n\pm test", "npm test"),
        ("npm   run    test", "npm run test"),
        ('git commit -m "fix it"', 'git commit -m "fix it"'),
        ("npm test > log 2>&1", "npm test"),
        ("bash -c 'npm test'", "npm test"),
        ("eval npm test", "npm test"),
        ("rm -rf ~/x", "rm -rf ~/x"),
        ("npx rm", "npx rm"),
        ("docker exec c rm", "docker exec c rm"),
    ],
)
def test_the_text_of_a_rule_is_normalized(command: str, text: str) -> None:
    assert one(command).rules.allow[-1] == text


@pytest.mark.parametrize("command", ["watch ls", "setsid ls", "ionice -c 3 ls", "flock f ls"])
def test_exec_wrappers_need_an_exact_rule(command: str) -> None:
    assert all(part.rules.exact for part in analysis_of(command).parts)


def test_find_that_executes_or_deletes_needs_an_exact_rule_for_the_whole() -> None:
    for part in analysis_of(r"find . -name x -exec rm {} \;").parts:
        assert part.rules.exact
        assert part.rules.allow == (r"find . -name x -exec rm {} \;",)
    assert one("find . -name x -delete").rules.exact
    assert not one("find . -name x").rules.exact


def test_a_shell_inside_a_wrapper_that_is_not_transparent_is_covered_by_the_outer_rule_only() -> None:
    part = one("sudo bash -c ls")
    assert part.rules.allow == ("sudo bash -c ls",)
    assert not part.read_only


def test_the_parts_of_nested_shells_are_judged_one_by_one() -> None:
    analysis = analysis_of("bash -c 'ls; bash -c \"rm x | cat\"'")
    assert [part.program for part in analysis.parts] == ["ls", "rm", "cat"]
    assert analysis.parts[1].rules.deny[-1] == "rm x"


@pytest.mark.parametrize(
    ("command", "programs"),
    [
        ("a && b || c; d & e | f |& g", "a b c d e f g"),
        ("(a; { b; })", "a b"),
        ('echo "$(a "$(b)")"', "b a echo"),
        ("echo `a`", "a echo"),
        ("cat <(a) >(b)", "a b cat"),
        ("cat <<EOF\n$(a) `b` ${x:-$(c)}\nEOF", "a b c cat"),
        ("cat <<'EOF'\n$(a)\nEOF", "cat"),
        ("cat <<< $(a)", "a cat"),
        ("x=$(a) y=`b` c", "a b c"),
        ("F[$(a)]=1 b", "a b"),
        ("x=($(a) b)", "a"),
        ("if a; then b; elif c; then d; else e; fi", "a b c d e"),
        ("while a; do b; done", "a b"),
        ("for x in $(a); do b; done", "a b"),
        ("case $(a) in $(b)) c;; *) d;; esac", "a b c d"),
        ("[[ -f $(a) ]]", "a"),
        ("echo $((1 + $(a)))", "a echo"),
        ("f() { a; }; f", "a f"),
        ("coproc a", "a"),
        ("time a", "a"),
        ("! a", "a"),
        ("a > $(b)", "b a"),
        ("{ a; } > $(b)", "a b"),
        ("echo ${x/$(a)/$(b)} ${y:=`c`}", "a b c echo"),
        ("a | while read -r x; do b; done", "a read b"),
        ("select x in a; do b; done", "b"),
    ],
)
def test_every_simple_command_is_one_part(command: str, programs: str) -> None:
    assert [part.program for part in analysis_of(command).parts if part.program] == programs.split()


def test_a_change_of_folder_holds_for_what_follows() -> None:
    assert reads("cd sub && cat f") == {f"{ROOT}/sub/f"}
    assert reads("cd sub; cat f") == {f"{ROOT}/sub/f", f"{ROOT}/f"}
    assert reads("cd sub || exit 1; cat f") == {f"{ROOT}/sub/f"}
    assert reads("cd sub || exit; cat f") == {f"{ROOT}/sub/f"}
    assert reads("(cd sub && cat f); cat g") == {f"{ROOT}/sub/f", f"{ROOT}/g"}
    assert reads("cd sub | cat f") == {f"{ROOT}/f"}
    assert reads("cd && cat f") == {f"{HOME}/f"}
    assert reads("cd /a && cd b && cat f") == {"/a/b/f"}
    assert reads("bash -c 'cd sub && cat f'; cat g") == {f"{ROOT}/sub/f", f"{ROOT}/g"}
    assert f"{ROOT}/sub/f" in reads("eval 'cd sub' && cat f")


@pytest.mark.parametrize(
    "command",
    [
        'cd "$x" && cat f',
        "pushd d; cat f",
        "while true; do cd ..; cat f; done",
        "f() { cd x; }; f; cat f",
        ". ./e; cat f",
        "$x; cat f",
    ],
)
def test_a_folder_that_cannot_be_told_makes_relative_paths_unknown(command: str) -> None:
    assert analysis_of(command).verdict == "unknown"
    assert not any(part.known for part in analysis_of(command).parts if part.program == "cat")


def test_loops_over_known_words_are_followed_value_by_value() -> None:
    assert reads('for f in a "b c"; do cat "$f"; done') == {f"{ROOT}/a", f"{ROOT}/b c"}
    assert reads("for d in x y; do cat $d/f; done") == {f"{ROOT}/x/f", f"{ROOT}/y/f"}
    assert analysis_of("for f in a b; do f=/etc/shadow; cat $f; done").verdict == "unknown"
    assert analysis_of("for f in a b; do read f; cat $f; done").verdict == "unknown"


@pytest.mark.parametrize(
    ("command", "paths"),
    [
        ("rm -rf a b", {"a", "b"}),
        ("mv a b", {"a", "b"}),
        ("cp a b", {"b"}),
        ("cp -t d a b", {"d"}),
        ("mkdir -p a/b", {"a/b"}),
        ("touch f", {"f"}),
        ("ln -s a b", {"b"}),
        ("chmod +x f", {"f"}),
        ("chmod -x f", {"f"}),
        ("chown me f g", {"f", "g"}),
        ("tee -a f < g", {"f"}),
        ("truncate -s 0 f", {"f"}),
        ("dd if=a of=b", {"b"}),
        ("sed -i s/a/b/ f g", {"f", "g"}),
        ("sort -o f g", {"f"}),
        ("find d -name x -delete", {"d"}),
        ("curl -o f http://x", {"f"}),
        ("echo x > f", {"f"}),
        ("echo x &>> f", {"f"}),
        ("{ ls; } > f", {"f"}),
        ("gzip f", {"f", "f.gz"}),
        ("gunzip .envrc.gz", {".envrc", ".envrc.gz", ".envrc.gz.gz"}),
        ("curl -O 'https://x.example/a/.envrc?v=1'", {".", ".envrc"}),
        ("wget https://x.example/.npmrc", {".", ".npmrc"}),
        ("git add x", {"."}),
    ],
)
def test_writers_say_what_they_write(command: str, paths: set[str]) -> None:
    assert writes(command) == {f"{ROOT}/{path}".removesuffix("/.") for path in paths}
    assert analysis_of(command).verdict == "known"


def test_fetchers_say_where_they_go() -> None:
    assert Fetches("https://example.com/x") in analysis_of("curl -sSL https://example.com/x").effects
    assert Fetches("tcp://h:80") in analysis_of("cat < /dev/tcp/h/80").effects
    assert analysis_of("cat < /dev/tcp/h/80").verdict == "unknown"


@pytest.mark.parametrize("target", ["/dev/null", "/dev/stderr", "&1", "/dev/fd/3"])
def test_streams_are_not_files(target: str) -> None:
    assert writes(f"ls >{target}") == set()


def test_a_part_is_contained_only_when_everything_it_touches_is_known() -> None:
    assert Runs("cat f", contained=True) in analysis_of("cat f").effects
    assert Runs("unknown f", contained=False) in analysis_of("unknown f").effects


def test_what_redirections_do_is_told_apart_from_what_the_program_does() -> None:
    part = one("sort -o a b > c")
    assert part.redirects.effects == (Writes(f"{ROOT}/c"),) and not part.program_read_only
    part = one("cat a > b")
    assert part.redirects.effects == (Writes(f"{ROOT}/b"),) and part.program_read_only and not part.read_only
    assert one("cat a").program_read_only and not one("cat a").redirects.effects
    assert not one("sudo cat a > b").program_read_only


def test_assignments_alone_are_parts_with_nothing_to_run() -> None:
    assert one("x=1").read_only and one("x=1").program is None
    assert not one("PATH=/tmp").known


def test_with_a_function_nothing_is_proven_and_its_body_is_seen() -> None:
    assert analysis_of("ls() { rm x; }; ls").problems == ("it defines the function `ls`, which can replace a program",)
    assert denied("ls() { rm x; }; ls", "rm")
    assert analysis_of("unknown() { ls; }; unknown").verdict == "unknown"


def test_a_function_called_cd_does_not_move() -> None:
    assert f"{ROOT}/f" in reads("cd() { :; }; cd /elsewhere && cat f")
    assert f"{ROOT}/f" in reads("cd() { :; }; 'cd' /elsewhere && cat f")


@pytest.mark.parametrize("word", ["return", "break", "continue", "true"])
def test_only_exit_is_sure_to_end_the_script(word: str) -> None:
    assert reads(f"cd sub || {word}; cat f") == {f"{ROOT}/sub/f", f"{ROOT}/f"}
    assert f"{ROOT}/f" in reads("exit() { :; }; cd sub || exit; cat f")


def test_a_wrapped_change_of_folder_may_fail_like_any_other() -> None:
    assert reads("command cd sub; cat f") == {f"{ROOT}/sub/f", f"{ROOT}/f"}


@pytest.mark.parametrize(
    "command",
    ["bash <<EOF\nrm x\nEOF", "sh <<'EOF'\nrm x\nEOF", "bash <<< 'rm x'", "sudo sh <<E\nrm x\nE", "zsh <<< 'rm x'"],
)
def test_text_fed_to_a_shell_is_code(command: str) -> None:
    assert denied(command, "rm")
    assert analysis_of(command).verdict != "read_only"


def test_the_uncovered_part_is_the_only_one_named() -> None:
    assert [part.text for part in uncovered("ls && npm test && npm run build", "npm test")] == ["npm run build"]


@pytest.mark.parametrize("shape", ["true && {}", "true | {}", "true; {}", "! {}", "(true; {})", "{{ true; {}; }}"])
def test_long_and_deep_commands_are_answered(shape: str) -> None:
    command = "ls"
    while len(command) < 9_000:
        command = shape.format(command)
    assert analysis_of(command).verdict in ("read_only", "unknown")
    assert analysis_of("true && " * 1200 + "ls").verdict == "read_only"
    assert analysis_of("if true; then " * 300 + "ls" + "; fi" * 300).verdict == "unknown"


def test_loops_and_functions_that_multiply_are_not_followed_for_ever() -> None:
    loops = "".join(f"for v{i} in a b c d e f; do " for i in range(20)) + "ls $v1;" + " done;" * 20
    functions = "".join(f"f{i}() {{ f{i - 1}; f{i - 1}; }};" for i in range(1, 100)) + "f99"
    for command in (loops, functions, "echo " + "$((" * 1000 + "1" + "))" * 1000):
        assert analysis_of(command).verdict == "unknown"
    for command in ("echo " + "{a,b}" * 500, "echo " + "{" * 5000, "echo " + "[" * 5000):
        assert [part.program for part in analysis_of(command).parts] == ["echo"]


def test_a_python_that_is_named_by_its_path_is_the_one_whose_version_the_launcher_looks_at() -> None:
    analysis = analysis_of("/usr/bin/python3 -m json.tool a; python3 -m json.tool a")
    assert analysis.verdict == "read_only"
    assert analysis.neutral_pythons == ("/usr/bin/python3", "python3")
