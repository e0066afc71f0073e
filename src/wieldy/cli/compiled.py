"""Modules taken straight from where Python keeps them compiled.

Python looks for a module in every way there is before it reads what it compiled last time. A start loads some three hundred
modules, and to look for one that lies where its package does takes longer than to run most of them.
"""

from __future__ import annotations

import marshal
import os
import sys
from _frozen_importlib_external import MAGIC_NUMBER
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader, ModuleSpec, SourceFileLoader

TYPE_CHECKING = False  # what is imported here is still looked for in every way
if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import CodeType, ModuleType

_HEAD = 16  # bytes before the code: what compiled it, how it is checked, and the time and size of its source
_CHECKED_BY_TIME = MAGIC_NUMBER + bytes(4)
_COMPILED = f".{sys.implementation.cache_tag}.pyc"
_BUILT = EXTENSION_SUFFIXES[0]
_IN_PYTHON = sys.stdlib_module_names.difference(sys.builtin_module_names)


class Compiled(SourceFileLoader):
    """The loader of a module whose code has been read; for everything else, that of any source file."""

    def __init__(self, name: str, path: str, code: memoryview) -> None:
        self.name = name
        self.path = path
        self._code: memoryview | None = code

    def get_code(self, fullname: str) -> CodeType | None:
        """What was read, once; whoever asks again is told what there is now, and so is one who was compiled elsewhere."""
        read, self._code = self._code, None
        if read is not None and (code := marshal.loads(read)).co_filename == self.path:
            return code  # type: ignore[no-any-return]
        return super().get_code(fullname)


class Straight:
    """Finds modules of packages that lie in one folder, and those that come with Python. Of any other it knows nothing."""

    def __init__(self, library: str) -> None:
        self._library = library

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Where a module is; None where nothing was compiled, or its source is another by now."""
        if path is None:
            if name not in _IN_PYTHON:
                return None
            if name.startswith("_") and (spec := _built(name, self._library)) is not None:
                return spec
            folder, last = self._library, name
        elif len(path) == 1:
            folder, last = path[0], name.rpartition(".")[2]
        else:
            return None
        spec = _compiled(name, folder, last) or _compiled(name, f"{folder}/{last}", "__init__")
        return _built(name, folder) if spec is None and path is None else spec


def _compiled(name: str, folder: str, file: str) -> ModuleSpec | None:
    source, kept = f"{folder}/{file}.py", f"{folder}/__pycache__/{file}{_COMPILED}"
    try:
        opened = os.open(kept, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        data = os.read(opened, os.fstat(opened).st_size)
        now = os.stat(source)
    except OSError:
        return None
    finally:
        os.close(opened)
    of_source = (now.st_mtime_ns // 10**9 & 0xFFFFFFFF | (now.st_size & 0xFFFFFFFF) << 32).to_bytes(8, "little")
    if not data.startswith(_CHECKED_BY_TIME + of_source):
        return None
    spec = ModuleSpec(name, Compiled(name, source, memoryview(data)[_HEAD:]), origin=source)
    spec.has_location = True
    spec.cached = kept
    if file == "__init__":
        spec.submodule_search_locations = [folder]
    return spec


def _built(name: str, library: str) -> ModuleSpec | None:
    """A module of Python's own that is not written in it."""
    file = f"{library}/lib-dynload/{name}{_BUILT}"
    if not os.path.isfile(file):
        return None
    spec = ModuleSpec(name, ExtensionFileLoader(name, file), origin=file)
    spec.has_location = True
    return spec


def find_straight() -> None:
    """From here on look there first. Where Python was told to keep things elsewhere or to compile otherwise, do nothing."""
    library = getattr(os, "__file__", None)
    if library and sys.pycache_prefix is None and not sys.flags.optimize:
        sys.meta_path.insert(0, Straight(os.path.dirname(library)))
