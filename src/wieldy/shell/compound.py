"""Compound commands: groups, branches, loops, functions and tests."""

from __future__ import annotations

import re

from wieldy.schema.pattern import pattern
from wieldy.shell.lines import LineScanner
from wieldy.shell.scan import NAME
from wieldy.shell.syntax import (
    Branches,
    Command,
    Condition,
    Coprocess,
    Function,
    Group,
    Loop,
    RawWord,
    Script,
    Simple,
    Unparsable,
)

_INTEGER_TESTS = frozenset({"-eq", "-ne", "-lt", "-le", "-gt", "-ge"})
_FUNCTION_NAME = pattern(r"[\w.:+-]+")


class CompoundParser(LineScanner):
    """Reads what a reserved word or a parenthesis begins; the commands inside are left to the whole grammar."""

    _last = ""

    def script(self) -> Script:
        """Chains up to something that ends a script."""
        raise NotImplementedError

    def _command(self) -> Command:
        raise NotImplementedError

    def _parenthesis(self) -> Command:
        if self.startswith("((") and (end := self.arithmetic_end(self.at + 2)) is not None:
            self.at += 2
            start = self.at
            inside = self.arithmetic(end, quoted=True)
            word = RawWord((inside,), self.text[start:end], start, end)
            self.at = end + 2
            return Condition((word,), inside.hazard, self._redirects())
        self._step(1)
        body = self.enclosed()
        if not body.chains:
            raise Unparsable("an empty subshell")
        return Group(body, True, self._redirects())

    def _braces(self) -> Command:
        self.at += 1
        body = self._body("}")
        return Group(body, False, self._redirects())

    def _if(self) -> Command:
        self.at += 2
        bodies = [self._body("then"), self._body("elif", "else", "fi")]
        while (word := self._last) != "fi":
            if word == "elif":
                bodies.append(self._body("then"))
                bodies.append(self._body("elif", "else", "fi"))
            else:
                bodies.append(self._body("fi"))
        return Branches(tuple(bodies), (), self._redirects())

    def _while(self) -> Command:
        self.at += 5
        condition = self._body("do")
        body = self._body("done")
        return Loop(body, condition, redirects=self._redirects())

    def _for(self) -> Command:
        self.at += len(self._raw())
        self._blanks()
        if self.startswith("(("):
            return self._arithmetic_for()
        name = self._raw()
        if not NAME.fullmatch(name):
            raise Unparsable("a loop without a variable")
        self.at += len(name)
        self._line_breaks()
        words: list[RawWord] | None = None
        if self._raw() == "in":
            self.at += 2
            words = []
            self._blanks()
            while self.peek() not in ("", "\n", ";"):
                words.append(self.word())
                self._blanks()
        body = self._loop_body()
        return Loop(body, None, name, None if words is None else tuple(words), redirects=self._redirects())

    def _arithmetic_for(self) -> Command:
        end = self.arithmetic_end(self.at + 2)
        if end is None:
            raise Unparsable("a loop header that is not closed")
        self.at += 2
        text = self.text[self.at : end]
        # The two semicolons separate expressions; the check of each is the check of all.
        header = self.arithmetic(end, quoted=True)
        if text.count(";") != 2:
            raise Unparsable("a loop header without its three parts")
        self.at = end + 2
        return Loop(self._loop_body(), header=header, redirects=self._redirects())

    def _loop_body(self) -> Script:
        self._blanks()
        if self.peek() == ";":
            self._step(1)
        self._line_breaks()
        word = self._raw()
        if word not in ("do", "{"):
            raise Unparsable("a loop without `do`")
        self.at += len(word)
        return self._body("done" if word == "do" else "}")

    def _case(self) -> Command:
        self.at += 4
        self._blanks()
        words = [self.word()]
        self._line_breaks()
        self._expect("in")
        bodies: list[Script] = []
        while True:
            self._line_breaks()
            if self._raw() == "esac":
                self.at += 4
                return Branches(tuple(bodies), tuple(words), self._redirects())
            if self.peek() == "(":
                self._step(1)
                self._blanks()
            words.append(self.word())
            self._blanks()
            while self.peek() == "|":
                self._step(1)
                self._blanks()
                words.append(self.word())
                self._blanks()
            if self.peek() != ")":
                raise Unparsable("a case pattern that is not closed")
            self.at += 1
            bodies.append(self.script())
            self._blanks()
            if found := next((mark for mark in (";;&", ";;", ";&") if self.startswith(mark)), ""):
                self.at += len(found)
            elif self._raw() != "esac":
                raise Unparsable("a case that is not closed")

    def _function(self) -> Command:
        self.at += 8
        self._blanks()
        name = self._raw()
        if not _FUNCTION_NAME.fullmatch(name):
            raise Unparsable("a function without a plain name")
        self.at += len(name)
        self._blanks()
        if self.peek() == "(":
            self._step(1)
            self._blanks()
            self._expect_text(")")
        return self._function_body(name)

    def _function_body(self, name: str) -> Function:
        self._line_breaks()
        body = self._command()
        if isinstance(body, Simple | Function | Coprocess):
            raise Unparsable("a function without a body")
        return Function(name, body)

    def _coproc(self) -> Command:
        self.at += 6
        self._blanks()
        name = self._raw()
        behind = self.text[self.at + len(name) : self.limit].lstrip(" \t")
        if NAME.fullmatch(name) and re.match(r"[({]|\[\[|(if|while|until|for|case|select)\s", behind):
            self.at += len(name)
            self._blanks()
        return Coprocess(self._command())

    def _test(self) -> Command:
        self.at += 2
        words: list[RawWord] = []
        depth = 0
        while True:
            self._line_breaks()
            if self._raw() == "]]" and not depth:
                self.at += 2
                return Condition(tuple(words), _test_hazard(words), self._redirects())
            char = self.peek()
            if self.startswith(("&&", "||")):
                self.at += 2
            elif char in ("(", ")"):
                depth += 1 if char == "(" else -1
                self.at += 1
            elif char in ("<", ">") and self.peek(1) != "(":
                self.at += 1
            elif not char or char in ";&|":
                raise Unparsable("a test that is not closed")
            else:
                words.append(self.word(regex=bool(words) and words[-1].source == "=~"))

    def _body(self, *ends: str) -> Script:
        script = self.script()
        self._blanks()
        word = self._raw()
        if word not in ends or not script.chains:
            raise Unparsable(f"`{ends[-1]}` is missing")
        self.at += len(word)
        self._last = word
        return script


def _test_hazard(words: list[RawWord]) -> str:
    for index, word in enumerate(words):
        if word.source in ("-v", "-R"):
            return "a test for a variable can run code in a subscript"
        if word.source in _INTEGER_TESTS:
            sides = [*words[max(index - 1, 0) : index], *words[index + 1 : index + 2]]
            if not all(side.source.isdecimal() for side in sides):
                return "a numeric test in [[ ]] can run code held in a variable"
    return ""
