"""Judges the control files of git repositories that a command made or changed: could git run programs because of them?

Git runs what a repository's settings name (`core.fsmonitor`, hooks) as soon as a person, an editor or a shell prompt asks for
its status; that of a project also looks into repositories in its folders.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Mapping

from wieldy.core.project_text import read_project_bytes, read_project_text

MAX_CONFIG_BYTES = 1 << 20
CONTROL_NAMES = ("commondir", "config", "config.worktree", "hooks")
"""The files of a repository that decide what git runs."""
_REPOSITORY_NAMES = ("HEAD", "commondir", "objects", "refs")
# What git itself writes into the settings of a new repository, and settings that cannot run anything.
_HARMLESS_KEY = re.compile(
    r"core\.(repositoryformatversion|filemode|bare|logallrefupdates|ignorecase|precomposeunicode|symlinks|autocrlf|eol"
    r"|safecrlf|quotepath|sparsecheckout|sparsecheckoutcone|abbrev|longpaths|preloadindex|untrackedcache|commitgraph)"
    r"|extensions\.(objectformat|refstorage|worktreeconfig|relativeworktrees|partialclone)"
    r"|remote\..*\.(url|pushurl|fetch|push|tagopt|prune|promisor|partialclonefilter|mirror)"
    r"|branch\..*\.(remote|pushremote|merge|rebase|description|(vscode|gh)-merge-base|github-pr-.*)|remote\.pushdefault|user\.(name|email|signingkey)|(commit|tag)\.gpgsign"
    r"|submodule\.(active|recurse|.*\.(url|active))|init\.defaultbranch|merge\.(ff|conflictstyle)"
    r"|branch\.autosetup(merge|rebase)|lfs\.(repositoryformatversion|.*\.(access|locksverify))"
    r"|(index|pack|push|pull|fetch|advice|color|feature)\..*|gc\.(auto.*|pruneexpire|reflogexpire.*|packrefs|cruftpacks)",
    re.I,
)


def is_repository(names: Collection[str]) -> bool:
    """Whether a folder with these entries is a repository to git."""
    return "HEAD" in names and ("commondir" in names or ("objects" in names and "refs" in names))


def decides_for_git(path: str, exists: Callable[[str], bool]) -> bool:
    """Whether writing a path changes what git runs in a folder that is a repository, or makes a folder one."""
    parts = path.split(os.sep)
    for index in range(max(0, len(parts) - 4), len(parts)):
        name, is_last = parts[index], index == len(parts) - 1
        is_control = name == "hooks" or (is_last and name in CONTROL_NAMES)
        if not is_control and name not in _REPOSITORY_NAMES:
            continue
        folder = os.sep.join(parts[:index])
        names = {each for each in _REPOSITORY_NAMES if exists(os.path.join(folder, each))}
        if is_repository({*names, name}) and (is_control or not is_repository(names)):
            return True
    return False


class GitJudge:
    """Decides whether a control file that a command made or changed can make git run what it did not run before.

    `known` are the control files that there were before, `folders` what the command could write.
    """

    def __init__(self, known: Collection[str], folders: Collection[str], env: Mapping[str, str]) -> None:
        self._known = known
        self._folders = tuple(map(os.path.realpath, folders))
        self._env = env

    def is_harmless(self, path: str, before: bytes | None = None) -> bool:
        """`before` is the content that the file had, if there was one."""
        try:
            match os.path.basename(path):
                case ".git":
                    return before is None and self._leads_to_harmless(path)
                case "commondir":
                    return not os.path.lexists(path) or (before is None and _is_of_linked_work_tree(path))
                case "hooks":
                    return not os.path.islink(path) and all(name.endswith(".sample") for name in os.listdir(path))
                case "config" | "config.worktree":
                    return self._has_harmless_keys(path, before)
        except FileNotFoundError:
            return True
        except (OSError, ValueError):
            return False
        return False  # a hook

    def _leads_to_harmless(self, dot_git: str) -> bool:
        repository = _named_repository(dot_git)
        return all(self._is_harmless_repository(folder) for folder in {repository, _shared_folder(repository)})

    def _is_harmless_repository(self, folder: str) -> bool:
        if not os.path.isdir(folder):
            return False  # one may be put there later
        if not any(f"{folder}/".startswith(f"{each.rstrip('/')}/") for each in self._folders):
            return True
        if os.path.basename(folder) == ".git" and os.path.join(folder, "config") in self._known:
            return True  # it is used with the project anyway
        return all(self.is_harmless(os.path.join(folder, name)) for name in CONTROL_NAMES)

    def _has_harmless_keys(self, config: str, before: bytes | None = None) -> bool:
        """Whether all settings are harmless, but for those that were there before with the same values."""
        if os.path.islink(config) or not os.path.isfile(config) or os.path.getsize(config) > MAX_CONFIG_BYTES:
            return not os.path.lexists(config)
        old = [] if before is None else self._settings(before)
        new = self._settings(read_project_bytes(config, max_bytes=MAX_CONFIG_BYTES))
        if new is None or old is None:
            return False
        new = [each for each in new if each in old or not _names_its_work_tree(config, each)]
        is_emptied = {_key(each) for each in old if each.startswith("core.")} - {_key(each) for each in new}
        return not is_emptied and _risky(new) == _risky(old)

    def _settings(self, content: bytes) -> list[str] | None:
        """The settings in a file, in order; None if git cannot read it."""
        arguments = ["config", "--file", "-", "--no-includes", "-z", "--list"]
        from wieldy.core.git import look_up_with_git

        done = look_up_with_git(arguments, "/", self._env, input=content)
        if done is None or done.returncode:
            return None
        return [each for each in os.fsdecode(done.stdout).split("\0") if each]


def _key(setting: str) -> str:
    return setting.partition("\n")[0]


def _risky(settings: list[str]) -> list[str]:
    return [each for each in settings if not _HARMLESS_KEY.fullmatch(_key(each))]


def _named_repository(dot_git: str) -> str:
    """The repository that a `.git` names, which is a file or a symlink."""
    if os.path.islink(dot_git):
        return os.path.realpath(dot_git)
    named = read_project_text(dot_git).removeprefix("gitdir:").strip()
    return os.path.realpath(os.path.join(os.path.dirname(dot_git), named))


def _names_its_work_tree(config: str, setting: str) -> bool:
    """Whether a setting is that by which a submodule's repository names the work tree that names it in turn."""
    key, _, value = setting.partition("\n")
    repository = os.path.dirname(config)
    dot_git = os.path.join(repository, value, ".git")
    return key == "core.worktree" and os.path.isfile(dot_git) and _named_repository(dot_git) == repository


def _shared_folder(repository: str) -> str:
    """The folder that a linked work tree shares settings and hooks with; for any other repository, itself."""
    try:
        named = read_project_text(os.path.join(repository, "commondir")).strip()
    except (FileNotFoundError, NotADirectoryError):
        return repository
    return os.path.realpath(os.path.join(repository, named))


def _is_of_linked_work_tree(commondir: str) -> bool:
    """Whether a `commondir` is one that git makes: in `worktrees/NAME` of the repository that it names."""
    repository = os.path.dirname(commondir)
    folders = os.path.dirname(repository)
    return os.path.basename(folders) == "worktrees" and _shared_folder(repository) == os.path.dirname(folders)
