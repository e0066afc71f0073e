"""What a call does to the world, as a tool declares it, and what a command does."""

from wieldy.core.effects import Fetches, Opaque, Reads, Runs, Writes
from wieldy.shell.effects.analysis import classify

__all__ = ["Fetches", "Opaque", "Reads", "Runs", "Writes", "classify"]
