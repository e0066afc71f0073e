"""The backend of the library guide, as it is printed there, without a command before its programs: it works on this machine."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path

from wieldy import Backend

GUIDE = Path(__file__).parents[4] / "docs" / "library.md"


def guide_backend(folder: Path) -> Backend:
    """Write the program to a folder, and make its backend."""
    [code] = re.findall(r"```python\n(# command_backend\.py\n.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    path = folder / "command_backend.py"
    path.write_text(code)
    spec = importlib.util.spec_from_file_location("guide_command_backend", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    backend: Backend = module.CommandBackend([], id=f"guide {folder}")
    return backend
