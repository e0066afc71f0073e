"""An MCP server of the official SDK over stdio that offers prompts."""

from mcp.server import MCPServer

server = MCPServer("prompting")


@server.prompt(description="Greet somebody.")
def greet(name: str, style: str = "friendly") -> str:
    return f"Write a {style} greeting for {name}."


@server.prompt(name="plain words", description="No arguments.")
def plain() -> str:
    return "Just say hello."


server.run()
