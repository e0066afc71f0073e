"""Where something is written: the layer, the file and the line."""

from __future__ import annotations

from typing import Literal, TypeAlias

from wieldy.core.record import record

Layer: TypeAlias = Literal["managed", "command line", "code", "local", "project", "user", "session"]


@record
class Origin:
    """A place in the settings. `folder` is where a path rule that begins with `/` starts."""

    layer: Layer = "code"
    file: str | None = None
    line: int | None = None
    folder: str | None = None

    def __str__(self) -> str:
        if self.file is None:
            return self.layer
        return f"{self.file}:{self.line}" if self.line else self.file


IN_CODE = Origin()
IN_SESSION = Origin("session")
