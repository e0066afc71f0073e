import inspect

import pytest

from wieldy.core.schema.fields import parse_docstring, prose

GOOGLE = """Find files.

    A second paragraph: with a colon.

    Args:
        path: Where to look.
        limit (int, optional): How many,
            at most.
        **extra: Anything else.

    Returns:
        A list.

    Raises:
        ValueError: If not.

    Note:
        Kept, as it is for the reader.
    """

NUMPY = """Find files.

    Parameters
    ----------
    path : str
        Where to look.
    low, high : int
        The bounds.

    Returns
    -------
    list
        The names.
    """

SPHINX = """Find files.

    :param path: Where to look.
    :param int limit: How many,
        at most.
    :type path: str
    :returns: A list.
    :raises ValueError: If not.
    """


def test_google_style_is_taken_apart():
    doc = parse_docstring(GOOGLE)
    assert doc.about == {"path": "Where to look.", "limit": "How many, at most.", "extra": "Anything else."}
    assert doc.prose == (
        "Find files.\n\nA second paragraph: with a colon.\n\nNote:\n    Kept, as it is for the reader."
    )


def test_numpy_style_is_taken_apart():
    doc = parse_docstring(NUMPY)
    assert doc.about == {"path": "Where to look.", "low": "The bounds.", "high": "The bounds."}
    assert doc.prose == "Find files."


def test_sphinx_style_is_taken_apart():
    doc = parse_docstring(SPHINX)
    assert doc.about == {"path": "Where to look.", "limit": "How many, at most."}
    assert doc.prose == "Find files."


@pytest.mark.parametrize(
    "doc",
    [
        "",
        "One line.",
        "Two.\n\n    Lines here.\n",
        "\n    Begins below.\n      Indented: more.\n    ",
        "Tabs.\n\n\tInside.\n",
    ],
)
def test_a_docstring_without_sections_is_cleaned_as_python_cleans_it(doc):
    assert prose(doc) == inspect.cleandoc(doc).strip()


def test_a_description_with_a_colon_in_it_is_kept_whole():
    assert parse_docstring("X.\n\nArgs:\n    url: Like http://host:80/x: all of it.\n").about == {
        "url": "Like http://host:80/x: all of it."
    }


def test_sections_without_an_empty_line_before_them_are_found():
    doc = parse_docstring("Do.\nArgs:\n    a: First.\nReturns:\n    It.\n")
    assert (doc.prose, doc.about) == ("Do.", {"a": "First."})


def test_no_docstring_says_nothing():
    assert (parse_docstring(None).prose, parse_docstring(None).about) == ("", {})
