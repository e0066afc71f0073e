"""A model on loopback that answers at once: says hello, or calls a tool a number of times first. Stamps every request.

python bench/agents/mock_model.py PORT_FILE STAMPS_FILE TURNS TOOL INPUT_JSON
"""

from __future__ import annotations

import json
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any


def events(turn: int, turns: int, name: str, input: dict[str, Any]) -> bytes:
    if turn < turns:
        block = {"type": "tool_use", "id": f"toolu_{turn}", "name": name, "input": {}}
        delta = {"type": "input_json_delta", "partial_json": json.dumps(input)}
    else:
        block, delta = {"type": "text", "text": ""}, {"type": "text_delta", "text": "hello"}
    told: list[dict[str, Any]] = [
        {"type": "message_start", "message": {"usage": {"input_tokens": 1}}},
        {"type": "content_block_start", "index": 0, "content_block": block},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "tool_use" if turn < turns else "end_turn"}, "usage": {}},
        {"type": "message_stop"},
    ]
    return b"".join(f"event: {e['type']}\ndata: {json.dumps(e)}\n\n".encode() for e in told)


def main() -> None:
    port_file, stamps_file, turns, name, input = sys.argv[1:]
    stamps = Path(stamps_file).open("a", buffering=1)  # noqa: SIM115 - open as long as the server is

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            arrived = time.time()
            turn = body.count(b'"tool_use_id"')
            data = events(turn, int(turns), name, json.loads(input))
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)
            stamps.write(f"{arrived} {time.time()} {len(body)}\n")

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    Path(port_file).write_text(str(server.server_port))
    server.serve_forever()


if __name__ == "__main__":
    main()
