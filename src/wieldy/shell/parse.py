"""A grammar of bash, strict on purpose: what it does not know for certain is `Unparsable`, never guessed."""

from __future__ import annotations

import re

from wieldy.schema.pattern import pattern
from wieldy.shell.compound import CompoundParser
from wieldy.shell.effort import Reading
from wieldy.shell.lines import ENDINGS, REDIRECT_STARTS
from wieldy.shell.scan import METACHARACTERS
from wieldy.shell.syntax import (
    Assignment,
    Chain,
    Command,
    Function,
    LiteralText,
    Pipeline,
    RawWord,
    Redirect,
    Script,
    Simple,
    Unparsable,
)

MAX_LENGTH = 10_000
DECLARATIONS = frozenset({"declare", "typeset", "local", "export", "readonly"})
_OPENING = ENDINGS | {"{", "if", "while", "until", "for", "select", "case", "function", "coproc", "[[", "in", "!", "]]"}
_ASSIGNMENT = pattern(r"([A-Za-z_][A-Za-z0-9_]*)(\[|\+?=)")
_EQUALS = pattern(r"\+?=")
_FUNCTION_NAME = pattern(r"[\w.:+-]+")


def parse(text: str) -> Script:
    """The script that bash would run for this text."""
    if len(text) > MAX_LENGTH:
        raise Unparsable(f"longer than {MAX_LENGTH} characters")
    return Parser(text, 0, len(text), 0, Reading()).to_limit()


class Parser(CompoundParser):
    """Recursive descent over one script, from chains down to assignments."""

    def __init__(self, text: str, start: int, limit: int, depth: int, reading: Reading) -> None:
        super().__init__(text, start, limit, depth)
        self._reading = reading

    def to_limit(self) -> Script:
        """The whole text as one script."""
        script = self.script()
        if self.at < self.limit:
            raise Unparsable(f"unexpected {self._here()}")
        if self._waiting:
            raise Unparsable("a here-document without its end")
        return script

    def nested(self, text: str, start: int, limit: int) -> Script:
        """A script of its own, such as the text between backticks."""
        return Parser(text, start, limit, self.depth + 1, self._reading).to_limit()

    def enclosed(self) -> Script:
        """The script up to the closing parenthesis, which is consumed."""
        inner = Parser(self.text, self.at, self.limit, self.depth + 1, self._reading)
        script = inner.script()
        if inner.peek() != ")" or inner._waiting:
            raise Unparsable("a parenthesis that is not closed")
        self.at = inner.at + 1
        return script

    def script(self) -> Script:
        """Chains up to the limit, a closing parenthesis, `;;` or a word that ends a compound command."""
        chains: list[Chain] = []
        while True:
            self._line_breaks()
            if not self.peek() or self.peek() == ")" or self.startswith(";") or self._raw() in ENDINGS:
                return Script(tuple(chains))
            links = self._links()
            self._blanks()
            char = self.peek()
            chains.append(Chain(links, background=char == "&"))
            if char in (";", "&") and not self.startswith(";;") and not self.startswith(";&"):
                self._step(1)
            elif char != "\n":
                return Script(tuple(chains))

    def _links(self) -> tuple[tuple[str, Pipeline], ...]:
        links = [("", self._pipeline())]
        while True:
            self._blanks()
            if not self.startswith("&&") and not self.startswith("||"):
                return tuple(links)
            operator = self.text[self.at : self.at + 2]
            self._step(2)
            self._line_breaks()
            links.append((operator, self._pipeline()))

    def _pipeline(self) -> Pipeline:
        timed = False
        while (word := self._raw()) in ("!", "time"):
            self.at += len(word)
            self._blanks()
            if word == "time":
                timed = True
                while self._raw() in ("-p", "--"):
                    self.at += 2
                    self._blanks()
        stages = [self._command()]
        while True:
            self._blanks()
            if self.peek() != "|" or self.peek(1) == "|":
                return Pipeline(tuple(stages), timed)
            self._step(2 if self.peek(1) == "&" else 1)
            self._line_breaks()
            stages.append(self._command())

    def _command(self) -> Command:
        self._blanks()
        if self.peek() == "(":
            self._reading.compound()
            return self._parenthesis()
        if (word := self._raw()) not in _OPENING:
            return self._simple()
        self._reading.compound()
        match word:
            case "{":
                return self._braces()
            case "if":
                return self._if()
            case "while" | "until":
                return self._while()
            case "for" | "select":
                return self._for()
            case "case":
                return self._case()
            case "function":
                return self._function()
            case "coproc":
                return self._coproc()
            case "[[":
                return self._test()
        raise Unparsable(f"unexpected `{word}`")

    def _simple(self) -> Command:
        start = end = self.at
        assignments: list[Assignment] = []
        words: list[RawWord] = []
        redirects: list[Redirect] = []
        while True:
            if words and words[0].source not in DECLARATIONS and self.whole_words(words):
                end = self.at
            self._blanks()
            char = self.peek()
            if char in REDIRECT_STARTS and self._redirect(redirects):
                end = self.at
                continue
            if not char or (char in METACHARACTERS and not (char in "<>" and self.peek(1) == "(")):
                break
            declared = words and words[0].source in DECLARATIONS
            if (not words or declared) and (found := _ASSIGNMENT.match(self.text, self.at, self.limit)):
                one = self._assignment(found)
                if declared:
                    words.append(_as_word(one, self.text))
                else:
                    assignments.append(one)
            else:
                words.append(self.word())
            end = self.at
        if self.peek() == "(":
            return self._function_after(words, plain=not assignments and not redirects)
        if not (assignments or words or redirects):
            raise Unparsable(f"a command is missing at {self._here()}")
        source = self.text[start:end]
        self._reading.simple(source)
        return Simple(tuple(assignments), tuple(words), tuple(redirects), source, start, end)

    def _assignment(self, found: re.Match[str]) -> Assignment:
        start, name, subscript = self.at, found.group(1), None
        self.at = found.end()
        if found.group(2) == "[":
            end = self._find("]", self.at)
            begin = self.at
            subscript = RawWord(self.expansions(end), self.text[begin:end], begin, end)
            self.at = end + 1
            if not (operator := _EQUALS.match(self.text, self.at, self.limit)):
                raise Unparsable("a subscript outside an assignment")
            self.at = operator.end()
        if self.peek() == "(":
            items = self._array()
            return Assignment(name, None, items, subscript, start, self.at)
        char = self.peek()
        empty = not char or (char in METACHARACTERS and not (char in "<>" and self.peek(1) == "("))
        value = None if empty else self.word()
        return Assignment(name, value, (), subscript, start, self.at)

    def _array(self) -> tuple[RawWord, ...]:
        self.at += 1
        items: list[RawWord] = []
        while True:
            self._line_breaks()
            if self.peek() == ")":
                self.at += 1
                return tuple(items)
            if self.peek() == "[":
                raise Unparsable("an array with subscripts")
            items.append(self.word())

    def _function_after(self, words: list[RawWord], *, plain: bool) -> Function:
        self._step(1)
        self._blanks()
        if len(words) != 1 or not plain or self.peek() != ")" or not _FUNCTION_NAME.fullmatch(words[0].source):
            raise Unparsable("an unexpected parenthesis")
        self.at += 1
        return self._function_body(words[0].source)


def _as_word(one: Assignment, text: str) -> RawWord:
    """An assignment among the arguments of `export` and its kin, as the word it is."""
    words = [word for word in (one.subscript, one.value, *one.items) if word is not None]
    pieces = tuple(piece for word in words for piece in word.pieces)
    name = one.name + ("[…]=" if one.subscript else "=")
    return RawWord((LiteralText(name, False), *pieces), text[one.start : one.end], one.start, one.end)
