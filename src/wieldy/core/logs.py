"""The logger of the library. It is silent until the application configures logging."""

from __future__ import annotations

import logging

log = logging.getLogger("wieldy")
log.addHandler(logging.NullHandler())

# The MCP SDK logs what it raises with a traceback, which Python would print where nobody has configured logging.
logging.getLogger("mcp").addHandler(logging.NullHandler())
