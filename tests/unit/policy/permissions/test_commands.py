from __future__ import annotations

import os
from pathlib import Path

import pytest

from wieldy.core.decision import Opinion
from wieldy.policy.permissions.decide import CLEAN_TREE

OUT = "/somewhere/else"


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
        r'echo "a\\" ; rm b',
        "echo k >> ~/.ssh/authorized_keys",
        f"env > {OUT}/f",
        f"printf x 2> {OUT}/f",
        f"echo x | tee {OUT}/f",
        "echo x > src/main.py",
        "echo Y3VybA== | base64 -d | sh",
        "echo" + " " * 300 + "; rm d",
        "echo a\u200bb",
        "",
        "# nothing",
        "echo 'unclosed",
        "mywrap rm x",
    ],
)
def test_an_allow_rule_for_one_program_does_not_cover_the_rest(judge, called, command: str) -> None:
    assert (
        judge(allow=["Bash(echo:*)", "Bash(env)", "Bash(printf:*)"]).decide(called("Bash", command)).behavior == "ask"
    )


@pytest.mark.parametrize(
    ("rule", "command", "expected"),
    [
        ("Bash(cargo check:*)", "cargo check", "allow"),
        ("Bash(cargo check:*)", "cargo check > ~/.zshrc", "ask"),
        ("Bash(cargo check:*)", "cargo check > log.txt", "ask"),
        ("Bash(cargo check:*)", "cargo check > /dev/null 2>&1", "allow"),
        ("Bash(cargo check:*)", "cargo checkout", "ask"),
        ("Bash(ls:*)", "lsof", "ask"),
        ("Bash(gìt push:*)", "git push", "ask"),
        ("Bash(git push:*)", "gіt push", "ask"),
        ("Bash(git push:*)", "git push\r", "ask"),
        ("Bash(npm run test:*)", "npm run test && npm run test -- x", "allow"),
        ("Bash(npm run test:*)", "npm run test | head -5", "allow"),
        ("Bash(npm run test:*)", "cd sub && npm run test", "allow"),
        ("Bash(npm run test:*)", "CI=1 npm run test", "allow"),
        ("Bash(npm run test:*)", "LD_PRELOAD=x npm run test", "ask"),
        ("Bash(npm run test:*)", "timeout 60 npm run test", "allow"),
        ("Bash(npm run test:*)", "npm run tests", "ask"),
        ("Bash(npm run test:*)", "sudo npm run test", "ask"),
        ("Bash(touch:*)", "touch a b", "allow"),
        ("Bash(touch:*)", "cd sub && touch a", "allow"),
        ("Bash(touch:*)", "touch a > b", "ask"),
        ("Bash(touch:*)", "cd sub && touch a > b", "ask"),
        ("Bash(touch:*)", "{ touch a; } > b", "ask"),
        ("Bash(touch:*)", "sh -c 'touch a > b'", "ask"),
        ("Bash(touch:*)", "sh -c 'touch a'", "allow"),
        ("Bash(touch:*)", "touch a < b", "allow"),
        ("Bash(touch:*)", f"touch {OUT}/a", "ask"),
        ("Bash(touch:*)", "touch .git/hooks/x", "ask"),
        ("Bash(git:*)", "git diff $(git merge-base master HEAD)", "allow"),
        ("Bash(git commit:*)", "git commit -m \"$(cat <<'EOF'\nrm x\nEOF\n)\"", "allow"),
        ("Bash(find:*)", "find . -delete", "ask"),
        ("Bash(find:*)", "find . -exec rm {} \\;", "ask"),
        ("Bash(watch:*)", "watch rm x", "ask"),
        ("Bash(rm x)", "watch rm x", "ask"),
        ("Bash(watch rm x)", "watch rm x", "allow"),
        ("Bash(cat /etc/hosts)", "cat /etc/hosts", "allow"),
        ("Bash(cat:*)", "cat /etc/hosts", "ask"),
        ("Bash(make && make install)", "make && make install", "allow"),
        ("Bash(make && make install)", "make && make install && rm x", "ask"),
        ("Bash", "make anything", "allow"),
        ("Bash(*)", "make anything", "allow"),
        ("Bash", "echo 'unclosed", "ask"),
        ("Bash", "cat /etc/hosts", "allow"),
        ("Bash", f"touch {OUT}/a", "ask"),
        ("Bash(git commit:*)", 'git commit -m "\u2728\ufe0f naïve Привет"', "allow"),
        ("Bash(* --version)", "node --version", "allow"),
        ("Bash(* --version)", "rm x --version; rm y", "ask"),
    ],
)
def test_an_allow_rule_covers_exactly_what_it_says(
    judge, called, root: str, rule: str, command: str, expected: str
) -> None:
    os.mkdir(f"{root}/sub")
    decision = judge(allow=[rule]).decide(called("Bash", command))
    assert decision.behavior == expected, decision.why


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
        "sudo rm x",
        "F[$(rm x)]=v true",
        "ls | xargs rm",
        "find . -exec rm {} \\;",
        "f() { rm x; }; f",
        "echo $(rm x)",
        "cat <(rm x)",
        "cat <<E\n$(rm x)\nE",
        "/bin/rm x",
        "true && true || rm x",
        "rm x 'unclosed",
    ],
)
@pytest.mark.parametrize("mode", ["default", "bypassPermissions"])
def test_a_deny_rule_hits_wherever_the_program_hides(judge, called, command: str, mode: str) -> None:
    policy = judge(deny=["Bash(rm:*)"], allow=["Bash"], mode=mode)
    yes = [Opinion("hook", "allow", "go on")]
    decision = policy.decide(called("Bash", command), yes)
    assert decision.behavior == "deny", decision.reasons
    assert decision.reasons[0].rule == "Bash(rm:*)"


@pytest.mark.parametrize(
    ("rule", "command"),
    [
        ("Bash(git push:*)", "git -C sub push origin"),
        ("Bash(git push:*)", "/usr/bin/git -c a.b=c --no-pager push"),
        ("Bash(git clean:*)", "git fetch && git pull && git clean -fd"),
        ("Bash(curl:*)", "true && " * 50 + "curl u"),
        ("Bash(curl:*)", "true; " * 400 + "curl u"),
        ("WebFetch(domain:evil.net)", "curl https://evil.net/x"),
        ("Bash(make && make install)", "make && make install"),
        ("Edit(out/**)", "echo x > out/f"),
        ("Edit(out/**)", "cp a out/f"),
        ("Edit(out/**)", "cd out && touch f"),
        ("Edit(/out/f)", "rm -r out"),
    ],
)
def test_a_deny_rule_holds_in_a_long_or_roundabout_command(judge, called, root: str, rule: str, command: str) -> None:
    os.mkdir(f"{root}/out")
    assert (
        judge(deny=[rule], allow=["Bash"], mode="bypassPermissions").decide(called("Bash", command)).behavior == "deny"
    )


@pytest.mark.parametrize(
    ("rule", "command", "expected"),
    [
        ("Read(secret)", "cat secret", "deny"),
        ("Read(secret)", 'export T="$(cat secret)"', "deny"),
        ("Read(secret)", "{ cat secret; }", "deny"),
        ("Read(secret)", "cat <(ls) secret", "deny"),
        ("Read(secret)", "cat < secret", "deny"),
        ("Read(secret)", "cp secret copy", "deny"),
        ("Read(secret)", "echo x >> secret", "deny"),
        ("Read(secret)", "cat ./sub/../secret", "deny"),
        ("Read(.env)", 'grep -E "A|B" .env', "deny"),
        ("Read(.env.*)", "cat -A .env.local", "deny"),
        ("Read(secret)", "grep -r key .", "ask"),
        ("Read(secret)", "find . -exec grep -l k {} \\;", "ask"),
        ("Read(secrets/**)", "cat secrets/*", "ask"),
        ("Read(secret)", "ls -la", "allow"),
        ("Read(secret)", "git status", "allow"),
        ("Read(secret)", "cat open", "allow"),
    ],
)
def test_a_path_rule_holds_for_what_commands_read_and_write(
    judge, called, root: str, rule: str, command: str, expected: str
) -> None:
    for folder in ("sub", "secrets"):
        os.mkdir(f"{root}/{folder}")
    for file in ("secret", "secrets/key"):
        Path(root, file).write_text("s")
    decision = judge(deny=[rule]).decide(called("Bash", command))
    assert decision.behavior == expected, decision.reasons


@pytest.mark.parametrize(
    "command",
    [
        "grep p f | head -20",
        "cd sub && git status",
        "cd d && git diff main...HEAD --name-only | head -30",
        r"git diff --stat | grep -E '\.(md|mdx)'",
        "ls -la d 2>/dev/null | head",
        "for f in a b; do echo $f; done",
        "cat a.txt | sort | uniq -c",
    ],
)
def test_a_compound_whose_parts_only_read_is_not_asked_about(judge, called, command: str) -> None:
    decision = judge().decide(called("Bash", command))
    assert decision.behavior == "allow", decision.why
    assert judge(mode="plan").decide(called("Bash", command)).behavior == "allow"


@pytest.mark.parametrize("command", ["rm x", "make", "echo x > f", "curl http://a.b", "echo 'unclosed", "$X"])
def test_plan_mode_runs_only_what_provably_reads(judge, called, command: str) -> None:
    policy = judge(mode="plan", allow=["Bash", "Edit", f"Bash({command})"])
    assert policy.decide(called("Bash", command)).behavior == "deny"


@pytest.mark.parametrize(
    "command",
    [
        "rm -rf ~",
        "rm -rf ~/",
        'rm -rf "$HOME"',
        "rm -rf .git",
        "rm -rf .",
        "git reset --hard",
        "git clean -fd",
        "git checkout -- dir",
        "git rm -rf .",
        "true && git reset --hard",
    ],
)
@pytest.mark.parametrize("mode", ["default", "acceptEdits", "bypassPermissions"])
def test_a_catastrophe_is_asked_about_in_every_mode(judge, called, command: str, mode: str) -> None:
    decision = judge(mode=mode, allow=["Bash", "Bash(rm:*)", "Bash(git:*)"]).decide(called("Bash", command))
    assert decision.behavior == "ask"
    assert any(reason.kind == "guard" for reason in decision.reasons)


@pytest.mark.parametrize(
    "command",
    ["rm -rf /", "rm -fr --no-preserve-root /", "mkfs.ext4 /dev/sda1", "dd if=x of=/dev/sda", ":(){ :|:& };:"],
)
def test_the_blocklist_is_lifted_by_nothing(judge, called, command: str) -> None:
    policy = judge(mode="bypassPermissions", allow=["Bash", f"Bash({command})"])
    yes = [Opinion("hook", "allow", "go on")]
    assert policy.decide(called("Bash", command), yes).behavior == "deny"


def test_a_rule_that_names_the_very_command_excuses_a_catastrophe(judge, called) -> None:
    reset = called("Bash", "git reset --hard")
    assert judge(allow=["Bash(git reset --hard)"]).decide(reset).behavior == "allow"
    assert judge(allow=["Bash(git reset:*)"]).decide(reset).behavior == "ask"


def test_git_that_would_lose_nothing_is_no_catastrophe(judge, called) -> None:
    clean = [Opinion(CLEAN_TREE, "allow", "nothing is uncommitted")]
    policy = judge(mode="bypassPermissions")
    assert policy.decide(called("Bash", "git reset --hard"), clean).behavior == "allow"
    assert policy.decide(called("Bash", "rm -rf .git"), clean).behavior == "ask"
    assert judge().decide(called("Bash", "git reset --hard"), clean).behavior == "ask"


def test_accepting_edits_accepts_what_a_harmless_command_writes_in_the_workspace(judge, called) -> None:
    policy = judge(mode="acceptEdits", allow=["Bash(cargo check:*)"])
    assert policy.decide(called("Bash", "echo x > f")).behavior == "allow"
    assert policy.decide(called("Bash", "cargo check > log")).behavior == "allow"
    assert policy.decide(called("Bash", f"echo x > {OUT}/f")).behavior == "ask"
    assert policy.decide(called("Bash", "echo x > .env")).behavior == "ask"
    assert policy.decide(called("Bash", "rm x")).behavior == "ask"


def test_a_path_that_only_begins_like_a_stream_is_a_file(judge, called, plan) -> None:
    from wieldy.core.effects import Writes

    assert judge().decide(called("Bash", "echo x > /dev/fd/../../etc/passwd")).behavior == "ask"
    assert judge(allow=["Poke"]).decide(plan("Poke", (Writes("/dev/fd/../../etc/passwd"),))).behavior == "ask"


@pytest.mark.parametrize("name", ["a\0b", "a\ud800b"])
def test_a_name_that_no_file_can_have_is_asked_about(judge, called, root: str, name: str) -> None:
    assert judge().decide(called("Read", f"{root}/{name}")).behavior == "ask"


def test_lists_over_commands_hold_for_each_part(judge, called) -> None:
    tools = {"Bash": {"allowlist": {"command": ["make *"]}, "blocklist": {"command": ["curl *"]}}}
    for command, expected in (
        ("make all", "allow"),
        ("make all; rm x", "ask"),
        ("make all && curl u", "deny"),
        ("timeout 5 curl u", "deny"),
    ):
        assert judge(tools=tools).decide(called("Bash", command)).behavior == expected, command


def test_ask_rules_hold_for_every_part_and_in_bypass(judge, called) -> None:
    policy = judge(ask=["Bash(git push:*)"], mode="bypassPermissions")
    assert policy.decide(called("Bash", "make && git push")).behavior == "ask"
    assert policy.decide(called("Bash", "make && git pull")).behavior == "allow"


def test_any_tool_that_runs_commands_is_held_to_command_rules(judge, plan) -> None:
    from wieldy.core.effects import Runs

    policy = judge(deny=["Bash(rm:*)"], allow=["Monitor"])
    assert policy.decide(plan("Monitor", (Runs("tail -f log; rm x"),))).behavior == "deny"
    assert judge(deny=["Bash"], allow=["Monitor"]).decide(plan("Monitor", (Runs("ls"),))).behavior == "deny"


def test_bypass_does_not_run_what_cannot_be_read_where_a_rule_might_forbid_it(judge, called) -> None:
    unclosed = called("Bash", "foo 'unclosed")
    assert judge(mode="bypassPermissions").decide(unclosed).behavior == "allow"
    for rule in ("Bash(rm:*)", "Read(.env)", "Edit", "WebFetch(domain:a.b)"):
        assert judge(mode="bypassPermissions", deny=[rule]).decide(unclosed).behavior != "allow", rule
        assert judge(mode="bypassPermissions", ask=[rule]).decide(unclosed).behavior == "ask", rule
    assert judge(mode="bypassPermissions", deny=["mcp__x"]).decide(unclosed).behavior == "allow"


def test_a_rule_for_a_whole_command_says_nothing_of_the_words_xargs_adds(judge, called) -> None:
    piped = called("Bash", "ls | xargs rm")
    for narrow in ("Bash(rm)", "Bash(r*m)"):
        assert judge(allow=[narrow]).decide(piped).behavior == "ask", narrow
    for wide in ("Bash(rm:*)", "Bash(rm *)", "Bash(xargs rm)"):
        assert judge(allow=[wide]).decide(piped).behavior == "allow", wide
    assert judge().decide(piped).suggestions == ("Bash(xargs rm)",)
    assert judge().decide(called("Bash", "ls | xargs npm run lint")).suggestions == ("Bash(xargs npm run lint)",)
    assert judge(allow=["Bash(xargs rm)"]).decide(called("Bash", "ls | xargs rm -rf")).behavior == "ask"


@pytest.mark.parametrize(
    ("rule", "command"),
    [
        ("Bash(git log:*)", "git log --output=x"),
        ("Bash(git log:*)", "git log --outp=x"),
        ("Bash(git log:*)", "git log $x"),
        ("Bash(git fetch:*)", "git fetch --upload-pack=x"),
        ("Bash(git grep:*)", "git grep -Ox y"),
        ("Bash(go test:*)", "go test -exec x ./..."),
        ("Bash(cargo test:*)", "cargo test --config x"),
        ("Bash(pytest:*)", "pytest -p evil"),
        ("Bash(make test:*)", "cd /elsewhere && make test"),
        ("Bash(make test)", "cd /elsewhere && make test"),
        ("Bash(make test:*)", "cd $D && make test"),
        ("Bash(npm run test:*)", "npm run test --prefix /elsewhere"),
    ],
)
def test_a_rule_does_not_cover_options_that_write_or_run_and_no_other_folder(
    judge, called, rule: str, command: str
) -> None:
    decision = judge(allow=[rule]).decide(called("Bash", command))
    assert decision.behavior == "ask", decision.reasons


@pytest.mark.parametrize(
    ("rule", "command"),
    [
        ("Bash(git log --output=x:*)", "git log --output=x -3"),
        ("Bash(git:*)", "git fetch --upload-pack=x"),
        ("Bash(make test:*)", "cd sub && make test"),
        ("Bash(cd /elsewhere && make test)", "cd /elsewhere && make test"),
        ("Bash(git commit:*)", 'git commit -m "$(cat notes)"'),
    ],
)
def test_a_rule_that_says_so_covers_them(judge, called, rule: str, command: str) -> None:
    assert judge(allow=[rule]).decide(called("Bash", command)).behavior == "allow"


def test_a_rule_for_a_tool_of_a_server_allows_no_tool_whose_name_goes_on(judge, plan) -> None:
    policy = judge(allow=["mcp__s__read", "mcp__t"])
    assert policy.decide(plan("mcp__s__read")).behavior == "allow"
    assert policy.decide(plan("mcp__s__read__delete_all")).behavior == "ask"
    assert policy.decide(plan("mcp__t__any__tool")).behavior == "allow"
    assert judge(deny=["mcp__s__read"]).decide(plan("mcp__s__read__delete_all")).behavior == "deny"


@pytest.mark.parametrize(
    ("rule", "command"),
    [
        ("Bash(npm test:*)", "npm test -script-shell=./x"),
        ("Bash(npm test:*)", "npm test ---script-sh ./x"),
        ("Bash(npm test:*)", "npm test --logs-dir=/elsewhere"),
        ("Bash(pnpm test:*)", "pnpm test --config.script-shell=./x"),
        ("Bash(go test:*)", "go test --exec=./x ./..."),
        ("Bash(go env:*)", "go env -w GOFLAGS=-toolexec=./x"),
        ("Bash(git grep:*)", "git grep -nO'touch x' foo"),
        ("Bash(pip list:*)", "pip list --python ./x"),
        ("Bash(uv pip list:*)", "uv pip list -p ./x"),
        ("Bash(pylint:*)", "pylint --init-hook='import os' a.py"),
        ("Bash(pyright:*)", "pyright --pythonpath ./x"),
        ("Bash(pytest:*)", "pytest -qp x"),
        ("Bash(mypy:*)", "mypy --install-types a.py"),
        ("Bash(kubectl get:*)", "kubectl get pods --kubeconfig=x.yaml"),
        ("Bash(mvn test:*)", "mvn test exec:exec"),
        ("Bash(make test:*)", "make test 'X!=touch p'"),
        ("Bash(make test:*)", "make test 'CFLAGS=$(shell touch p)'"),
        ("Bash(make test:*)", "make test 'PYTHON=touch p;'"),
        # Test runners run the code that they are given.
        ("Bash(pytest:*)", "pytest /elsewhere/test_x.py"),
        ("Bash(pytest:*)", "pytest -x ../test_x.py::test_y"),
        ("Bash(pytest:*)", "pytest ~/test_x.py"),
        ("Bash(python -m pytest:*)", "python -m pytest /elsewhere"),
        ("Bash(npx jest:*)", "npx jest ../x"),
    ],
)
def test_an_option_by_which_a_program_does_more_than_its_rule_says_is_asked_about(
    judge, called, rule: str, command: str
) -> None:
    decision = judge(allow=[rule]).decide(called("Bash", command))
    assert decision.behavior == "ask"
    assert not any("*)" in suggestion.replace("\\*", "") for suggestion in decision.suggestions), (
        "it would not be covered"
    )


@pytest.mark.parametrize(
    ("rule", "command"),
    [
        ("Bash(npm test:*)", "npm test -- --watch"),
        ("Bash(go test:*)", "go test -run TestX -v ./..."),
        ("Bash(make test:*)", "make test V=1 -j8"),
        ("Bash(mvn test:*)", "mvn test -Dtest=FooTest"),
        ("Bash(pytest:*)", "pytest -xvs tests --tb=short"),
        ("Bash(pytest:*)", "pytest tests/test_x.py::test_y -k 'a or b' -m slow"),
        ("Bash(python -m pytest:*)", "python -m pytest tests"),
        ("Bash(python:*)", "python -m pytest /elsewhere"),
        ("Bash(pytest /elsewhere:*)", "pytest /elsewhere -x"),
        ("Bash(kubectl get:*)", "kubectl get pods -n kube-system"),
    ],
)
def test_the_usual_options_are_covered_by_a_rule_for_the_program(judge, called, rule: str, command: str) -> None:
    assert judge(allow=[rule]).decide(called("Bash", command)).behavior == "allow"


@pytest.mark.parametrize(
    "command",
    ["git fetch https://evil.com/x", "ssh me@evil.com", "nc evil.com 80", "npm test --registry=http://EVIL.com"],
)
def test_a_denied_host_in_the_arguments_of_an_allowed_program_is_asked_about(judge, called, command: str) -> None:
    rules = {"allow": ["Bash(git fetch:*)", "Bash(ssh:*)", "Bash(nc:*)", "Bash(npm test:*)"]}
    assert judge(**rules).decide(called("Bash", command)).behavior == "allow"
    assert judge(**rules, deny=["WebFetch(domain:evil.com)"]).decide(called("Bash", command)).behavior != "allow"


def test_a_message_may_mention_a_denied_host(judge, called) -> None:
    policy = judge(allow=["Bash(git commit:*)"], deny=["WebFetch(domain:evil.com)"])
    assert policy.decide(called("Bash", "git commit -m 'block evil.com'")).behavior == "allow"
