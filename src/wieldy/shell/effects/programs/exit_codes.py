"""What the exit codes of programs say, where they are answers and not errors."""

from __future__ import annotations

import re
from collections.abc import Mapping

NO_MATCH = "no lines matched"
DIFFERENT = "the inputs differ"
FALSE = "the condition is false"
NOT_FOUND = "not found"

EXIT_1_ANSWERS: Mapping[str, str] = {
    **dict.fromkeys(("grep", "egrep", "fgrep", "zgrep", "rg", "ag", "ack"), NO_MATCH),
    **dict.fromkeys(("diff", "cmp", "colordiff", "zdiff"), DIFFERENT),
    **dict.fromkeys(("test", "[", "[["), FALSE),
    **dict.fromkeys(("pgrep", "pidof"), "no process matched"),
    **dict.fromkeys(("which", "type"), NOT_FOUND),
    "git grep": NO_MATCH,
    "git diff": "there are differences",
    "git diff-index": "there are differences",
    "git diff-files": "there are differences",
    "git check-ignore": "no path is ignored",
    "git merge-base": "it is not an ancestor",
    "expr": "the result is empty or zero",
}
"""Programs whose exit code 1 is an answer, not an error."""

NEVER_FAIL = frozenset(
    {"cd", "echo", "printf", "export", "set", "true", ":", "pwd", "sleep", "ls", "cat", "head", "shopt"}
)
_PASS_ON = frozenset({"env", "command", "builtin", "time", "nice", "nohup", "stdbuf", "sudo", "exec"})
# What programs that were told to be quiet end with if they reach no server.
NETWORK_EXIT_CODES: Mapping[str, tuple[int, ...]] = {"curl": (6, 7), "wget": (4,)}


def exit_1_answer(words: list[str]) -> str | None:
    """What exit code 1 of this simple command means; None if it is an error."""
    while words and (words[0] in _PASS_ON or re.match(r"\w+=", words[0]) or words[0].startswith("-")):
        if words[0] == "command" and words[1:2] and words[1] in ("-v", "-V"):
            return NOT_FOUND
        words = words[1:]
    if not words:
        return None
    name = words[0].rsplit("/", 1)[-1]
    if name != "git":
        return EXIT_1_ANSWERS.get(name)
    subcommand = next((f"git {word}" for word in words[1:] if not word.startswith("-")), "")
    if subcommand.startswith("git diff") and not {"--exit-code", "--quiet", "-q", "--check"} & set(words):
        return None
    if subcommand == "git merge-base" and "--is-ancestor" not in words:
        return None
    return EXIT_1_ANSWERS.get(subcommand)
