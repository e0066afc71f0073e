"""What a client needs of the SDK, loaded as one, so that it can be loaded away from the event loop."""

from __future__ import annotations

import mcp.client.client
import mcp.client.subscriptions
import mcp.shared.exceptions
import mcp.shared.message
import mcp_types
import mcp_types.version

__all__ = ["mcp", "mcp_types"]
