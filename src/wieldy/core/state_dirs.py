"""The folders for wieldy's own files: XDG config for settings, XDG state for the rest; `WIELDY_HOME` replaces both."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from wieldy.core.errors import SettingsError

MAX_LINKS = 40
JOURNAL_FOLDER = "journal"
"""Below the state folder: the journals of all projects."""


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


def make_folders(folder: Path, mode: int = 0o755) -> None:
    """Create a folder, and those above it that do not exist; at no umask can others write to them."""
    for missing in reversed([each for each in (folder, *folder.parents) if not each.exists()]):
        missing.mkdir(mode=mode, exist_ok=True)


def make_private_folder(folder: Path) -> None:
    """Create a folder, and those above it that do not exist, for its owner only. Raises `PermissionError` for a foreign one."""
    why = _foreign_link(folder, _trusted_users())
    if why is None:
        make_folders(folder, 0o700)
        is_own = not hasattr(os, "getuid") or folder.stat().st_uid == os.getuid()
        why = why_foreign(folder) if is_own else "the folder belongs to another user"
    if why is not None:
        raise PermissionError(errno.EPERM, f"{why}; remove it, or name another folder", str(folder))


def why_foreign(folder: Path) -> str | None:
    """Why another user could change or replace what is in a folder; None if nobody can.

    Trusted are root and the owners of `/` and of the home folder, and above the folder sticky ones of theirs, such as /tmp.
    """
    if not hasattr(os, "getuid"):
        return None
    trusted = _trusted_users()
    if (why := _foreign_link(folder, trusted)) is not None:
        return why
    real = Path(os.path.realpath(folder))
    for place in (real, *real.parents):
        status, name = place.stat(), "the folder" if place == real else place
        if status.st_uid not in trusted:
            return f"{name} belongs to another user"
        if status.st_mode & stat.S_IWOTH and (place == real or not status.st_mode & stat.S_ISVTX):
            return f"others can write to {name}"
    return None


def _trusted_users() -> set[int]:
    """The users that may own what is above a private folder."""
    if not hasattr(os, "getuid"):
        return set()
    trusted = {0, os.getuid(), os.stat("/").st_uid}
    with suppress(OSError, SettingsError):
        trusted.add(user_home().stat().st_uid)  # in a container, that of the machine's user
    return trusted


def _foreign_link(path: Path, trusted: set[int]) -> str | None:
    """Which symlink on the way to a path another user owns, who could lead it elsewhere later; None if there is none."""
    for _ in range(MAX_LINKS if trusted else 0):
        link = next((place for place in (path, *path.parents) if place.is_symlink()), None)
        if link is None:
            return None
        if link.lstat().st_uid not in trusted:
            return f"{link} is a symlink of another user"
        path = link.parent / os.readlink(link)
    return f"there are too many symlinks on the way to {path}" if trusted else None


def write_private(path: Path, data: bytes) -> None:
    """Write a file that only its owner may read if it is created. Raises `OSError`."""
    with open(path, "wb", opener=open_private) as file:
        file.write(data)


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
