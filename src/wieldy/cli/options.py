"""Plain command lines are read without argparse, which takes long to load, from the same declarations.

Whatever is not plain, and whatever is wrong, is left to argparse: it has the words for it, and they are the same everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from argparse import ArgumentParser

# Takes what `ArgumentParser.add_argument` takes; an option without help is not shown.
Add: TypeAlias = Callable[..., None]


def tell(parser: ArgumentParser, declare: Callable[[Add], None]) -> None:
    """Tell argparse of the options."""
    from argparse import SUPPRESS

    def add(*names: str, help: str = SUPPRESS, **how: Any) -> None:
        parser.add_argument(*names, help=help, **how)

    declare(add)


def read(declare: Callable[[Add], None], words: Sequence[str]) -> SimpleNamespace | None:
    """A plain command line, `prompt` being all words that are neither options nor their values; None for one to argparse.

    Plain are whole names of options, each with its value in the next word, where that looks like no option.
    """
    found = SimpleNamespace(prompt=[])
    known: dict[str, Mapping[str, Any]] = {}

    def add(*names: str, **how: Any) -> None:
        option = {"dest": _field(names), **how}
        known.update((name, option) for name in names)
        setattr(found, option["dest"], _default(option))

    try:
        declare(add)
        rest = iter(words)
        for word in rest:
            if not word.startswith("-"):
                found.prompt.append(word)
            elif (option := known[word]).get("action") == "store_true":
                setattr(found, option["dest"], True)
            else:
                _take(found, option, next(rest))
    except Exception:  # an option or a value that is wrong, or that is written in another way
        return None
    return found


def _field(names: Sequence[str]) -> str:
    long = next(name for name in names if name.startswith("--"))
    return long.removeprefix("--").replace("-", "_")


def _default(option: Mapping[str, Any]) -> Any:
    action, value = option.get("action"), option.get("default")
    if action == "store_true":
        return False
    if action == "append":
        return []
    return option["type"](value) if isinstance(value, str) and "type" in option else value


def _take(found: SimpleNamespace, option: Mapping[str, Any], word: str) -> None:
    if word.startswith("-") or word not in option.get("choices", (word,)):
        raise ValueError(word)
    value = option.get("type", str)(word)
    if option.get("action") == "append":
        getattr(found, option["dest"]).append(value)
    else:
        setattr(found, option["dest"], value)
