"""The MCP server. Its modules import the SDK, so import them when serving begins."""
