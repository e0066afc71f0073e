"""Tools, prompts and resources of MCP servers, for our model. The SDK is imported when a server is configured, not before.

Other rooms use `configured` and `manager`. It imports `core`, `files`, `shell` and `policy`.
"""
