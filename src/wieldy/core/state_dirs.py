"""The folders for wieldy's own files: XDG config for settings, XDG state for the rest; `WIELDY_HOME` replaces both."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Mapping
from pathlib import Path

from wieldy.core.errors import SettingsError


def config_home(env: Mapping[str, str] = os.environ) -> Path:
    """The folder for the user's settings."""
    return _home(env, "XDG_CONFIG_HOME", ".config")


def state_home(env: Mapping[str, str] = os.environ) -> Path:
    """The folder for sessions, journal and spilled results."""
    return _home(env, "XDG_STATE_HOME", ".local/state")


def user_home(env: Mapping[str, str] = os.environ) -> Path:
    """The user's home: `HOME`, or where that is no absolute path the one that the system knows. Raises `SettingsError`."""
    home = env.get("HOME", os.environ.get("HOME"))
    if home and os.path.isabs(home):
        return Path(home)
    try:
        import pwd

        return Path(pwd.getpwuid(os.getuid()).pw_dir)
    except (ImportError, KeyError):
        raise SettingsError(f"HOME must be an absolute path, not `{home or ''}`") from None


def skill_homes(env: Mapping[str, str] = os.environ) -> tuple[Path, ...]:
    """The folders of the user's skills: ours, then those that other programs share."""
    home = user_home(env)
    return (config_home(env) / "skills", home / ".claude" / "skills", home / ".agents" / "skills")


def shared_folders(env: Mapping[str, str] = os.environ) -> tuple[Path, ...]:
    """The user's own folders that may be read from any project: memory and skills."""
    return (config_home(env) / "memory", *skill_homes(env))


def make_private_folder(folder: Path) -> None:
    """Create a folder, and those above it that do not exist, for its owner only. Refuses one that others own or can write to.

    Raises `PermissionError`. Where a folder above belongs to another user, who could swap what is in it, only a sticky one is
    accepted, such as /tmp.
    """
    for missing in reversed([each for each in (folder, *folder.parents) if not each.exists()]):
        missing.mkdir(mode=0o700, exist_ok=True)
    if (why := _why_foreign(folder)) is not None:
        raise PermissionError(errno.EPERM, f"{why}; remove it or name another folder", str(folder))


def _why_foreign(folder: Path) -> str | None:
    if not hasattr(os, "getuid"):
        return None
    status = os.stat(folder)
    if status.st_uid != os.getuid():
        return "the folder belongs to another user"
    return "others can write to the folder" if status.st_mode & stat.S_IWOTH else None


def open_lock_file(path: str) -> int:
    """Open a file that stands for a lock, in a private folder that is made where it is missing."""
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
    try:
        return os.open(path, flags, 0o600)
    except FileNotFoundError:
        make_private_folder(Path(path).parent)
        return os.open(path, flags, 0o600)


def open_private(path: str, flags: int) -> int:
    """Open a file for `open(..., opener=open_private)` that only its owner may read if it is created."""
    return os.open(path, flags, 0o600)


def fsync_folder(folder: Path) -> None:
    """Bring the names in a folder to disk, where the system can do that."""
    try:
        file = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(file)
    except OSError:
        return
    finally:
        os.close(file)


def _home(env: Mapping[str, str], variable: str, below_home: str) -> Path:
    if moved := env.get("WIELDY_HOME"):
        return Path(moved).expanduser().absolute()
    base = env.get(variable)
    if base and os.path.isabs(base):
        return Path(base) / "wieldy"
    return user_home(env) / below_home / "wieldy"
