"""Text for people, made from text for models.

A text for a model ends with what to do next ("Send it again with less in it"). A person is shown the facts alone.
"""

from __future__ import annotations

import re

_REMINDER = re.compile(r"\s*<system-reminder>.*?</system-reminder>", re.DOTALL)
_SENTENCE_END = re.compile(r"(?<=[.!?]) (?=[A-Z])")
# The verbs with which advice to a model begins, unless they are names of tools. "Try again" and "Check …" help a person too.
_ADVICE = re.compile(
    r"(?:Ask|Call|Choose|Correct|Delete|Do|End|Give|Go|Leave|Let|Look|Name|Narrow|Never|Raise|Read|Send|Say|Stop|Take|Use|Wait"
    r"|Work|Write|To create) (?!was |is |has |did |failed)"
)
_ERROR_NAME = re.compile(r"^InputValidationError: ")


def person_text(text: str) -> str:
    """Return the sentences that state facts. What is only advice stays whole: something must be said."""
    lines = [_facts(line) for line in _ERROR_NAME.sub("", without_reminders(text)).split("\n")]
    facts = "\n".join(line for line in lines if line is not None).strip()
    return facts or text.strip()


def without_reminders(text: str) -> str:
    """Return a text without the reminders to a model in it."""
    return _REMINDER.sub("", text)


def _facts(line: str) -> str | None:
    """The sentences of a line that are no advice; None if there is none."""
    sentences = _SENTENCE_END.split(line)
    facts = [sentence for sentence in sentences if not _ADVICE.match(sentence)]
    return " ".join(facts) if facts else None
