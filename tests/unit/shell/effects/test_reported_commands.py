"""Every line of the list of adversarial shell inputs that users have reported, with its required outcome."""

from __future__ import annotations

import pytest
from tests.unit.shell.effects.rule_matching import HOME, ROOT, analysis_of, denied, reads, uncovered, writes

from wieldy.shell.effects.analysis import classify

NOT_READ_ONLY = r"""
sed -n '1e id' f
sed 's/a/b/e' f
sed 'w o' f
sed -i s/a/b/ f
sed -f s f
awk 'BEGIN{system("env")}'
awk '{print > "f"}'
awk '{print | "sh"}'
awk '{"id" | getline}'
sort -S 1b --compress-program sh
sort --compress-program=./p big
sort -o F
sort -oF
sort -uo F
sort -ro F
sort --o F
sort --out F
sort --output=F
sort --files0-from=F
uniq IN OUT
find . -exec sh -c 'rm x' \;
find . -execdir sh -c 'rm x' \;
find . -ok rm {} \;
find . -okdir rm {} \;
find . -delete
find . -fprint F
find . -fprint0 F
find . -fprintf F '%p'
find . -fls F
rg --pre ./p x
rg --hostname-bin ./p x
ag --pager ./p x
man -P sh ls
man -Psh ls
man -Hx ls
base64 -d -o F payload
xxd -r in out
env CMD
python3 -c 'print(1)'
node -e '1'
git -p status
git --paginate show HEAD
git -c core.pager=x log
git fetch --upload-pack=./p
git push --receive-pack=./p
git config core.hooksPath x
GIT_SSH_COMMAND=x git status
git config k v
git stash push
git gc
git bisect start
cat$IFS/etc/passwd
xargs CMD
git diff --output=F
echo ${x@P}
history -a F
""".strip().splitlines()


@pytest.mark.parametrize("command", NOT_READ_ONLY)
def test_programs_that_execute_or_write_are_not_called_read_only(command: str) -> None:
    assert analysis_of(command).verdict != "read_only"
    assert classify(command, cwd=ROOT, home=HOME) == "ask"


def test_the_position_of_p_decides_whether_git_starts_a_pager() -> None:
    assert analysis_of("git log -p").verdict == "read_only"
    assert analysis_of("git -p log").verdict == "unknown"


@pytest.mark.parametrize(
    "command",
    [
        "echo ok && touch c",
        "echo done & rm -rf d",
        "echo ok\nrm d",
        "echo ok; rm d",
        "echo ok | sh",
        'echo "$(rm -rf d)"',
        "echo `rm d`",
        "echo $'x' <(rm d)",
        'echo "a\\\\" ; rm b',
        "echo k >> ~/.ssh/authorized_keys",
        "echo x | tee /out/f",
        "echo aGk= | base64 -d | sh",
        "echo ok" + " " * 500 + "; rm d",
        "echo ok;\u200brm d",
        "echo \u200b",
        "echo a\rrm d",
    ],
)
def test_a_rule_for_echo_does_not_cover_the_rest(command: str) -> None:
    assert uncovered(command, "echo")


def test_a_redirection_is_a_write_whatever_rule_allows_the_program() -> None:
    assert writes("cargo check > ~/.zshrc") == {f"{HOME}/.zshrc"}
    assert writes("env > /out/f") == {"/out/f"}
    assert writes("printf x 2> /out/f") == {"/out/f"}
    assert uncovered("cargo check > ~/.zshrc", "cargo check")


def test_a_prefix_rule_ends_at_a_word() -> None:
    assert not uncovered("ls -la", "ls")
    assert uncovered("lsof", "ls")


@pytest.mark.parametrize("command", ["git diff --no-index -- a b", "git diff --"])
def test_a_double_dash_does_not_end_the_judging(command: str) -> None:
    assert [part.program for part in analysis_of(command).parts] == ["git"]


@pytest.mark.parametrize("command", ["", "   ", "# only a comment", "\n\n"])
def test_an_empty_parse_is_never_allowed(command: str) -> None:
    assert analysis_of(command).verdict == "unknown"
    assert analysis_of(command).problems


def test_a_foreign_letter_in_a_program_name_matches_nothing_and_is_named() -> None:
    analysis = analysis_of("g\u0456t push")
    assert uncovered("g\u0456t push", "git push", "git")
    assert any("cyrillic" in problem for problem in analysis.problems)


def test_a_carriage_return_does_not_separate_words() -> None:
    analysis = analysis_of("echo a\rrm d")
    assert [[word.text for word in part.argv] for part in analysis.parts] == [["echo", "a\rrm", "d"]]
    assert analysis.verdict == "unknown"


@pytest.mark.parametrize(
    "command",
    [
        "timeout 5 rm x",
        "nohup rm x",
        "nice rm x",
        "stdbuf -o0 rm x",
        "time rm x",
        "command rm x",
        r"\rm x",
        '"rm" x',
        "A=1 B=2 rm x",
        "{ rm x; }",
        "( rm x )",
        "if true; then rm x; fi",
        "for i in 1; do rm x; done",
        'sh -c "rm x"',
        'eval "rm x"',
        "env rm x",
        "F[$(rm x)]=v true",
        "/bin/rm x",
        "sudo --weird-option rm x",
        "cat <<EOF\n`rm x`\nEOF",
        "echo ${x:-`rm x`}",
        "coproc rm x",
        "ls @(a|b); rm x",
        "xargs -I{} sh -c 'rm {}'",
        'bash -c "rm $x"',
    ],
)
def test_a_rule_that_denies_rm_is_hit(command: str) -> None:
    assert denied(command, "rm")


def test_an_unknown_wrapper_is_asked_about() -> None:
    assert analysis_of("mywrap rm x").verdict == "unknown"


def test_a_denied_git_command_is_found_at_the_end_of_a_chain() -> None:
    assert denied("git fetch && git pull && git clean -fd", "git clean")


@pytest.mark.parametrize("count", [50, 500, 1200, 3000])
def test_no_number_of_commands_hides_a_denied_one(count: int) -> None:
    assert denied("true && " * count + "curl u", "curl")


@pytest.mark.parametrize(
    "command",
    [
        "cat secret",
        'export T="$(cat secret)"',
        "{ cat secret; }",
        "cat <(ls) secret",
        "grep -E 'A|B' secret",
        "cat -A secret",
        "cat < secret",
        "git show HEAD:secret",
        "cd sub/.. && cat secret",
        "cd sub; cat secret",
        "cat ./secret",
        'cat "$PWD/secret"',
        "for f in a secret; do cat $f; done",
        "cat {a,secret}",
        "echo $(<secret)",
        "while read -r x; do echo $x; done < secret",
        "git -C . show HEAD:secret",
        "cd sub && git show HEAD:secret",
        "git diff --no-index a secret",
    ],
)
def test_a_reader_of_a_denied_file_is_seen_to_read_it(command: str) -> None:
    assert f"{ROOT}/secret" in reads(command)


@pytest.mark.parametrize(
    "command",
    [
        r"find . -exec grep -l k {} \;",
        "grep -r k .",
        "cat *",
        "find . | xargs cat",
        "rg k",
        "diff -r . x",
        "git grep k",
        "git diff",
        "git diff HEAD~1",
        "git diff --cached --stat -p",
        "git show",
        "git show HEAD",
        "git show --word-diff HEAD",
        "git log -p",
        "git log -U3 -5",
        "git log -L1,5:f",
        "git log --oneline --cc",
        "git reflog -p",
        "git stash show -p",
        "git diff-tree -p HEAD",
        "git cat-file -p abc123",
        "git cat-file --batch",
        "git diff -- :/",
        "git range-diff a b c",
    ],
)
def test_a_reader_of_files_it_does_not_name_says_where_it_sweeps(command: str) -> None:
    assert ROOT in sweeps(command)


@pytest.mark.parametrize(
    "command",
    [
        "git status",
        "git log --oneline",
        "git log --stat -5",
        "git diff --name-only",
        "git diff --stat HEAD",
        "git diff-tree HEAD",
        "git show -s HEAD",
        "git show HEAD:f",
        "git cat-file -p HEAD:f",
        "git cat-file -t abc123",
        "git diff -- f",
        "git log -p -- f",
        "git stash list",
        "git branch",
    ],
)
def test_a_look_at_names_or_at_named_files_sweeps_nothing(command: str) -> None:
    assert analysis_of(command).verdict == "read_only"
    assert ROOT not in sweeps(command)


def test_a_folder_named_to_git_is_swept() -> None:
    assert sweeps("git diff -- sub") == {f"{ROOT}/sub"}


def sweeps(command: str) -> set[str]:
    return {folder for part in analysis_of(command).parts for folder in part.bulk_reads}


@pytest.mark.parametrize(
    "command",
    [
        "grep p f | head -20",
        "cd sub && git status",
        "cd d && git diff main...HEAD --name-only | head -30",
        r"git diff --stat | grep -E '\.(md|mdx)'",
        "ls -la d 2>/dev/null | head",
    ],
)
def test_a_compound_of_harmless_parts_never_prompts(command: str) -> None:
    assert analysis_of(command).verdict == "read_only"


def test_quotes_hide_operators_from_the_shell_and_from_us() -> None:
    command = """q "u?a=1&b=2" | jq '.[] | select(.f == "x") | .p'"""
    assert [part.program for part in analysis_of(command).parts] == ["q", "jq"]
    assert not uncovered(command, "q")


def test_a_substitution_is_covered_by_the_rule_that_covers_both_parts() -> None:
    assert not uncovered("git diff $(git merge-base master HEAD)", "git")


def test_lines_of_a_quoted_here_document_are_data() -> None:
    command = "git commit -m \"$(cat <<'EOF'\nfix: `rm x` $(rm y)\n\nrm z\nEOF\n)\""
    assert [part.program for part in analysis_of(command).parts] == ["cat", "git"]
    assert not denied(command, "rm")
    assert not [
        part
        for part in analysis_of(command).parts
        if part.program == "git" and not part.rules.allow[0].startswith("git commit")
    ]
