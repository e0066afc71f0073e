"""Words that are written for a model and never shown to a person."""

from __future__ import annotations

import re

FOR_MODELS = re.compile(
    r"system-reminder|InputValidationError|the user\b|unknown to you|since you read"
    r"|\b[Ss]end (?:it|this|that|them|either)\b|[Gg]o on without|[Dd]o not try"
    r"|\bTry again with|\b[Tt]ell the (?:user|model)|\b[Rr]ead it (?:again|before|first|with|in)\b|(?:^|[.!?] |\n)Use [A-Z]"
    r"|(?:^|[.!?] |\n)(?:Ask|Choose|Correct|Go|Leave|Narrow|Never|Raise|Read|Say|Send|Stop|Take|Wait|Work) "
    r"(?!was |is |has |did |failed)"
)
