"""Other ways to write the same command, so that a rule that forbids it is not got round by an option in front."""

from __future__ import annotations

from collections.abc import Sequence

WITH_VALUE = frozenset(
    {"-C", "-c", "--git-dir", "--work-tree", "--namespace", "--exec-path", "--config-env", "--super-prefix"}
)


def without_git_options(words: Sequence[str]) -> str | None:
    """`git -C x push` as `git push`; None where there is nothing to leave out."""
    if not words or words[0].rpartition("/")[2] != "git":
        return None
    at = 1
    while at < len(words) and words[at].startswith("-"):
        at += 2 if words[at] in WITH_VALUE else 1
    return " ".join(["git", *words[at:]]) if at > 1 else None
