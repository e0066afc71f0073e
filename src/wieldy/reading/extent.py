"""How much of a file is shown at once, unless somebody asks for more or less."""

from __future__ import annotations

LIMIT = 2000  # lines
CHARS = 200_000
