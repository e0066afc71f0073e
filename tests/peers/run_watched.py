"""Run in a sandbox by `test_shell_read_only_fuzz.py`: run commands one by one and report those that do more than read.

Reads a JSON object from the standard input and prints a list of `[command, what it did]`. Uses only the standard library.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading


class Listener:
    """Counts the connections and packets that reach this machine: every address that the commands know is its own."""

    def __init__(self, port: int) -> None:
        self.attempts = 0
        for kind, number in ((socket.SOCK_STREAM, port), (socket.SOCK_DGRAM, 53), (socket.SOCK_STREAM, 22)):
            listening = socket.socket(socket.AF_INET, kind)
            listening.bind(("127.0.0.1", number))
            threading.Thread(target=self._count, args=(listening,), daemon=True).start()

    def _count(self, listening: socket.socket) -> None:
        if listening.type == socket.SOCK_STREAM:
            listening.listen()
        while True:
            if listening.type == socket.SOCK_STREAM:
                listening.accept()[0].close()
            else:
                listening.recv(512)
            self.attempts += 1


def snapshot(folder: str) -> dict[str, tuple[int, ...]]:
    """Every entry with what changes when it is written, replaced or given other rights."""
    entries: dict[str, tuple[int, ...]] = {}
    for place, folders, files in os.walk(folder):
        for name in (".", *folders, *files):
            status = os.lstat(os.path.join(place, name))
            entries[os.path.join(place, name)] = (status.st_mode, status.st_size, status.st_mtime_ns, status.st_ino)
    return entries


def main() -> None:
    job = json.load(sys.stdin)
    listener = Listener(job["port"])
    before = snapshot(job["watched"])
    problems = []
    for command in job["commands"]:
        process = subprocess.Popen(
            [job["bash"], "--norc", "-c", command],
            cwd=job["cwd"],
            env=job["env"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            process.wait(job["seconds"])
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            process.wait()
        after = snapshot(job["watched"])
        if after != before:
            changed = sorted(path for path, _ in before.items() ^ after.items())
            problems.append([command, f"changed {changed}"])
            before = after
        if listener.attempts:
            problems.append([command, "used the network"])
            listener.attempts = 0
    json.dump(problems, sys.stdout)


if __name__ == "__main__":
    main()
