"""A run at a URL: results are at the URL before they are reported, and nobody disturbs anybody else."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.needs import import_or_skip

from wieldy.core.threads import MAX_POOL_THREADS, in_thread
from wieldy.faces.batch.remote import RemoteRun, RemoteStore, find_run, is_url
from wieldy.faces.batch.store import AttemptResult, RunFolder, Shard, StoreError, latest_results

fsspec = import_or_skip("fsspec")
local = import_or_skip("fsspec.implementations.local")

pytestmark = pytest.mark.asyncio(loop_scope="function")


class UnreliableFileSystem(local.LocalFileSystem):  # type: ignore[misc, name-defined]
    """Files of this machine behind a network: writing fails while it is `gone`, and waits for `answers` first."""

    protocol = "unreliable"
    gone = False
    failures = 0
    answers: threading.Event | None = None

    def pipe_file(self, path: str, value: bytes, **options: object) -> None:
        cls = type(self)
        if cls.answers is not None:
            cls.answers.wait(60)
        if cls.gone:
            cls.failures += 1
            raise ConnectionError("no route to host")
        super().pipe_file(path, value, **options)


@pytest.fixture
def network() -> Iterator[type[UnreliableFileSystem]]:
    fsspec.register_implementation("unreliable", UnreliableFileSystem, clobber=True)
    cls = UnreliableFileSystem
    cls.gone, cls.failures, cls.answers = False, 0, None
    yield cls
    if cls.answers is not None:
        cls.answers.set()


def result(name: str, ending: str = "solved", **more) -> AttemptResult:
    return AttemptResult(id=name, identity=f"h-{name}", ending=ending, **more)  # type: ignore[arg-type]


def opened(tmp_path: Path, spool: str = "spool", part: Shard | None = None, *, scheme: str = "file") -> RemoteStore:
    """A store whose objects are files, through fsspec like any other."""
    store = RemoteStore(url(tmp_path).replace("file", scheme, 1), tmp_path / spool, part or Shard())
    store.open()
    store.write_run({"v": 1})
    return store


def url(tmp_path: Path) -> str:
    return f"file://{tmp_path}/out [1]"


async def attempt(store: RemoteStore, name: str, **more) -> AttemptResult:
    number, folder = store.new_attempt_folder(name)
    (folder / "patch.diff").write_text(f"patch of {name}\n")
    (folder / "result.json").write_text("{}")
    done = result(name, attempt=number, folder=store.result_folder(folder), **more)
    await store.append(done)
    return done


async def test_results_and_files_are_there_when_append_returns_and_the_spool_is_empty_again(tmp_path):
    store = opened(tmp_path)
    made = await asyncio.gather(*(attempt(store, f"t [{n}]*", cost=0.5, started=float(n)) for n in range(20)))
    other = RemoteRun(url(tmp_path))
    assert list(other.results()) == made
    for each in made:
        assert (tmp_path / "out [1]" / each.folder / "patch.diff").read_text() == f"patch of {each.id}\n"
        assert not (tmp_path / "out [1]" / each.folder / "result.json").exists()
    assert not list((tmp_path / "spool" / "runs").glob("*/*/*"))
    await store.aclose({"over": True}, complete=True)
    store.close()
    [whole] = (tmp_path / "out [1]").glob("results-*.jsonl")
    assert len(whole.read_text().splitlines()) == 20
    assert list(RemoteRun(url(tmp_path)).results()) == made


async def test_what_a_killed_driver_had_not_uploaded_is_uploaded_by_the_next(tmp_path):
    code = """
import asyncio, os, signal, sys
from pathlib import Path
from wieldy.faces.batch.remote import RemoteStore
from wieldy.faces.batch.store import AttemptResult
class Dying(RemoteStore):
    def _upload(self, number, result, **options):
        if number == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        super()._upload(number, result, **options)
async def main():
    store = Dying(sys.argv[1], Path(sys.argv[2])); store.open(); store.write_run({})
    for n in range(4):
        number, folder = store.new_attempt_folder(str(n))
        (folder / "patch.diff").write_text("x")
        name = store.result_folder(folder)
        await store.append(AttemptResult(id=str(n), identity=str(n), ending="solved", attempt=number, folder=name))
        print(n, flush=True)
asyncio.run(main())
"""
    words = [sys.executable, "-c", code, url(tmp_path), str(tmp_path / "spool")]
    done = subprocess.run(words, capture_output=True, text=True)
    assert (done.stdout, done.returncode) == ("0\n1\n", -signal.SIGKILL), done.stderr
    assert [each.id for each in RemoteRun(url(tmp_path)).results()] == ["0", "1"]
    store = opened(tmp_path)
    assert [each.id for each in store.results()] == ["0", "1", "2"]
    assert [each.id for each in RemoteRun(url(tmp_path)).results()] == ["0", "1", "2"]
    for each in store.results():
        assert (tmp_path / "out [1]" / each.folder / "patch.diff").exists()
    store.close()


async def test_a_driver_on_another_machine_goes_by_what_is_listed_and_never_reuses_a_folder(tmp_path):
    first = opened(tmp_path, "one")
    here = await attempt(first, "a", started=1.0)
    first.close()
    second = opened(tmp_path, "two")
    assert list(second.results()) == [here]
    there = await attempt(second, "a", started=2.0)
    assert there.attempt == 2
    assert there.folder != here.folder
    assert latest_results(RemoteRun(url(tmp_path)).results())["h-a"] == there
    second.close()


async def test_a_torn_object_is_skipped_and_written_again_from_the_spool(tmp_path):
    store = opened(tmp_path)
    for name in ("a", "b"):
        await attempt(store, name)
    store.close()
    [torn] = (tmp_path / "out [1]").glob("results/*/00000002.json")
    torn.write_bytes(torn.read_bytes()[:20])
    assert [each.id for each in RemoteRun(url(tmp_path)).results()] == ["a"]
    store = opened(tmp_path)
    assert {each.id for each in RemoteRun(url(tmp_path)).results()} == {"a", "b"}
    store.close()


async def test_shards_write_side_by_side_and_the_last_one_predicts_everything(tmp_path):
    stores = [opened(tmp_path, f"spool-{n}", Shard(n, 2)) for n in (1, 2)]
    for name, store in zip("ab", stores, strict=True):
        await attempt(store, name)
        store.write_progress({"at": 1.0, "name": name})
    assert {each.id for each in RemoteRun(url(tmp_path)).results()} == {"a", "b"}
    progress = RemoteRun(url(tmp_path)).read_progress()
    assert {name: each["name"] for name, each in progress.items()} == {
        "progress-1-of-2.json": "a",
        "progress-2-of-2.json": "b",
    }
    stores[0].write_predictions(())
    lines = [json.loads(line) for line in (tmp_path / "out [1]" / "preds.jsonl").read_text().splitlines()]
    assert [(line["instance_id"], line["model_patch"]) for line in lines] == [
        ("a", "patch of a\n"),
        ("b", "patch of b\n"),
    ]
    for store in stores:
        store.close()


async def test_an_upload_that_never_ends_does_not_keep_the_process_alive(tmp_path):
    code = """
import asyncio, sys, threading
from pathlib import Path
from wieldy.faces.batch.remote import RemoteStore
from wieldy.faces.batch.store import AttemptResult
class Stuck(RemoteStore):
    def _upload(self, number, result, **options):
        begun.set()
        threading.Event().wait()
async def main():
    store = Stuck(sys.argv[1], Path(sys.argv[2])); store.open(); store.write_run({})
    task = asyncio.create_task(store.append(AttemptResult(id="a", identity="a", ending="solved")))
    await asyncio.to_thread(begun.wait)
    task.cancel()
begun = threading.Event()
asyncio.run(main())
"""
    words = [sys.executable, "-c", code, url(tmp_path), str(tmp_path / "spool")]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    store = opened(tmp_path)
    assert [each.id for each in RemoteRun(url(tmp_path)).results()] == ["a"]  # it was in the spool
    store.close()


async def test_a_driver_that_is_alive_elsewhere_is_not_disturbed(tmp_path):
    import time

    store = opened(tmp_path)
    store.write_progress({"at": time.time(), "host": "elsewhere", "pid": 7})
    store.close()
    with pytest.raises(StoreError, match=r"another `wieldy batch` writes to .* \(pid 7 on elsewhere\)"):
        opened(tmp_path, "other")
    opened(tmp_path, "other", Shard(2, 3)).close()
    store.write_progress({"at": time.time() + 20, "host": "elsewhere", "pid": 7})  # its clock is ahead of ours
    with pytest.raises(StoreError, match="another `wieldy batch` writes to"):
        opened(tmp_path, "other")
    store.write_progress({"at": time.time() - 100, "host": "elsewhere", "pid": 7})
    opened(tmp_path, "other").close()
    store.write_progress({"at": time.time(), "host": "elsewhere", "pid": 7, "over": True})
    opened(tmp_path, "other").close()


async def test_a_place_with_something_else_in_it_is_not_written_to(tmp_path):
    (tmp_path / "out [1]").mkdir()
    (tmp_path / "out [1]" / "thesis.tex").write_text("x")
    with pytest.raises(StoreError, match=r"not empty and holds no batch run \(it has thesis\.tex\)"):
        opened(tmp_path)
    assert [each.name for each in (tmp_path / "out [1]").iterdir()] == ["thesis.tex"]


@pytest.mark.parametrize(
    ("location", "words"),
    [("memory://x/y", "would be lost with this process"), ("nosuch://x/y", "Protocol not known: nosuch")],
)
async def test_a_url_that_cannot_hold_a_run_is_one_line(tmp_path, location, words):
    with pytest.raises(StoreError, match=words) as failure:
        RemoteStore(location, tmp_path / "spool")
    assert "\n" not in str(failure.value)


async def test_a_url_of_this_machine_is_an_ordinary_folder(tmp_path):
    run = find_run(f"file://{tmp_path}/x")
    assert isinstance(run, RunFolder)
    assert run.location == f"{tmp_path}/x"
    assert find_run("local").location == "local"
    assert not is_url("a/b")
    assert is_url("s3://a/b")


async def test_uploads_that_wait_for_their_next_try_hold_no_thread(tmp_path, network):
    store = opened(tmp_path, scheme="unreliable")
    network.gone = True
    count = MAX_POOL_THREADS + 10
    appending = [asyncio.create_task(store.append(result(str(n)))) for n in range(count)]
    while network.failures < count:
        await asyncio.sleep(0.01)
    assert await in_thread(threading.current_thread)
    network.gone = False
    await asyncio.gather(*appending)
    assert len(list(RemoteRun(url(tmp_path)).results())) == count
    store.close()


async def test_closing_a_store_that_is_gone_tries_nothing_again(tmp_path, network):
    store = opened(tmp_path, scheme="unreliable")
    await attempt(store, "a")
    network.gone = True
    appending = asyncio.create_task(attempt(store, "b"))
    while not network.failures:
        await asyncio.sleep(0.01)
    appending.cancel()
    await store.aclose({"over": True}, complete=False)
    assert network.failures == 3  # the upload, the results as one object, and the progress
    store.close()
    network.gone = False
    opened(tmp_path).close()
    assert {each.id for each in RemoteRun(url(tmp_path)).results()} == {"a", "b"}


async def test_closing_does_not_wait_for_a_store_that_never_answers(tmp_path, network):
    store = opened(tmp_path, scheme="unreliable")
    await attempt(store, "a")
    network.answers = threading.Event()
    writing = asyncio.create_task(in_thread(store.write_progress, {"over": False}))
    appending = asyncio.create_task(attempt(store, "b"))
    await asyncio.sleep(0.1)
    appending.cancel()
    writing.cancel()
    await store.aclose({"over": True}, complete=False, seconds=0.1)
    assert not network.answers.is_set()
    store.close()


async def test_a_spool_that_lost_its_results_overwrites_none_of_them(tmp_path):
    store = opened(tmp_path)
    made = [await attempt(store, name, started=1.0) for name in ("a", "b")]
    store.close()
    (tmp_path / "spool" / "results.jsonl").unlink()
    store = opened(tmp_path)
    made.append(await attempt(store, "c", started=2.0))
    assert list(RemoteRun(url(tmp_path)).results()) == made
    await store.aclose({"over": True}, complete=True)
    assert list(RemoteRun(url(tmp_path)).results()) == made
    store.close()
