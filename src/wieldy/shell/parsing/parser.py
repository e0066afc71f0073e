"""A grammar of bash, strict on purpose: what it does not know for certain is `Unparsable`, never guessed."""

from __future__ import annotations

import re

from wieldy.shell.parsing.budget import Reading
from wieldy.shell.parsing.lexer import ENDINGS, METACHARACTERS, NAME, REDIRECT_STARTS, LineScanner
from wieldy.shell.parsing.syntax import (
    Assignment,
    Branches,
    Chain,
    Command,
    Condition,
    Coprocess,
    Function,
    Group,
    LiteralText,
    Loop,
    Pipeline,
    RawWord,
    Redirect,
    Script,
    Simple,
    Unparsable,
)

_INTEGER_TESTS = frozenset({"-eq", "-ne", "-lt", "-le", "-gt", "-ge"})
_FUNCTION_NAME_COMPOUND = re.compile(r"[\w.:+-]+")


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
        if not _FUNCTION_NAME_COMPOUND.fullmatch(name):
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


MAX_LENGTH = 10_000
DECLARATIONS = frozenset({"declare", "typeset", "local", "export", "readonly"})
_OPENING = ENDINGS | {"{", "if", "while", "until", "for", "select", "case", "function", "coproc", "[[", "in", "!", "]]"}
_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(\[|\+?=)")
_EQUALS = re.compile(r"\+?=")
_FUNCTION_NAME = re.compile(r"[\w.:+-]+")


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
