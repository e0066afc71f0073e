"""Stands between wieldy and a model's server: passes every byte on as it comes, and keeps what was asked and answered."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple


class Passed(NamedTuple):
    """One request and all events of its answer."""

    path: str
    asked: dict[str, Any]
    status: int
    answered: list[dict[str, Any]]


class Recorder:
    """What has passed so far, and the address to give to wieldy."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.passed: list[Passed] = []

    def take(self) -> list[Passed]:
        """What has passed since it was last asked for."""
        taken, self.passed = self.passed, []
        return taken


@contextmanager
def recorder(upstream: str) -> Iterator[Recorder]:
    host, _, port = upstream.removeprefix("http://").partition(":")

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            connection = http.client.HTTPConnection(host, int(port), timeout=600)
            connection.request("POST", self.path, body, {"content-type": "application/json"})
            response = connection.getresponse()
            self.send_response(response.status)
            self.send_header("content-type", response.headers["content-type"])
            self.send_header("transfer-encoding", "chunked")
            self.end_headers()
            data = b""
            while piece := response.read1(65536):
                data += piece
                self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            # Kept before the end is told: whoever has the whole answer finds it here.
            record.passed.append(Passed(self.path, json.loads(body), response.status, _events(data)))
            self.wfile.write(b"0\r\n\r\n")
            connection.close()

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    record = Recorder(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield record
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _events(data: bytes) -> list[dict[str, Any]]:
    lines = [line[5:].strip() for line in data.decode().splitlines() if line.startswith("data:")]
    return [json.loads(line) for line in lines if line != "[DONE]"]
