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
from wieldy.mcp.servers import McpServers

INPUTS: dict[str, dict[str, Any]] = {"add_numbers": {"a": 5, "b": 3}}


async def main(url: str) -> int:
    told: dict[str, Any] = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")
    oauth: dict[str, Any] = {"clientMetadataUrl": "https://conformance-test.local/client-metadata.json"}
    if "client_id" in told:
        oauth = {"clientId": told["client_id"], "clientSecret": told.get("client_secret")}
    if "client-credentials" in os.environ.get("MCP_CONFORMANCE_SCENARIO", ""):
        oauth["grantType"] = "client_credentials"
    entry = {"type": "http", "url": url, "oauth": oauth, "timeout": 60_000, "startupTimeout": 60_000}
    with tempfile.TemporaryDirectory() as folder:
        os.environ["WIELDY_HOME"] = folder
        settings = {"mcpServers": {"peer": entry}, "permissions": {"allow": ["mcp__peer__*"]}}
        async with Toolbox(folder, settings=settings, ask=lambda question: True) as box:
            connection = box.workspace.resident(McpServers).connections["peer"]
            visitor = asyncio.create_task(sign_in_wherever_asked(connection))
            await asyncio.sleep(0.2)
            await box.connected(60)
            await asyncio.wait_for(connection.signed_in(), 60)
            await box.connected(60)
            failures = [connection.state.why] if connection.state.word != "ready" else await use_all(box)
            visitor.cancel()
            await asyncio.wait((visitor,))
    for failure in failures:
        print(failure, file=sys.stderr)
    return 1 if failures else 0


async def use_all(box: Toolbox) -> list[str]:
    names = [name for name in box.catalog if name.startswith("mcp__peer__")]
    results = [await box.call(name, INPUTS.get(name.removeprefix("mcp__peer__"), {})) for name in names]
    return [f"{result.name}: {result.text}" for result in results if result.is_error]


async def sign_in_wherever_asked(connection: Any) -> None:
    """The person: visits every address they are sent to, once."""
    import httpx2

    visited = set()
    async with httpx2.AsyncClient(follow_redirects=True) as browser:
        while True:
            url = connection.state.why.rpartition(" ")[2]
            if connection.state.word == "needs approval" and url not in visited:
                visited.add(url)
                await browser.get(url)
            await asyncio.sleep(0.02)


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[-1])))
