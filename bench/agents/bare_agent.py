"""The least an agent can be: standard library only, one connection, a tool that reads a file.

python bench/agents/bare_agent.py BASE_URL PROMPT
"""

from __future__ import annotations

import json
import socket
import sys
from typing import Any

TOOL = {
    "name": "Read",
    "description": "Read a file.",
    "input_schema": {"type": "object", "properties": {"file_path": {"type": "string"}}, "required": ["file_path"]},
}


def answer(sock: socket.socket, host: str, body: bytes) -> dict[int, dict[str, Any]]:
    head = f"POST /v1/messages HTTP/1.1\r\nhost: {host}\r\ncontent-length: {len(body)}\r\n\r\n"
    sock.sendall(head.encode() + body)
    data = b""
    while b"\r\n\r\n" not in data:
        data += sock.recv(65536)
    head_bytes, _, rest = data.partition(b"\r\n\r\n")
    length = int(
        next(line for line in head_bytes.lower().split(b"\r\n") if line.startswith(b"content-length")).split(b":")[1]
    )
    while len(rest) < length:
        rest += sock.recv(65536)
    blocks: dict[int, dict[str, Any]] = {}
    for line in rest.split(b"\n"):
        if not line.startswith(b"data:"):
            continue
        event = json.loads(line[5:])
        if event["type"] == "content_block_start":
            blocks[event["index"]] = {**event["content_block"], "raw": ""}
        elif event["type"] == "content_block_delta":
            delta = event["delta"]
            blocks[event["index"]]["raw"] += delta.get("text") or delta.get("partial_json") or ""
    return blocks


def main() -> None:
    url, prompt = sys.argv[1:3]
    host, _, port = url.removeprefix("http://").partition(":")
    sock = socket.create_connection((host, int(port)))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    messages: list[dict[str, Any]] = [{"role": "user", "content": prompt}]
    while True:
        body = json.dumps(
            {"model": "m", "max_tokens": 100, "stream": True, "tools": [TOOL], "messages": messages}
        ).encode()
        said, results = [], []
        for block in answer(sock, host, body).values():
            if block["type"] == "text":
                said.append({"type": "text", "text": block["raw"]})
            else:
                input = json.loads(block["raw"])
                said.append({"type": "tool_use", "id": block["id"], "name": block["name"], "input": input})
                with open(input["file_path"], encoding="utf-8") as file:
                    results.append({"type": "tool_result", "tool_use_id": block["id"], "content": file.read()})
        messages.append({"role": "assistant", "content": said})
        if not results:
            print(said[0]["text"])
            return
        messages.append({"role": "user", "content": results})


if __name__ == "__main__":
    main()
