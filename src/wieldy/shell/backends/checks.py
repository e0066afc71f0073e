"""What every backend must do, as functions: `check(backend, folder)` raises `AssertionError` where one does something else.

`folder` is an absolute path there, without links in it, in which the checks may make what they like.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from typing import TypeAlias

from wieldy.core.backend import Backend, run_on
from wieldy.core.errors import StaleFileError

BackendCheck: TypeAlias = Callable[[Backend, str], None]

SECONDS = 60.0
BIG = 3_000_000
_numbers = count(1)


def reads_back_what_was_written(backend: Backend, folder: str) -> None:
    for content in (b"", b"text\n", bytes(range(256)) * 7, b"x" * BIG + b"\0end"):
        path = _new_path(folder)
        info = backend.write(path, content, expected=None)
        assert backend.read(path) == content, "the content differs"
        assert (info.kind, info.size) == ("file", len(content)), info
        assert backend.stat(path) == info, "`write` and `stat` say different things"


def reads_parts_of_a_file(backend: Backend, folder: str) -> None:
    path = _new_path(folder)
    backend.write(path, b"0123456789", expected=None)
    assert backend.read(path, 3) == b"3456789"
    assert backend.read(path, 3, 4) == b"3456"
    assert backend.read(path, 8, 100) == b"89"
    assert backend.read(path, 100) == b""
    assert backend.read(path, 0, 0) == b""


def replaces_only_the_version_that_was_read(backend: Backend, folder: str) -> None:
    path = _new_path(folder)
    first = backend.write(path, b"one", expected=None)
    second = backend.write(path, b"two", expected=first.version)
    assert second.version != first.version, "the version did not change with the content"
    _expect(StaleFileError, lambda: backend.write(path, b"three", expected=first.version))
    assert backend.read(path) == b"two", "a stale write was carried out"
    _expect(StaleFileError, lambda: backend.delete(path, expected=first.version))
    assert backend.read(path) == b"two", "a stale delete was carried out"


def notices_what_other_programs_change(backend: Backend, folder: str) -> None:
    path = _new_path(folder)
    info = backend.write(path, b"one", expected=None)
    assert backend.stat(path).version == info.version, "the version changes by itself"
    _shell(backend, folder, 'sleep 0.05; printf two > "$1"', path)
    assert backend.stat(path).version != info.version, "a change in place kept the version"
    _expect(StaleFileError, lambda: backend.write(path, b"three", expected=info.version))
    assert backend.read(path) == b"two"


def creates_without_replacing(backend: Backend, folder: str) -> None:
    path = _new_path(folder)
    backend.write(path, b"one", expected=None)
    _expect(StaleFileError, lambda: backend.write(path, b"two", expected=None))
    assert backend.read(path) == b"one", "an existing file was replaced"
    gone = _new_path(folder)
    _expect(StaleFileError, lambda: backend.write(gone, b"two", expected="never there"))
    _expect(FileNotFoundError, lambda: backend.stat(gone))


def keeps_what_a_writer_wrote_that_was_not_refused(backend: Backend, folder: str) -> None:
    path = _new_path(folder)
    info = backend.write(path, b"old", expected=None)
    won: list[bytes] = []

    def write(content: bytes) -> None:
        with suppress(StaleFileError):
            backend.write(path, content, expected=info.version)
            won.append(content)

    _run_at_once(*(lambda content=b"%d" % number: write(content) for number in range(8)))
    assert won, "no writer succeeded"
    assert backend.read(path) in won, "the content is of a writer that was refused"


def shows_each_file_whole(backend: Backend, folder: str) -> None:
    path = _new_path(folder)
    contents = (b"a" * 400_000, b"b" * 300_000)
    version = backend.write(path, contents[0], expected=None).version
    done = threading.Event()
    seen: list[bytes] = []

    def read() -> None:
        while not done.is_set():
            seen.append(backend.read(path))

    reader = threading.Thread(target=read)
    reader.start()
    try:
        for number in range(1, 10):
            version = backend.write(path, contents[number % 2], expected=version).version
    finally:
        done.set()
        reader.join()
    assert all(content in contents for content in seen), "a reader saw half of a file"


def leaves_nothing_beside_a_file(backend: Backend, folder: str) -> None:
    place = _new_path(folder)
    info = backend.write(f"{place}/file", b"one", expected=None)
    backend.write(f"{place}/file", b"two", expected=info.version)
    _expect(StaleFileError, lambda: backend.write(f"{place}/file", b"three", expected=info.version))
    assert [entry.name for entry in backend.list_folder(place)] == ["file"], "temporary files were left"


def keeps_permission_bits(backend: Backend, folder: str) -> None:
    path = _new_path(folder)
    info = backend.write(path, b"#!/bin/sh\n", expected=None, mode=0o750)
    assert info.mode == 0o750, f"a new file has the mode {info.mode:o}"
    assert backend.write(path, b"#!/bin/sh\nexit\n", expected=info.version).mode == 0o750, "the mode was not kept"


def makes_and_removes_folders(backend: Backend, folder: str) -> None:
    place = _new_path(folder)
    backend.make_folder(f"{place}/a/b")
    backend.make_folder(f"{place}/a/b")
    assert backend.stat(f"{place}/a/b").kind == "folder"
    info = backend.write(f"{place}/a/new/file", b"x", expected=None)
    _expect(OSError, lambda: backend.delete(f"{place}/a/new"))
    assert backend.read(f"{place}/a/new/file") == b"x", "a folder was removed with what is in it"
    backend.delete(f"{place}/a/new/file", expected=info.version)
    backend.delete(f"{place}/a/new")
    assert [entry.name for entry in backend.list_folder(f"{place}/a")] == ["b"]


def says_what_is_missing(backend: Backend, folder: str) -> None:
    path = _new_path(folder)
    _expect(FileNotFoundError, lambda: backend.stat(path))
    _expect(FileNotFoundError, lambda: backend.read(path))
    _expect(FileNotFoundError, lambda: backend.list_folder(path))
    _expect(StaleFileError, lambda: backend.delete(path, expected="1"))
    assert backend.realpath(f"{path}/below") == f"{path}/below"
    backend.write(path, b"a file", expected=None)
    _expect((FileNotFoundError, NotADirectoryError), lambda: backend.stat(f"{path}/below"))
    _expect(NotADirectoryError, lambda: backend.list_folder(path))
    _expect(OSError, lambda: backend.read(folder))
    _expect(OSError, lambda: backend.write(f"{path}/below", b"x", expected=None))
    assert backend.read(path) == b"a file"


def lists_folders(backend: Backend, folder: str) -> None:
    place = _new_path(folder)
    backend.make_folder(f"{place}/folder")
    backend.write(f"{place}/file", b"x", expected=None)
    backend.write(f"{place}/.hidden", b"x", expected=None)
    _shell(backend, place, "ln -s file link; ln -s nowhere dangling; mkfifo pipe")
    entries = {entry.name: (entry.kind, entry.target) for entry in backend.list_folder(place)}
    assert entries == {
        "folder": ("folder", ""),
        "file": ("file", ""),
        ".hidden": ("file", ""),
        "link": ("link", "file"),
        "dangling": ("link", "nowhere"),
        "pipe": ("other", ""),
    }, entries


def follows_links_only_when_asked(backend: Backend, folder: str) -> None:
    place = _new_path(folder)
    backend.write(f"{place}/inside/file", b"inside", expected=None)
    outside = backend.write(f"{place}-outside/secret", b"secret", expected=None)
    _shell(backend, place, f'ln -s "$1" inside/link; ln -s "{place}-outside" inside/folder', f"{place}-outside/secret")
    link = f"{place}/inside/link"
    assert backend.stat(link, follow=False).kind == "link"
    assert backend.stat(link).kind == "file"
    assert backend.stat(link).version == outside.version, "two names of one file have different versions"
    assert backend.realpath(link) == f"{place}-outside/secret"
    assert backend.realpath(f"{place}/inside/folder/new") == f"{place}-outside/new"
    _expect(OSError, lambda: backend.read(link))
    _expect(StaleFileError, lambda: backend.write(link, b"x", expected=outside.version))
    _expect(StaleFileError, lambda: backend.write(link, b"x", expected=None))
    _expect(StaleFileError, lambda: backend.delete(link, expected=outside.version))
    assert backend.read(f"{place}-outside/secret") == b"secret", "a link was followed"
    assert backend.stat(link, follow=False).kind == "link", "a link was replaced"


def takes_any_name(backend: Backend, folder: str) -> None:
    place = _new_path(folder)
    names = ["ünïcode 日本", "with 'quotes\" and $dollar `ticks`", "-rf", "two\nlines", "back\\slash", " spaces "]
    for name in names:
        path = f"{place}/{name}/{name}"
        backend.write(path, name.encode(), expected=None)
        assert backend.read(path) == name.encode(), name
        assert backend.realpath(path) == path, name
        assert [entry.name for entry in backend.list_folder(f"{place}/{name}")] == [name]
        assert _shell(backend, f"{place}/{name}", 'cat -- "$1"', f"./{name}") == name.encode()
    assert sorted(entry.name for entry in backend.list_folder(place)) == sorted(names)


def runs_programs(backend: Backend, folder: str) -> None:
    script = 'pwd -P; printf "%s|" "$@" "$COLOR"; echo wrong >&2; exit 3'
    arguments = ("two words", "$HOME", "'", "", "*", "ü")
    env = {**_environment(backend), "COLOR": "deep blue"}
    code, output, errors = run_on(backend, ["sh", "-c", script, "sh", *arguments], cwd=folder, env=env, seconds=SECONDS)
    assert code == 3, code
    assert output == f"{folder}\n{'|'.join((*arguments, 'deep blue'))}|".encode(), output
    assert errors == b"wrong\n", errors


def gives_programs_no_input(backend: Backend, folder: str) -> None:
    assert _shell(backend, folder, "cat; echo done") == b"done\n"


def joins_both_streams_in_order(backend: Backend, folder: str) -> None:
    script = "for i in 1 2 3; do echo out$i; echo err$i >&2; done"
    process = backend.spawn(["sh", "-c", script], cwd=folder, env=_environment(backend))
    assert process.stderr is None
    assert _read_to_end(process.stdout).split() == [b"out1", b"err1", b"out2", b"err2", b"out3", b"err3"]
    assert process.wait() == 0


def passes_big_outputs(backend: Backend, folder: str) -> None:
    code, output, _ = run_on(
        backend,
        ["sh", "-c", f"head -c {BIG} /dev/zero; exit 7"],
        cwd=folder,
        env=_environment(backend),
        seconds=SECONDS,
    )
    assert (code, len(output)) == (7, BIG)


def says_that_a_program_is_missing(backend: Backend, folder: str) -> None:
    try:
        code, _, _ = run_on(
            backend, ["no-such-program-anywhere"], cwd=folder, env=_environment(backend), seconds=SECONDS
        )
    except OSError:
        return
    assert code in (126, 127), f"the exit code of a missing program is {code}"


def ends_everything_that_a_program_started(backend: Backend, folder: str) -> None:
    script = "sleep 600 & (setsid sleep 600 &) ; trap '' TERM; echo ready; sleep 600; sleep 600"
    process = backend.spawn(["sh", "-c", script], cwd=folder, env=_environment(backend))
    assert os.read(process.stdout, 6) == b"ready\n"
    process.end()
    assert process.wait() != 0
    # The output ends when no process holds it any more: also the process in a session of its own is gone.
    assert _read_to_end(process.stdout) == b""
    process.end()


def serves_several_threads(backend: Backend, folder: str) -> None:
    place = _new_path(folder)
    results: list[bytes] = []

    def work(number: int) -> None:
        path = f"{place}/{number}"
        backend.write(path, b"%d" % number, expected=None)
        results.append(_shell(backend, folder, 'cat "$1"', path))

    _run_at_once(*(lambda number=number: work(number) for number in range(6)))
    assert sorted(results) == [b"%d" % number for number in range(6)]


BACKEND_CHECKS: tuple[BackendCheck, ...] = (
    reads_back_what_was_written,
    reads_parts_of_a_file,
    replaces_only_the_version_that_was_read,
    notices_what_other_programs_change,
    creates_without_replacing,
    keeps_what_a_writer_wrote_that_was_not_refused,
    shows_each_file_whole,
    leaves_nothing_beside_a_file,
    keeps_permission_bits,
    makes_and_removes_folders,
    says_what_is_missing,
    lists_folders,
    follows_links_only_when_asked,
    takes_any_name,
    runs_programs,
    gives_programs_no_input,
    joins_both_streams_in_order,
    passes_big_outputs,
    says_that_a_program_is_missing,
    ends_everything_that_a_program_started,
    serves_several_threads,
)
"""All checks. With pytest: `@pytest.mark.parametrize("check", BACKEND_CHECKS, ids=lambda check: check.__name__)`."""


def _new_path(folder: str) -> str:
    return f"{folder}/{os.getpid()}-{next(_numbers)}"


def _environment(backend: Backend) -> dict[str, str]:
    return {"PATH": os.environ.get("PATH", os.defpath)} if backend.has_host_programs else {}


def _shell(backend: Backend, cwd: str, script: str, *arguments: str) -> bytes:
    argv = ["sh", "-c", script, "sh", *arguments]
    code, output, errors = run_on(backend, argv, cwd=cwd, env=_environment(backend), seconds=SECONDS)
    assert code == 0, f"`{script}` ended with exit code {code}: {errors.decode('utf-8', 'replace')}"
    return output


def _read_to_end(descriptor: int) -> bytes:
    with open(descriptor, "rb") as file:
        return file.read()


def _run_at_once(*functions: Callable[[], None]) -> None:
    failures: list[BaseException] = []

    def run(function: Callable[[], None]) -> None:
        try:
            function()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(function,)) for function in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def _expect(kind: type[Exception] | tuple[type[Exception], ...], function: Callable[[], object]) -> None:
    try:
        result = function()
    except kind:
        return
    names = " or ".join(one.__name__ for one in (kind if isinstance(kind, tuple) else (kind,)))
    raise AssertionError(f"{names} was expected, and this came back: {result!r:.200}")
