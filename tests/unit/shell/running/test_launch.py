"""What a command finds in its environment."""

from __future__ import annotations

import pytest

from wieldy.shell.running.launch import command_environment, scrub_secrets
from wieldy.shell.running.process_tag import TAG_VARIABLE


def test_nothing_waits_for_a_person():
    env = command_environment({"PAGER": "less", "EDITOR": "vim", "TERM": "xterm-256color"}, tag="m", at_exit=":")
    assert (env["PAGER"], env["EDITOR"], env["TERM"]) == ("cat", "true", "dumb")
    assert env["GIT_TERMINAL_PROMPT"] == "0"


def test_what_would_change_how_bash_reads_a_command_is_left_out():
    foreign = {"SHELLOPTS": "xtrace", "BASHOPTS": "", "CDPATH": "/", "BASH_FUNC_ls%%": "() { rm x; }", "KEPT": "1"}
    env = command_environment(foreign, tag="m", at_exit=":")
    assert env.keys().isdisjoint({"SHELLOPTS", "BASHOPTS", "CDPATH", "BASH_FUNC_ls%%"})
    assert env["KEPT"] == "1"


def test_a_tag_from_outside_is_kept_beside_our_own():
    assert (
        command_environment({TAG_VARIABLE: "outer.1."}, tag="inner.2.", at_exit=":")[TAG_VARIABLE]
        == "outer.1. inner.2."
    )


@pytest.mark.parametrize(
    "name",
    [
        "AWS_SECRET_ACCESS_KEY",
        "OPENAI_API_KEY",
        "GITHUB_TOKEN",
        "DB_PASSWORD",
        "PGPASSWORD",
        "MYSQL_PASSWD",
        "npm_config_token",
        "DATABASE_URL",
        "SENTRY_DSN",
        "GH_PAT",
        "SSH_KEY_PATH",
        "AZURE_CREDENTIALS",
        "SMTP_PASS",
        "MYSQL_PWD",
        "ANTHROPIC_API_KEY",
        "ANTHROPIC_AUTH_TOKEN",
        "GOOGLE_API_KEY",
        "HF_TOKEN",
    ],
)
def test_names_that_speak_of_secrets_are_scrubbed(name):
    kept, removed = scrub_secrets({name: "x", "PATH": "/bin"})
    assert kept == {"PATH": "/bin"}
    assert removed == (name,)


@pytest.mark.parametrize(
    "name", ["PATH", "HOME", "KEYBOARD", "MONKEY", "TOKENIZERS_PARALLELISM", "SSH_AUTH_SOCK", "PWD", "OLDPWD"]
)
def test_ordinary_names_are_kept(name):
    assert scrub_secrets({name: "x"}) == ({name: "x"}, ())


def test_a_secret_the_user_wants_kept_is_kept():
    assert scrub_secrets({"GITHUB_TOKEN": "x"}, keep=["GITHUB_TOKEN"]) == ({"GITHUB_TOKEN": "x"}, ())


def test_a_url_with_a_password_is_scrubbed_whatever_its_name_is():
    env = {"REDIS": "redis://user:hunter2@host/0", "PAGE": "https://host/a:b@c", "HTTPS_PROXY": "http://u:p@proxy:3128"}
    assert scrub_secrets(env)[1] == ("REDIS",)
