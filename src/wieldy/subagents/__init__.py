"""Sub-agents as things: what kinds there are, what one is sent to do, what it reports, and which are under way."""
