"""The MCP server: our tools for any MCP client."""
