"""Where the files and processes of a project are: this machine, an overlay over it, or a backend of your own."""

from wieldy.core.backend import Backend, BackendProcess, FileInfo, FolderEntry
from wieldy.shell.backends.local import LocalBackend
from wieldy.shell.backends.overlay import OverlayBackend, OverlayChange, OverlayError

__all__ = [
    "Backend",
    "BackendProcess",
    "FileInfo",
    "FolderEntry",
    "LocalBackend",
    "OverlayBackend",
    "OverlayChange",
    "OverlayError",
]
