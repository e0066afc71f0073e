"""The least an agent can be: standard library, one connection, two tools. It starts a tool when its block closes, runs
the calls of a turn side by side and keeps its history encoded. Run as `python -I -S floor.py PORT PROMPT`.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
from typing import Any

TOOLS = [
    {
        "name": name,
        "description": description,
        "input_schema": {"type": "object", "properties": {argument: {"type": "string"}}, "required": [argument]},
    }
    for name, description, argument in (("read", "Read a file.", "path"), ("shell", "Run a command.", "command"))
]


def read(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        return "".join(f"{number:6}\t{line}" for number, line in enumerate(file, 1))


def shell(command: str) -> str:
    from_child, to_us = os.pipe()
    actions = [(os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0)]
    actions += [(os.POSIX_SPAWN_DUP2, to_us, 1), (os.POSIX_SPAWN_DUP2, to_us, 2)]  # type: ignore[list-item]
    child = os.posix_spawn("/bin/bash", ["bash", "-c", command], os.environ, file_actions=actions)
    os.close(to_us)
    with open(from_child, "rb") as output:
        told = output.read()
    os.waitpid(child, 0)
    return told.decode()


class Running(threading.Thread):
    """A call at work."""

    def __init__(self, block: dict[str, Any]) -> None:
        super().__init__()
        self.block = block
        self.told = ""
        self.start()

    def run(self) -> None:
        self.told = {"read": read, "shell": shell}[self.block["name"]](*self.block["input"].values())


def listen(answer: Any) -> tuple[list[dict[str, Any]], list[Running]]:
    """Read one answer; its blocks, and its calls, which are at work by then."""
    while answer.readline() != b"\r\n":
        pass
    blocks: list[dict[str, Any]] = []
    calls: list[Running] = []
    raw: list[str] = []
    waiting = b""
    while size := int(answer.readline(), 16):
        waiting += answer.read(size + 2)[:-2]
        *events, waiting = waiting.split(b"\n\n")
        for lines in events:
            event = json.loads(lines[lines.index(b"data: ") + 6 :])
            if event["type"] == "content_block_start":
                blocks.append(event["content_block"])
                raw = []
            elif event["type"] == "content_block_delta":
                raw.append(event["delta"].get("text") or event["delta"].get("partial_json"))
            elif event["type"] == "content_block_stop":
                if blocks[-1]["type"] == "text":
                    blocks[-1]["text"] = "".join(raw)
                else:
                    blocks[-1]["input"] = json.loads("".join(raw))
                    calls.append(Running(blocks[-1]))
    answer.readline()
    return blocks, calls


def main() -> None:
    port, prompt = sys.argv[1:]
    connection = socket.create_connection(("127.0.0.1", int(port)))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    answer = connection.makefile("rb")
    begin = b'{"model":"m","max_tokens":8192,"stream":true,"tools":%s,"messages":[' % json.dumps(TOOLS).encode()
    history = [json.dumps({"role": "user", "content": prompt}).encode()]
    while True:
        body = begin + b",".join(history) + b"]}"
        connection.sendall(
            b"POST /v1/messages HTTP/1.1\r\nhost: model\r\ncontent-length: %d\r\n\r\n" % len(body) + body
        )
        blocks, calls = listen(answer)
        history.append(json.dumps({"role": "assistant", "content": blocks}).encode())
        if not calls:
            print(blocks[-1]["text"])
            return
        told = []
        for call in calls:
            call.join()
            told.append({"type": "tool_result", "tool_use_id": call.block["id"], "content": call.told})
        history.append(json.dumps({"role": "user", "content": told}).encode())


if __name__ == "__main__":
    main()
