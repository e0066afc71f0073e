"""A deny holds against everything that a command line can say, and leaves ordinary work alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

CORPUS = Path(__file__).parents[3] / "corpora" / "shell" / "under_deny_rules.txt"
COMMANDS = ["Bash(rm:*)", "Bash(curl:*)", "Bash(git push:*)"]
FILES = ["Read(.env)", "Read(secrets/**)"]


def corpus() -> Iterator[tuple[list[str], str]]:
    rules: list[str] = []
    for line in CORPUS.read_text("utf-8").splitlines():
        if line.startswith("# denied: "):
            rules = line.removeprefix("# denied: ").replace(") ", ")\n").splitlines()
        elif line and not line.startswith("# "):
            yield rules, line


@pytest.fixture
def project(root: str) -> str:
    for name in ("src/a.py", "secrets/key.txt", ".env", "README.md", "list.txt", "data.json", "script.sh", "prog.awk"):
        file = Path(root, name)
        file.parent.mkdir(exist_ok=True)
        file.write_text("x\n")
    Path(root, "link").symlink_to(".env")
    Path(root, "log.gz").symlink_to(".env")
    return root


@pytest.mark.parametrize("given", [{"mode": "bypassPermissions"}, {"allow": ["Bash"]}], ids=["mode", "rule"])
def test_nothing_in_the_corpus_runs_without_a_question(judge, called, project, given) -> None:
    policies = {tuple(rules): judge(deny=rules, **given) for rules in (COMMANDS, FILES)}
    cases = list(corpus())
    assert len(cases) > 900
    allowed = [
        command
        for rules, command in cases
        if policies[tuple(rules)].decide(called("Bash", command)).behavior == "allow"
    ]
    assert allowed == []


@pytest.mark.parametrize(
    "command",
    [
        "pytest -q",
        "python3 script.py --flag",
        'python3 -c "print(1 + 1)"',
        "cat data.json | python3 -c \"import json,sys; d=json.load(sys.stdin); print(len(d), d['x'])\"",
        "python3 -c \"print(open('data.json').read())\"",
        "python3 - <<< 'import math; print(math.pi)'",
        "git stash push",
        "git -c user.name=x commit -m push",
        "git log --oneline",
        "npm test",
        "npm run build",
        "cargo build --release",
        "go test ./...",
        "make -j8 test",
        "git add -A",
        "git add src/a.py",
        'git commit -m "read .env, do not rm it"',
        "git checkout -b feature",
        "git pull --rebase",
        "git stash && git stash pop",
        "git clone https://host.example/x/y",
        "pip install -e .",
        "docker ps",
        "ruff check . && mypy src",
        "eslint src --fix",
        "sed -i s/a/b/ src/a.py",
        "awk -F, '{s+=$2} END {print s}' README.md",
        "perl -pi -e 's/a/b/' src/a.py",
        "sqlite3 db.sqlite 'select * from t'",
        "mkdir -p build && cd build && cmake .. && make",
        "cp src/a.py src/b.py",
        "./script.sh",
        "FOO=1 npm test",
        "PYTHONPATH=src pytest",
        "timeout 60 npm test",
        "jq .version data.json",
    ],
)
def test_ordinary_work_goes_on_under_deny_rules(judge, called, project, command) -> None:
    decision = judge(deny=[*FILES, "Bash(rm:*)"], mode="bypassPermissions").decide(called("Bash", command))
    assert decision.behavior == "allow", decision.reasons


@pytest.mark.parametrize(
    ("rule", "command"),
    [
        ("npm install", "npm i x"),
        ("npm install", "npm isntall x"),
        ("npm publish", "npm publ"),
        ("npm publish", "npm --silent publish"),
        ("npm run", "npm run-script build"),
        ("pnpm install", "pnpm i"),
        ("cargo run", "cargo r --release"),
        ("hg push", "hg pus"),
        ("git add", "git stage x"),
        ("rm", "toybox rm x"),
    ],
)
def test_a_rule_covers_the_other_names_of_a_subcommand(judge, called, rule: str, command: str) -> None:
    decision = judge(deny=[f"Bash({rule}:*)"], mode="bypassPermissions").decide(called("Bash", command))
    assert decision.behavior == "deny", decision.reasons


@pytest.mark.parametrize(
    ("rule", "command"),
    [("cargo publish", "cargo p"), ("gh pr", "gh co 12"), ("hg push", "hg p"), ("git push", "git p")],
)
def test_a_name_that_settings_may_define_is_asked_about(judge, called, rule: str, command: str) -> None:
    decision = judge(deny=[f"Bash({rule}:*)"], mode="bypassPermissions").decide(called("Bash", command))
    assert decision.behavior in ("ask", "deny"), decision.reasons
    assert judge(mode="bypassPermissions").decide(called("Bash", command)).behavior == "allow"


@pytest.mark.parametrize(
    ("rule", "commands"),
    [
        (
            "kubectl delete",
            ["kubectl -n x delete pod y", "kubectl --context=c delete x", "kubectl --namespace x delete y"],
        ),
        ("docker rm", ["docker container rm x", "docker --host x rm y", "docker -D -H x container rm -f y"]),
        ("docker container rm", ["docker rm x", "docker -H x rm y"]),
        ("docker compose down", ["docker-compose down", "docker compose -f x.yml down -v"]),
        ("aws s3 rm", ["aws --profile x s3 rm y", "aws s3 --region x rm y"]),
        ("npm install", ["npm -C . install", "npm --prefix . install x"]),
        ("pip install", ["pip3 install x", "pip3.11 install x", "pip -q install x", "pip --proxy x install y"]),
        ("apt install", ["apt-get install x", "apt -y install x", "apt-get -o a=b install x"]),
        ("helm uninstall", ["helm delete x", "helm --kube-context c un x"]),
        ("terraform destroy", ["terraform -chdir=x destroy"]),
        ("systemctl stop", ["systemctl --user stop x", "systemctl -H h stop x"]),
        ("svn commit", ["svn ci -m x", "svn --username x commit"]),
        ("make deploy", ["make -C . deploy", "make X=1 deploy", "gmake -j4 deploy", "make build deploy"]),
        ("gh pr merge", ["gh pr -R a/b merge 1"]),
        ("go install", ["go -C x install"]),
    ],
)
def test_a_deny_of_a_subcommand_holds_behind_options_and_by_other_names(judge, called, rule, commands) -> None:
    policy = judge(deny=[f"Bash({rule}:*)"], mode="bypassPermissions")
    assert {each: policy.decide(called("Bash", each)).behavior for each in commands} == dict.fromkeys(commands, "deny")
    program, *_ = rule.split()
    for other in (f"{program} version", f"{program} -x y list", f"{program} --help"):
        assert policy.decide(called("Bash", other)).behavior in ("allow", "ask"), other
    assert judge(deny=["Bash(ls)"]).decide(called("Bash", "ls -la src")).behavior == "allow"
