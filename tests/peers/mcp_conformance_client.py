"""The client of the conformance suite: a toolbox connected to the server it is given, which calls every tool it finds.

Run by the suite as a program; the server's address is the last argument. Somebody who signs in wherever asked is played too.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from typing import Any

from wieldy import Toolbox

EXAMPLES: dict[str, Any] = {"string": "x", "number": 5, "integer": 5, "boolean": True, "array": [], "object": {}}


async def main(url: str) -> int:
    told: dict[str, Any] = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")
    oauth: dict[str, Any] = {"clientMetadataUrl": "https://conformance-test.local/client-metadata.json"}
    if "client_id" in told:
        issuer = await issuer_of(url) if told.get("client_secret") else None
        oauth = {"clientId": told["client_id"], "clientSecret": told.get("client_secret"), "issuer": issuer}
    if "client-credentials" in os.environ.get("MCP_CONFORMANCE_SCENARIO", ""):
        oauth["grantType"] = "client_credentials"
    entry = {"type": "http", "url": url, "oauth": oauth, "timeout": 60_000, "startupTimeout": 60_000}
    with tempfile.TemporaryDirectory() as folder:
        os.environ["WIELDY_HOME"] = folder
        settings = {"mcpServers": {"peer": entry}, "permissions": {"allow": ["mcp__peer__*"]}}
        async with Toolbox(folder, settings=settings, ask=lambda question: True) as box:
            connection = box.workspace.services.mcp_servers.connections["peer"]
            visitor = asyncio.create_task(sign_in_wherever_asked(connection))
            async with asyncio.timeout(60):
                while connection.state.name in ("connecting", "needs approval"):
                    await asyncio.sleep(0.02)
            ready = connection.state.name == "ready"
            failures = await use_all(box, told.get("toolCalls", [])) if ready else [connection.state.why]
            visitor.cancel()
            await asyncio.wait((visitor,))
    for failure in failures:
        print(failure, file=sys.stderr)
    return 1 if failures else 0


async def issuer_of(url: str) -> str:
    """The issuer that a person would have their secret from."""
    import httpx2

    base, _, path = url.partition("/mcp")
    async with httpx2.AsyncClient() as client:
        for place in (f"/mcp{path}", ""):
            response = await client.get(f"{base}/.well-known/oauth-protected-resource{place}")
            if response.status_code == 200:
                return str(response.json()["authorization_servers"][0])
    return base


async def use_all(box: Toolbox, wanted: list[dict[str, Any]]) -> list[str]:
    """Make the calls that the scenario wants, or else one of each tool with the least input it takes."""
    calls = [(f"mcp__peer__{call['name']}", call.get("arguments", {})) for call in wanted]
    if not calls:
        found = [tool for name in box.catalog if name.startswith("mcp__peer__") and (tool := box.catalog.find(name))]
        calls = [(tool.name, least(tool.schema)) for tool in found]
    results = [await box.call(name, input) for name, input in calls]
    return [f"{result.name}: {result.text}" for result in results if result.is_error]


def least(schema: dict[str, Any]) -> dict[str, Any]:
    return {name: EXAMPLES.get(schema["properties"][name].get("type"), "x") for name in schema.get("required", ())}


async def sign_in_wherever_asked(connection: Any) -> None:
    """The person: visits every address they are sent to, once."""
    import httpx2

    visited = set()
    async with httpx2.AsyncClient(follow_redirects=True) as browser:
        while True:
            url = connection.state.why.rpartition(" ")[2]
            if connection.state.name == "needs approval" and connection.state.why.startswith("run "):
                connection.reconnect(sign_in=True)
            elif connection.state.name == "needs approval" and url not in visited:
                visited.add(url)
                await browser.get(url)
            await asyncio.sleep(0.02)


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[-1])))
