"""Whatever a path looks like: it is refused, or it lies in the folder."""

from __future__ import annotations

import os
import tempfile

from hypothesis import given, settings
from hypothesis import strategies as st

from wieldy.core.errors import Refusal
from wieldy.core.workspace import Workspace
from wieldy.tools.memory.folder import SCOPES, Scope, memory_folder, memory_path

PARTS = st.sampled_from(["..", ".", "a", "", "~", "/", "\\", "..\\", "\0", " ", "a.md", "…", "\u202e", "C:", "\ud800"])
PATHS = st.builds(str.join, st.sampled_from(["/", ""]), st.lists(PARTS, max_size=6))
ROOT = tempfile.gettempdir()


@given(PATHS | st.text(), st.sampled_from(SCOPES))
@settings(max_examples=400, deadline=None)
def test_no_path_leads_out(path: str, scope: Scope) -> None:
    workspace = Workspace(ROOT, session_dir=ROOT, env={"WIELDY_HOME": ROOT})
    try:
        found = memory_path(path, scope, workspace)
    except Refusal:
        return
    assert found == os.path.normpath(found)
    assert found.startswith(memory_folder(scope, workspace) + os.sep)
