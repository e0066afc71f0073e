"""The status line: mode, model, context, cost and background work."""

from __future__ import annotations

from msgspec import Struct

from wieldy.terminal.text import Row, TextSpan, clip_row, make_printable

MODE_STYLES = {"acceptEdits": "magenta", "plan": "blue", "bypassPermissions": "red bold", "dontAsk": "yellow"}
MODE_LABELS = {"acceptEdits": "accept edits", "bypassPermissions": "bypass permissions", "dontAsk": "don't ask"}


class Status(Struct, frozen=True):
    """What the status line says. `context` is the part of the window in use; `line` replaces everything but the mode."""

    mode: str
    model: str = ""
    context: float | None = None
    cost: float = 0.0
    shells: int = 0
    agents: int = 0
    line: str = ""


def status_row(status: Status, hint: str, width: int) -> Row:
    """Lay out the status line; `hint` says which key matters now."""
    spans: list[TextSpan] = [
        TextSpan("  "),
        TextSpan(MODE_LABELS.get(status.mode, status.mode), MODE_STYLES.get(status.mode, "dim")),
    ]
    if status.line:
        parts = [make_printable(status.line).replace("\n", " ")]
    else:
        parts = [make_printable(status.model)] if status.model else []
        if status.context is not None:
            parts.append(f"{status.context * 100:.0f} % context")
        if status.cost:
            parts.append(f"${status.cost:.2f}" if status.cost >= 0.1 else f"${status.cost:.4f}")
        if status.shells:
            parts.append("1 shell" if status.shells == 1 else f"{status.shells} shells")
        if status.agents:
            parts.append("1 agent" if status.agents == 1 else f"{status.agents} agents")
    parts += [hint] if hint else []
    spans += [TextSpan(f" · {part}", "dim") for part in parts]
    return clip_row(tuple(spans), max(width - 1, 10))
