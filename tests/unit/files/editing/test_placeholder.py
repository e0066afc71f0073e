"""Placeholders for text left out are refused; ordinary lines are not."""

from __future__ import annotations

import pytest

from wieldy.core.errors import ToolFailure
from wieldy.files.editing.revision import find_placeholders, refuse_placeholders


@pytest.mark.parametrize(
    "line",
    [
        "// ... rest of code unchanged ...",
        "# ... existing code ...",
        "    # … rest of the file …",
        "/* ... remaining methods ... */",
        "<!-- ... rest of the content ... -->",
        "// rest of the code remains the same",
        "# The rest of the function is unchanged",
        "... rest of file ...",
        "[... existing code ...]",
        "{/* ... rest of the code ... */}",
        "-- ... unchanged ...",
        "// ... other methods stay as they are",
        "// (rest of implementation unchanged)",
        "# ...same as before...",
        "  // ... (rest of code)",
    ],
)
def test_a_placeholder_is_refused_with_its_line(line: str) -> None:
    assert find_placeholders(f"a = 1\n{line}\n") == [(2, line)]
    with pytest.raises(ToolFailure, match="Line 2 of new_string is a placeholder"):
        refuse_placeholders(f"a = 1\n{line}\n", "a = 0\n")


@pytest.mark.parametrize(
    "line",
    [
        "...",
        "    ...",
        "def f(*rest): ...",
        "print('... rest of the story')",
        "const { a, ...rest } = props;",
        "The rest of the code is in main.py, which loads it.",
        "# Keep the existing code path for old clients",
        "# remaining lines are padded with zeros",
        "// the other method is slower but exact",
        "x = rest_of_code()",
        "# unchanged files are skipped",
        "return [...existing, item];",
        "# ... and so on",
        "// the rest of the function is called by the scheduler",
        "// wait for the rest of the function call to resolve",
    ],
)
def test_ordinary_lines_pass(line: str) -> None:
    assert find_placeholders(line) == []


def test_a_placeholder_that_is_in_the_old_text_passes() -> None:
    refuse_placeholders("# ... existing code ...\nx = 2", "# ... existing code ...\nx = 1")
