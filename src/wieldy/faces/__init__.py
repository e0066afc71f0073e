"""What people and programs meet: the terminal, headless runs, batches, adapters and the MCP server."""
