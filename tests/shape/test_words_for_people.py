"""Every refusal and failure says to a person what is wrong, and only to the model what it can do next."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.words_for_models import FOR_MODELS

SOURCE = Path(__file__).parents[2] / "src" / "wieldy"
# The place of the problem among the arguments.
ERRORS = {
    "Refusal": 1,
    **dict.fromkeys(("ToolFailure", "NotFound", "WrongCount", "EditsConflict", "HostRefused", "FetchFailure"), 0),
    **dict.fromkeys(("SearchFailure", "InvalidUrl", "SessionError", "SettingsError", "CannotUndo"), 0),
    **dict.fromkeys(("StaleFileError", "WriteError", "RollbackError"), 1),
}


def words_for_people() -> Iterator[tuple[str, str]]:
    """The place and the words of each error, as far as they are written in the source."""
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name) or node.func.id not in ERRORS:
                continue
            person = next((keyword.value for keyword in node.keywords if keyword.arg == "person"), None)
            position = ERRORS[node.func.id]
            problem = node.args[position] if len(node.args) > position else None
            if (text := person or problem) is not None:
                yield f"{path.relative_to(SOURCE)}:{node.lineno}", literal_text(text)


def literal_text(node: ast.expr) -> str:
    """The constant parts of a text."""
    return "".join(
        str(part.value) for part in ast.walk(node) if isinstance(part, ast.Constant) and isinstance(part.value, str)
    )


def test_no_error_tells_a_person_what_a_model_should_do() -> None:
    found = [(place, text) for place, text in words_for_people() if FOR_MODELS.search(text)]
    assert found == []


def test_the_errors_are_found() -> None:
    assert sum(1 for _ in words_for_people()) > 250


@pytest.mark.parametrize("name", ERRORS)
def test_each_kind_of_error_is_raised_somewhere(name: str) -> None:
    assert any(f"{name}(" in path.read_text(encoding="utf-8") for path in SOURCE.rglob("*.py"))
