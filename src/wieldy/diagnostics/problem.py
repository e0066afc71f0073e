"""An error that a checker found, and which of them are new."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from wieldy.core.record import record


@record
class Problem:
    """One error in one file."""

    line: int
    message: str
    rule: str
    checker: str

    @property
    def kind(self) -> tuple[str, str, str]:
        """What it is, wherever it stands: an edit above moves errors that it did not make."""
        return self.checker, self.rule, self.message

    def __str__(self) -> str:
        rule = f" [{self.rule}]" if self.rule else ""
        return f"line {self.line}: {' '.join(self.message.split())}{rule} ({self.checker})"


def new_problems(before: Sequence[Problem], after: Sequence[Problem]) -> list[Problem]:
    """Those that there were fewer of before; of several alike the last ones."""
    known = Counter(problem.kind for problem in before)
    found: list[Problem] = []
    for problem in after:
        if known[problem.kind] > 0:
            known[problem.kind] -= 1
        else:
            found.append(problem)
    return found
