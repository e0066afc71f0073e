"""What a scripted model says: turns of words and calls, and how fast they come."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

Tool: TypeAlias = Literal["read", "shell"]
"""The two tools every agent has under some name; what they take is a path or a command."""


@dataclass(frozen=True, slots=True)
class Say:
    """Words, in pieces of `piece` characters (0: at once), each after `delay` seconds."""

    text: str
    piece: int = 0
    delay: float = 0.0


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a tool with its one argument."""

    tool: Tool
    argument: str


Turn: TypeAlias = tuple[Say | Call, ...]


@dataclass(frozen=True, slots=True)
class Scenario:
    """A whole conversation. The very first word comes after `thought` seconds; results must hold `expected`."""

    name: str
    turns: tuple[Turn, ...]
    thought: float = 0.0
    expected: str = ""

    def turn_after(self, results: int) -> Turn | None:
        """The turn that follows when so many calls have results; None when no turn begins there."""
        called = 0
        for turn in self.turns:
            if called == results:
                return turn
            called += sum(isinstance(part, Call) for part in turn)
        return None


DONE: Turn = (Say("done"),)
SMALL, LARGE = "small file", "large file"
FEW, MANY = 250, 3250
MARK = "mark"


def hello() -> Scenario:
    """One request, one word."""
    return Scenario("hello", ((Say("hello"),),))


def reads(folder: str, thought: float) -> Scenario:
    """Fifty turns with a read each."""
    turns: list[Turn] = [(Say("Next."), Call("read", f"{folder}/small{i}.txt")) for i in range(50)]
    return Scenario("reads", (*turns, DONE), thought, expected=SMALL)


def commands(thought: float) -> Scenario:
    """Fifty turns with a command each."""
    turns: list[Turn] = [(Say("Next."), Call("shell", f"echo line {i}")) for i in range(50)]
    return Scenario("commands", (*turns, DONE), thought, expected="line ")


def growth(folder: str) -> Scenario:
    """Two hundred turns with 20 KB each: the last request holds four megabytes."""
    turns: list[Turn] = [(Say("Next."), Call("read", f"{folder}/large{i}.txt")) for i in range(200)]
    return Scenario("growth", (*turns, DONE), expected=LARGE)


def sleeps(thought: float) -> Scenario:
    """Five commands in one turn that sleep half a second each."""
    calls = tuple(Call("shell", f"sleep 0.5; echo slept {i}") for i in range(5))
    return Scenario(_after("sleeps", thought), ((Say("Five."), *calls), DONE), thought, expected="slept ")


def ten_reads(folder: str, thought: float) -> Scenario:
    """Ten reads in one turn."""
    calls = tuple(Call("read", f"{folder}/small{i}.txt") for i in range(10))
    return Scenario(_after("ten reads", thought), ((Say("Ten."), *calls), DONE), thought, expected=SMALL)


def overlap(folder: str, thought: float) -> Scenario:
    """A command that says when it began, complete long before the model has stopped speaking."""
    call = Call("shell", f"echo $EPOCHREALTIME > {folder}/{MARK}; echo marked")
    speech = Say("word " * 60, piece=10, delay=0.03)
    return Scenario(_after("overlap", thought), ((call, speech), DONE), thought, expected="marked")


def pieces(count: int) -> Scenario:
    """An answer in many pieces."""
    return Scenario(f"{count} pieces", ((Say("word" * count, piece=4, delay=0.001),),))


def _after(name: str, thought: float) -> str:
    return name if thought else f"{name}, at once"
