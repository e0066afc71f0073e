"""The shipped checks against each backend: this machine, the overlay, and the one of the guide, which uses only `sh`."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.needs import skip_untested
from tests.unit.shell.backends.guide import guide_backend

from wieldy import Backend, LocalBackend, OverlayBackend, StaleFileError
from wieldy.shell.backends.overlay import overlay_problem
from wieldy.testing import BACKEND_CHECKS, BackendCheck


@pytest.fixture(scope="module", params=["local", "overlay", "guide"])
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Backend, str]]:
    folder = tmp_path_factory.mktemp("place")
    if request.param == "local":
        with LocalBackend() as local:
            yield local, str(folder)
    elif request.param == "guide":
        yield guide_backend(tmp_path_factory.mktemp("guide")), str(folder)
    else:
        if (problem := overlay_problem()) is not None:
            skip_untested(f"the overlay backend: {problem}")
        with OverlayBackend(folder) as overlay:
            yield overlay, str(folder)
        assert list(folder.iterdir()) == []


@pytest.mark.parametrize("check", BACKEND_CHECKS, ids=lambda check: check.__name__)
def test_a_backend_keeps_the_contract(place: tuple[Backend, str], check: BackendCheck):
    check(*place)


@pytest.mark.parametrize("link", ["a", "a/b", "a/b/c"])
def test_a_link_that_came_later_is_neither_listed_nor_made_folders_in(tmp_path: Path, link: str):
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").touch()
    (tmp_path / "a" / "b" / "c").mkdir(parents=True)
    path = str(tmp_path / "a" / "b" / "c")
    with LocalBackend() as backend:
        backend.make_folder(f"{path}/made/deep")
        assert [entry.name for entry in backend.list_folder(path)] == ["made"]
        (tmp_path / link).rename(tmp_path / "moved")
        (tmp_path / link).symlink_to(tmp_path / "outside")
        for use in (backend.list_folder, lambda path: backend.make_folder(f"{path}/new/deep")):
            with pytest.raises(OSError, match="leads elsewhere"):
                use(path)
    assert [each.name for each in (tmp_path / "outside").iterdir()] == ["secret"]


def test_one_of_several_writers_of_the_same_version_wins(place: tuple[Backend, str]):
    backend, folder = place
    if not isinstance(backend, LocalBackend | OverlayBackend):
        pytest.skip("the backend of the guide has no locks")
    for number in range(20):
        path = f"{folder}/contested {number}"
        version = backend.write(path, b"old", expected=None).version

        def write(content: bytes, path: str = path, version: str = version) -> bool:
            try:
                backend.write(path, content, expected=version)
            except StaleFileError:
                return False
            return True

        contents = [b"%d" % writer for writer in range(8)]
        with ThreadPoolExecutor(len(contents)) as threads:
            results = list(threads.map(write, contents))
        assert [content for content, won in zip(contents, results, strict=True) if won] == [backend.read(path)]


def test_the_checks_find_a_backend_that_writes_blindly(tmp_path: Path):
    class Blind(LocalBackend):
        def write(self, path, content, *, expected, mode=None):
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            Path(path).write_bytes(content)
            return self.stat(path)

    failed = set()
    with Blind() as backend:
        for check in BACKEND_CHECKS:
            try:
                check(backend, str(tmp_path))
            except (AssertionError, OSError):
                failed.add(check.__name__)
    assert failed >= {
        "replaces_only_the_version_that_was_read",
        "creates_without_replacing",
        "follows_links_only_when_asked",
        "keeps_permission_bits",
    }
    assert "runs_programs" not in failed
