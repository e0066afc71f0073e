"""The exceptions that wieldy raises on purpose.

    WieldyError
    ├── ToolDefinitionError   a tool that cannot be offered: raised at registration
    ├── SettingsError         settings that cannot be used as they are written
    ├── Refusal               a call that will not run: the stage that refused, and what the model can do next
    ├── ToolFailure           a tool that ran and failed: message, then stderr, then stdout
    ├── SessionError          the run cannot go on: one line for the person
    │   └── MissingKey        the environment holds no key for the provider of a model
    ├── Deferred              a question that is answered later
    ├── ClosedError           a toolbox or session is used after it was closed
    ├── MissingExtra          an optional package is not installed
    └── StaleFileError        a file is no longer what the writer read

`Refusal` and `ToolFailure` become outcomes in `engine/pipeline.py`, and nowhere else.
"""

from __future__ import annotations

from typing import Any, Literal, Self, TypeAlias

Stage: TypeAlias = Literal["lookup", "abort", "schema", "normalize", "check", "hook", "permission", "loop"]


class WieldyError(Exception):
    """Any failure wieldy raises on purpose."""


class ToolDefinitionError(WieldyError):
    """A tool without name, description or object schema, or a second one of the same name."""


class SettingsError(WieldyError):
    """Settings given in code do not parse, or what forbids something cannot be read. One line for the person says where."""


class Refusal(WieldyError):
    """The call will not run. `problem` says what is wrong, `next_step` what the model can do about it.

    The model reads both, as `advice`. A person reads the problem alone, or `person` where it needs other words.
    """

    def __init__(self, stage: Stage, problem: str, next_step: str = "", *, person: str = "", data: Any = None) -> None:
        self.advice = _join(problem, next_step)
        super().__init__(self.advice)
        self.stage: Stage = stage
        self.problem = problem
        self.next_step = next_step
        self.person = person or problem
        self.data = data


class ToolFailure(WieldyError):
    """The tool ran and could not do what was asked. `problem` says what is wrong, `next_step` what the model can do about it.

    The model reads both, as `message`. A person reads the problem alone, or `person` where it needs other words.
    """

    def __init__(
        self,
        problem: str,
        next_step: str = "",
        *,
        stderr: str = "",
        stdout: str = "",
        person: str = "",
        data: Any = None,
    ) -> None:
        self.message = _join(problem, next_step)
        super().__init__(self.message)
        self.problem = problem
        self.next_step = next_step
        self.person = person or problem
        self.stderr = stderr
        self.stdout = stdout
        self.data = data

    def with_problem(self, problem: str, *, person: str = "") -> Self:
        """The same failure with its problem in other words; a person who was told other words still is."""
        person = person or ("" if self.person == self.problem else self.person)
        return type(self)(
            problem, self.next_step, stderr=self.stderr, stdout=self.stdout, person=person, data=self.data
        )


def _join(problem: str, next_step: str) -> str:
    return f"{problem}{chr(10) if chr(10) in problem else ' '}{next_step}" if next_step else problem


class SessionError(WieldyError):
    """The run ends here. The message is one line for the person."""


class MissingKey(SessionError):
    """The environment holds no key for the provider of a model."""


class FolderGone(Exception):
    """The folder that a call was judged for does not exist any more: it is judged again, for the root."""


class Deferred(WieldyError):
    """A question is to be answered later: the call does not run now. `question_id` is None for one that waits for another."""

    def __init__(self, question_id: str | None = None) -> None:
        super().__init__("the call waits for an answer")
        self.question_id = question_id


class ClosedError(WieldyError):
    """A toolbox, session or turn is used after it was closed."""


class MissingExtra(WieldyError):
    """An optional package is not installed; the message names the extra to install."""


class StaleFileError(WieldyError):
    """The file is no longer what the writer read. Nothing was written."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path} {reason}. Nothing was written.")
        self.path = path
        self.reason = reason
