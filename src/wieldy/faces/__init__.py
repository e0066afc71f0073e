"""What people and programs meet: the terminal, headless runs, batches, adapters for frameworks, the MCP server.

A face imports the rooms before it and never another face. Only `cli` imports faces.
"""
