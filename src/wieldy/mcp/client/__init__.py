"""The MCP client: other servers' tools, prompts and resources for our model."""
