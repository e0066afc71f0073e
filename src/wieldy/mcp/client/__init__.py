"""The MCP client: tools, prompts and resources of other servers for our model."""
