"""The logger of the library. It is silent until the application configures logging."""

from __future__ import annotations

import logging

log = logging.getLogger("wieldy")
log.addHandler(logging.NullHandler())
