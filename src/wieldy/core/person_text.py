"""Text for people, made from text for models."""

from __future__ import annotations

import re

_REMINDER = re.compile(r"\s*<system-reminder>.*?</system-reminder>", re.DOTALL)


def without_reminders(text: str) -> str:
    """Return a text without the reminders to a model in it."""
    return _REMINDER.sub("", text)
