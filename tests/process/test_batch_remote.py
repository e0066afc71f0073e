"""`wieldy batch --out s3://…` against a server on loopback that speaks S3."""

from __future__ import annotations

import json
import logging
import random
import signal
import socket
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest
from tests.needs import import_or_skip
from tests.process.batch_runs import BatchRun, wait_until

pytestmark = pytest.mark.slow

import_or_skip("s3fs")
moto_server = import_or_skip("moto.server")

KILLS = 8
TASKS = 60


class Bucket:
    """The objects of a bucket, read without the code under test."""

    def __init__(self, endpoint: str) -> None:
        import boto3

        self._client: Any = boto3.client("s3", endpoint_url=endpoint)
        self._client.create_bucket(Bucket="bucket")

    def names(self) -> set[str]:
        pages = self._client.get_paginator("list_objects_v2").paginate(Bucket="bucket")
        return {entry["Key"] for page in pages for entry in page.get("Contents", ())}

    def read(self, name: str) -> bytes:
        data: bytes = self._client.get_object(Bucket="bucket", Key=name)["Body"].read()
        return data

    def results(self) -> list[dict[str, Any]]:
        return [json.loads(self.read(name)) for name in sorted(self.names()) if name.startswith("run/results/")]


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    logging.getLogger("werkzeug").setLevel(logging.WARNING)
    server = moto_server.ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    for name, value in aws_environment(f"http://{host}:{port}").items():
        monkeypatch.setenv(name, value)
    yield f"http://{host}:{port}"
    urlopen(Request(f"http://{host}:{port}/moto-api/reset", method="POST")).close()  # its buckets outlive a server
    server.stop()


def aws_environment(endpoint: str) -> dict[str, str]:
    return {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
    }


@pytest.fixture
def bucket(endpoint: str) -> Bucket:
    return Bucket(endpoint)


@pytest.fixture
def batch(tmp_path: Path, endpoint: str, bucket: Bucket) -> BatchRun:
    batch = BatchRun(tmp_path)
    batch.url = "s3://bucket/run"
    batch.env |= aws_environment(endpoint)
    return batch


def test_a_run_at_a_url_is_complete_there_and_a_second_one_has_nothing_to_do(batch, bucket, wieldy, endpoint):
    edit = [{"call": "Write", "input": {"file_path": "new.txt", "content": "x\n"}}]
    batch.write_tasks(4, model=batch.script("s", edit, [{"text": "done"}]), check="test -f new.txt")
    code, out, err = batch.run()
    assert (code, out) == (0, "s3://bucket/run\n"), err
    assert sorted((each["id"], each["ending"]) for each in bucket.results()) == [(f"t{n}", "solved") for n in range(4)]
    for each in bucket.results():
        files = {name.rpartition("/")[2] for name in bucket.names() if name.startswith(f"run/{each['folder']}/")}
        assert {"transcript.jsonl", "trajectory.json", "patch.diff", "check.log"} <= files
        assert b"new.txt" in bucket.read(f"run/{each['folder']}/patch.diff")
    assert len(bucket.read("run/preds.jsonl").splitlines()) == 4
    assert json.loads(bucket.read("run/run.json"))["engine"] == "local"
    code, _, err = batch.run()
    assert (code, "0 of 4 attempts to run, 4 finished before" in err) == (0, True)
    watched = wieldy("batch", "watch", batch.url, env=aws_environment(endpoint))
    assert (watched.returncode, "4/4 done" in watched.stderr) == (0, True)
    reported = wieldy("batch", "report", batch.url, env=aws_environment(endpoint))
    assert reported.returncode == 0
    assert "100.0% solved" in reported.stdout
    assert reported.stdout.endswith("\ns3://bucket/run/report.html\n")
    assert bucket.read("run/report.html").startswith(b"<!doctype html>")


def test_shards_without_a_common_disk_do_everything_once(batch, bucket):
    batch.write_tasks(7, model=batch.noting_script(1))
    shards = [batch.start("--shard", f"{index}/3", "--work", f"machine-{index}") for index in (1, 2, 3)]
    ends = [shard.communicate(timeout=60) for shard in shards]
    assert [shard.returncode for shard in shards] == [0, 0, 0], ends
    assert sorted(each["id"] for each in bucket.results()) == [f"t{n}" for n in range(7)]
    assert len(batch.notes()) == 7
    assert len(bucket.read("run/preds.jsonl").splitlines()) == 7
    code, _, err = batch.run("--work", "machine-4")
    assert (code, "0 of 7 attempts to run" in err) == (0, True)


@pytest.mark.timeout(300)
def test_a_driver_killed_at_random_moments_finishes_everything_exactly_once(batch, bucket):
    batch.write_tasks(TASKS, model=batch.noting_script(1))
    chance = random.Random(5)
    finished: dict[str, int] = {}
    for _ in range(KILLS):
        process = batch.start("--workers", "8", "--processes", "1")
        wait_for_news(bucket, process)
        time.sleep(chance.random() * 0.3)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        now = {each["identity"] for each in bucket.results()}
        assert set(finished) <= now, "a finished result was lost"
        notes = Counter(note.split("-")[0] for note in batch.notes())
        for identity, count_before in finished.items():
            assert notes[identity] == count_before, "a finished task was run again"
        finished = {identity: notes[identity] for identity in now}
    code, _, err = batch.run("--workers", "8")
    assert code == 0, err
    results = bucket.results()
    assert Counter(each["id"] for each in results) == Counter(f"t{n}" for n in range(TASKS))
    notes = Counter(batch.notes())
    names = bucket.names()
    for each in results:
        assert notes[f"{each['identity']}-{each['attempt']} 0"] == 1
        assert f"run/{each['folder']}/trajectory.json" in names
    wait_until(lambda: not batch.processes(), what="processes are left")


def wait_for_news(bucket: Bucket, process: subprocess.Popen[str]) -> None:
    before = len(bucket.results())
    wait_until(lambda: len(bucket.results()) > before or process.poll() is not None)


def test_a_store_that_goes_away_stops_the_run_and_what_is_finished_is_uploaded_later(batch, bucket, endpoint):
    batch.write_tasks(3, model=batch.noting_script(1))
    batch.url = "s3://no-such-bucket/run"
    code, out, err = batch.run()
    assert (code, out) == (1, "")
    assert err.startswith("wieldy: s3://no-such-bucket/run cannot be used: ")
    assert "Traceback" not in err
    assert batch.notes() == []
    batch.url = "s3://bucket/run"
    batch.env["AWS_ENDPOINT_URL"] = "http://127.0.0.1:9"
    code, _, err = batch.run()
    assert (code, "cannot be used" in err, "Traceback" in err) == (1, True, False), err
    batch.env["AWS_ENDPOINT_URL"] = endpoint
    assert batch.run()[0] == 0
    assert len(batch.notes()) == 3


def test_an_interrupt_leaves_nothing_behind_that_is_finished(batch, bucket):
    slow = batch.script("slow", [{"call": "Bash", "input": {"command": "echo begun >> $LEDGER; sleep 60"}}])
    batch.write_tasks(3, model=batch.noting_script(1))
    with batch.tasks.open("a") as file:
        file.write(json.dumps({"id": "slow", "prompt": "x", "root": "project", "model": slow}) + "\n")
    process = batch.start()
    wait_until(lambda: "begun" in batch.notes() and len(bucket.results()) == 3)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "the same command continues where it stopped" in err
    assert any(name.startswith("run/results-") for name in bucket.names())
    wait_until(lambda: not batch.processes(), what="processes are left")


@pytest.mark.timeout(150)
def test_an_interrupt_with_the_store_gone_ends_the_run_and_the_next_one_uploads_the_rest(batch, bucket, endpoint):
    batch.write_tasks(6, model=batch.noting_script(1))
    gateway = Gateway(endpoint)
    batch.env["AWS_ENDPOINT_URL"] = gateway.url
    with gateway:
        process = batch.start("--workers", "2")
        wait_until(bucket.results)
    wait_until(lambda: len(batch.notes()) >= 3)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "the same command continues where it stopped" in err
    batch.env["AWS_ENDPOINT_URL"] = endpoint
    code, _, err = batch.run()
    assert code == 0, err
    assert Counter(each["id"] for each in bucket.results()) == Counter(f"t{n}" for n in range(6))
    assert len(batch.notes()) <= 8  # of the tasks that were under way, two at most had not ended


class Gateway:
    """Passes connections on to a server while its context lasts; then it refuses them."""

    def __init__(self, target: str) -> None:
        host, _, port = target.removeprefix("http://").partition(":")
        self._target = (host, int(port))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def __enter__(self) -> Gateway:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        for each in (self._listener, *self._open):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._target)
                self._open += (client, server)
                for one, other in ((client, server), (server, client)):
                    threading.Thread(target=self._copy, args=(one, other), daemon=True).start()

    def _copy(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                target.sendall(data)
        for each in (source, target):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
