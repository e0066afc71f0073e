from __future__ import annotations

import os
from pathlib import Path

import pytest

from wieldy.policy.permissions.paths import CaseProbe, PathResolver, is_below, path_key
from wieldy.policy.permissions.protected import ProtectedFolders, ProtectedPaths


def resolve(root: str, path: str) -> tuple[bool, str]:
    seen = PathResolver((root,)).resolve(path)
    return seen.inside, seen.real


@pytest.mark.parametrize("spelling", ["{root}/a/../x", "{root}/./x", "{root}//x", "//{root}/x"])
def test_every_spelling_of_a_path_is_seen_as_the_same(root: str, spelling: str) -> None:
    assert PathResolver((root,)).resolve(spelling.format(root=root)).spellings == (f"{root}/x",)


def test_a_link_that_leads_out_is_outside(root: str, tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("v")
    os.symlink(tmp_path / "victim", f"{root}/notes")
    os.symlink(tmp_path / "not-there", f"{root}/draft")
    os.symlink(tmp_path, f"{root}/outbox")
    for name in ("notes", "draft", "outbox/new", "outbox/deep/new"):
        assert not resolve(root, f"{root}/{name}")[0], name


def test_a_link_that_stays_in_is_inside(root: str) -> None:
    Path(root, "target").write_text("t")
    os.symlink(f"{root}/target", f"{root}/alias")
    seen = PathResolver((root,)).resolve(f"{root}/alias")
    assert seen.inside
    assert seen.spellings == (f"{root}/alias", f"{root}/target")


def test_dots_behind_a_link_are_taken_as_the_system_takes_them(root: str, tmp_path: Path) -> None:
    (tmp_path / "far" / "away").mkdir(parents=True)
    os.symlink(tmp_path / "far" / "away", f"{root}/link")
    seen = PathResolver((root,)).resolve(f"{root}/link/../x")
    assert seen.real == str((tmp_path / "far").resolve() / "x")
    assert not seen.inside


def test_inside_stays_inside_when_the_root_itself_is_a_link(root: str, tmp_path: Path) -> None:
    os.symlink(root, tmp_path / "other-name")
    seen = PathResolver((root,)).resolve(str(tmp_path / "other-name" / "src" / "a.py"))
    assert seen.inside
    assert set(seen.spellings) == {f"{root}/src/a.py"}


def test_a_neighbour_whose_name_begins_alike_is_outside(root: str) -> None:
    assert not resolve(root, root + "-backup/x")[0]


def test_added_folders_are_inside(root: str, tmp_path: Path) -> None:
    extra = str((tmp_path / "extra").resolve())
    assert PathResolver((root, extra)).resolve(f"{extra}/x").inside


def test_readable_folders_are_inside_for_reading_only(root: str, tmp_path: Path) -> None:
    spilled = str(tmp_path / "spilled")
    paths = PathResolver((root,), readable=(spilled,))
    assert paths.resolve(f"{spilled}/1.txt", reading=True).inside
    assert not paths.resolve(f"{spilled}/1.txt").inside


def test_the_null_device_is_no_file_outside(root: str) -> None:
    assert resolve(root, "/dev/null")[0]
    assert not resolve(root, "/dev/sda")[0]


def test_composed_and_decomposed_names_are_one() -> None:
    assert path_key("/a/é") == path_key("/a/é")
    assert is_below("/a/é/x", "/a/é")
    assert path_key("/A") != path_key("/a")
    assert path_key("/A", folds_case=True) == path_key("/a", folds_case=True)


class FoldingVolume:
    """Answers `stat` like a disk that ignores case."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.asked = 0

    def __call__(self, path: str) -> os.stat_result:
        self.asked += 1
        return os.stat(self.folder if path.casefold() == self.folder.casefold() else path)


def test_a_volume_that_folds_case_is_found_out_once(tmp_path: Path) -> None:
    folder = str(tmp_path / "Letters")
    os.mkdir(folder)
    volume = FoldingVolume(folder)
    probe = CaseProbe(volume)
    assert probe(f"{folder}/missing/deep")
    asked = volume.asked
    assert probe(f"{folder}")
    assert volume.asked == asked + 1


def test_a_volume_that_keeps_case_apart_is_found_out(tmp_path: Path) -> None:
    folder = tmp_path / "Letters"
    folder.mkdir()
    (tmp_path / "lETTERS").mkdir()
    assert not CaseProbe(FoldingVolume("/nowhere"))(str(folder))


@pytest.mark.parametrize(
    "name",
    [
        ".git/config",
        ".git/hooks/pre-commit",
        "sub/.git/HEAD",
        ".gitmodules",
        ".husky/pre-commit",
        "sub/.vscode/tasks.json",
        ".idea/runConfigurations/x.xml",
        ".gitconfig",
        ".env",
        ".env.local",
        ".envrc",
        ".ssh/authorized_keys",
        ".gnupg/x",
        ".npmrc",
        ".pypirc",
        ".netrc",
        ".aws/credentials",
        ".config/gcloud/key.json",
        ".kube/config",
        ".docker/config.json",
        "id_ed25519",
        ".bashrc",
        ".zshrc",
        ".profile",
        ".config/fish/config.fish",
        ".mcp.json",
        ".wieldy/settings.json",
        ".wieldy/settings.local.json",
        ".claude/settings.json",
        "node_modules/left-pad/index.js",
        "deep/node_modules/x",
        ".venv/bin/cat",
        "sub/venv/lib/site-packages/a.pth",
    ],
)
def test_a_path_is_protected_whether_it_exists_or_not(root: str, name: str) -> None:
    assert ProtectedPaths((root,)).find(PathResolver((root,)).resolve(f"{root}/{name}")) is not None


@pytest.mark.parametrize(
    "name", ["src/a.py", "environment.txt", "git/config", ".github/workflows/ci.yml", "env", ".gitignore"]
)
def test_other_paths_are_not(root: str, name: str) -> None:
    assert ProtectedPaths((root,)).find(PathResolver((root,)).resolve(f"{root}/{name}")) is None


def test_programs_in_a_folder_of_the_project_that_is_on_path_are_protected(root: str) -> None:
    protected = ProtectedPaths((root,), ProtectedFolders(programs=(f"{root}/bin", root, "/usr/bin", f"{root}x")))
    resolve = PathResolver((root,)).resolve
    for name in ("bin/cat", "bin", "cat"):
        assert protected.find(resolve(f"{root}/{name}")) is not None
    for path in (f"{root}/bin/lib/cat", f"{root}/src/cat", "/usr/bin/cat", f"{root}x/cat"):
        assert protected.find(resolve(path)) is None


def test_protection_sees_through_links_and_case(root: str) -> None:
    os.mkdir(f"{root}/.git")
    os.symlink(f"{root}/.git", f"{root}/innocent")
    protected = ProtectedPaths((root,))
    assert protected.find(PathResolver((root,)).resolve(f"{root}/innocent/config"))
    for name in (".GIT/config", ".Claude/settings.json", ".SSH/id"):
        assert protected.find(PathResolver((root,), folds_case=lambda path: True).resolve(f"{root}/{name}"))
        assert not protected.find(PathResolver((root,), folds_case=lambda path: False).resolve(f"{root}/{name}"))


def test_a_workspace_that_lies_in_a_protected_folder_is_not_protected_as_a_whole(tmp_path: Path) -> None:
    root = str(tmp_path.resolve() / ".claude" / "worktrees" / "a")
    protected = ProtectedPaths((root,))
    assert protected.find(PathResolver((root,)).resolve(f"{root}/src/a.py")) is None
    assert protected.find(PathResolver((root,)).resolve(f"{root}/.git/config")) is not None


def test_the_users_own_settings_are_protected(root: str, home: str) -> None:
    folder = f"{home}/.config/wieldy"
    assert ProtectedPaths((root,), ProtectedFolders((folder,))).find(
        PathResolver((root,)).resolve(f"{folder}/trust.json")
    )
