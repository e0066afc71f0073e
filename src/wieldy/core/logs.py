"""Loggers for what goes wrong where nobody asked. `logging` takes long to load, and is loaded when there is something to say."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    import logging


class Logger:
    """Stands for the logger of that name. One that is quiet says nothing where nobody has set up logging."""

    def __init__(self, name: str, *, quiet: bool = False) -> None:
        self._name = name
        self._quiet = quiet

    def debug(self, *said: Any, **how: Any) -> None:
        """Details. Where `logging` is not loaded, nobody can have asked to hear them."""
        if "logging" in sys.modules:
            self.__getattr__("debug")(*said, **how)

    def __getattr__(self, name: str) -> Any:
        import logging

        logger = logging.getLogger(self._name)
        if self._quiet and not logger.handlers:
            logger.addHandler(logging.NullHandler())
        return getattr(logger, name)


log = cast("logging.Logger", Logger("wieldy", quiet=True))
