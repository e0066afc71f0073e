"""A strict recursive-descent parser for bash: it raises `Unparsable` for every form it does not know for certain."""

from __future__ import annotations

import re

from wieldy.shell.parsing.syntax import (
    AndOrList,
    Arithmetic,
    Assignment,
    BranchCommand,
    Command,
    ConditionCommand,
    Coprocess,
    Expansion,
    FunctionDefinition,
    GroupCommand,
    LiteralText,
    LoopCommand,
    Piece,
    Pipeline,
    RawWord,
    Redirect,
    ShellScript,
    SimpleCommand,
    Substitution,
    TooComplex,
    Unparsable,
    Variable,
)

MAX_LENGTH = 10_000
MAX_DEPTH = 24
# The work one command line may cause, in units found by measuring; `bench/shell_analysis.py` checks the time it takes.
MAX_WORK = 1_400
REPEATED_COMMAND_WORK, COMPOUND_COMMAND_WORK, NEW_COMMAND_WORK = 1, 3, 5

DECLARATIONS = frozenset({"declare", "typeset", "local", "export", "readonly"})
_CLOSING_WORDS = frozenset({"then", "do", "done", "fi", "elif", "else", "esac", "}"})
_RESERVED_WORDS = _CLOSING_WORDS | {
    *("{", "if", "while", "until", "for", "select", "case", "function", "coproc", "[[", "in", "!", "]]")
}
_INTEGER_TESTS = frozenset({"-eq", "-ne", "-lt", "-le", "-gt", "-ge"})
_UNARY_TEST = re.compile(r"-[abcdefghknoprstuvwxzGLNORS]")
_BINARY_TESTS = _INTEGER_TESTS | {"=", "==", "!=", "=~", "-nt", "-ot", "-ef"}
_METACHARACTERS = frozenset(" \t\n;&|()<>")
_REDIRECT_STARTS = frozenset("<>&{0123456789")

_BLANKS = re.compile(r"(?:[ \t]|\\\n)+")
_RAW_WORD = re.compile(r"[^\s;&|()<>]++(?![<>]\()")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_FUNCTION_NAME = re.compile(r"[\w.:+-]+")
_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(\[|\+?=)")
_EQUALS = re.compile(r"\+?=")
_REDIRECT = re.compile(r"([0-9]*)(<<<|<<-|<<|<&|<>|>>|>&|>\||<|>)|(&>>|&>)")
_DESCRIPTOR = re.compile(r"(?:[0-9]+|\{[A-Za-z_]\w*\})[<>]")
_NAMED_DESCRIPTOR = re.compile(r"\{[A-Za-z_]\w*(\[.*\])?\}[<>]", re.DOTALL)
_UNQUOTED_TEXT = re.compile(r"(?:[^\s;&|()<>\\'\"$`?*+@!]|[?*+@!](?!\())+")
_DOUBLE_QUOTED_TEXT = re.compile(r"[^\"\\$`]+")
_HEREDOC_TEXT = re.compile(r"[^\\$`]+")
_PARAMETER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*|[0-9]+|[@*#?$!-]")
_UNBRACED_PARAMETER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*|[0-9@*#?$!-]")
_OPERATOR = re.compile(r":?[-=?+]|##?|%%?|//|/[#%]?|\^\^?|,,?")
_SLICE = re.compile(r":\s*-?\s*[0-9]+\s*(?::\s*-?[0-9]+\s*)?")
_SAFE_ARITHMETIC = re.compile(r"[\s0-9+\-*/%<>=!&|^~?:,()]*")
_ANSI_C_ESCAPE = re.compile(
    r"\\(?:x([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{1,4})|U([0-9a-fA-F]{1,8})|([0-7]{1,3})|(c.)|(.))", re.DOTALL
)
_NAMED_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "e": "\x1b", "E": "\x1b", "f": "\f", "v": "\v"}


def parse(text: str) -> ShellScript:
    """The script that bash would run for this text. Raises `Unparsable`."""
    if len(text) > MAX_LENGTH:
        raise Unparsable(f"longer than {MAX_LENGTH} characters")
    return _Parser(text, 0, len(text), 0, _WorkBudget()).to_limit()


class _WorkBudget:
    """Counts the commands of a text, nested ones included. A repeated command is cheap: its words are the same."""

    def __init__(self) -> None:
        self._work = 0
        self._sources: set[str] = set()

    def add_compound(self) -> None:
        self._spend(COMPOUND_COMMAND_WORK)

    def add_simple(self, source: str) -> None:
        self._spend(REPEATED_COMMAND_WORK if source in self._sources else NEW_COMMAND_WORK)
        self._sources.add(source)

    def _spend(self, work: int) -> None:
        self._work += work
        if self._work > MAX_WORK:
            raise TooComplex


class _Parser:
    """A position in a text and the limit it must not pass; methods read what starts at the position."""

    def __init__(self, text: str, start: int, limit: int, depth: int, budget: _WorkBudget) -> None:
        if depth > MAX_DEPTH:
            raise Unparsable("nested too deeply")
        self.text = text
        self.at = start
        self.limit = limit
        self.depth = depth
        self._budget = budget
        self._pending_heredocs: list[Redirect] = []
        self._closing_word = ""

    # Scripts, lists and pipelines

    def to_limit(self) -> ShellScript:
        script = self.script()
        if self.at < self.limit:
            raise Unparsable(f"unexpected {self._excerpt()}")
        if self._pending_heredocs:
            raise Unparsable("a here-document without its end")
        return script

    def _nested(self, text: str, start: int, limit: int) -> ShellScript:
        """A script with limits of its own, such as the text between backticks."""
        return _Parser(text, start, limit, self.depth + 1, self._budget).to_limit()

    def _to_parenthesis(self) -> ShellScript:
        """The script up to the closing parenthesis, which is consumed."""
        inner = _Parser(self.text, self.at, self.limit, self.depth + 1, self._budget)
        script = inner.script()
        if inner._peek() != ")" or inner._pending_heredocs:
            raise Unparsable("a parenthesis that is not closed")
        self.at = inner.at + 1
        return script

    def script(self) -> ShellScript:
        """And-or lists up to the limit, a closing parenthesis, `;;` or a word that ends a compound command."""
        lists: list[AndOrList] = []
        while True:
            self._skip_lines()
            if self._peek() in ("", ")", ";") or self._raw_word() in _CLOSING_WORDS:
                return ShellScript(tuple(lists))
            links = self._links()
            self._skip_blanks()
            char = self._peek()
            lists.append(AndOrList(links, background=char == "&"))
            if char in (";", "&") and not self._startswith((";;", ";&")):
                self._skip_operator(1)
            elif char != "\n":
                return ShellScript(tuple(lists))

    def _links(self) -> tuple[tuple[str, Pipeline], ...]:
        links = [("", self._pipeline())]
        while True:
            self._skip_blanks()
            if not self._startswith(("&&", "||")):
                return tuple(links)
            operator = self.text[self.at : self.at + 2]
            self._skip_operator(2)
            self._skip_lines()
            links.append((operator, self._pipeline()))

    def _pipeline(self) -> Pipeline:
        negated = False
        while (word := self._raw_word()) in ("!", "time"):
            self.at += len(word)
            negated ^= word == "!"
            self._skip_blanks()
            for option in ("-p", "--"):
                if word == "time" and self._raw_word() == option:
                    self.at += 2
                    self._skip_blanks()
        stages = [self._command()]
        while True:
            self._skip_blanks()
            if self._peek() != "|" or self._peek(1) == "|":
                return Pipeline(tuple(stages), negated)
            self._skip_operator(2 if self._peek(1) == "&" else 1)
            self._skip_lines()
            stages.append(self._command())

    # Simple commands

    def _command(self) -> Command:
        self._skip_blanks()
        if self._peek() == "(":
            self._budget.add_compound()
            return self._parenthesis()
        if (word := self._raw_word()) not in _RESERVED_WORDS:
            return self._simple_command()
        self._budget.add_compound()
        match word:
            case "{":
                self.at += 1
                body = self._body("}")
                return GroupCommand(body, False, self._trailing_redirects())
            case "if":
                return self._if()
            case "while" | "until":
                self.at += 5
                condition = self._body("do")
                body = self._body("done")
                return LoopCommand(body, condition, redirects=self._trailing_redirects())
            case "for" | "select":
                return self._for()
            case "case":
                return self._case()
            case "function":
                return self._function()
            case "coproc":
                return self._coproc()
            case "[[":
                return self._condition()
        raise Unparsable(f"unexpected `{word}`")

    def _simple_command(self) -> Command:
        start = end = self.at
        assignments: list[Assignment] = []
        words: list[RawWord] = []
        redirects: list[Redirect] = []
        while True:
            self._skip_blanks()
            if self._peek() in _REDIRECT_STARTS and self._redirect(redirects):
                end = self.at
                continue
            if self._at_word_end():
                break
            in_declaration = bool(words) and words[0].source in DECLARATIONS
            match = _ASSIGNMENT.match(self.text, self.at, self.limit) if not words or in_declaration else None
            if match is None:
                words.append(self._word())
            elif in_declaration:
                words.append(self._assignment_as_word(match))
            else:
                assignments.append(self._assignment(match))
            end = self.at
        if self._peek() == "(":
            return self._function_after(words, plain=not assignments and not redirects)
        if not (assignments or words or redirects):
            raise Unparsable(f"a command is missing at {self._excerpt()}")
        source = self.text[start:end]
        self._budget.add_simple(source)
        return SimpleCommand(tuple(assignments), tuple(words), tuple(redirects), source, start, end)

    def _assignment(self, match: re.Match[str]) -> Assignment:
        start, name, subscript = self.at, match.group(1), None
        self.at = match.end()
        if match.group(2) == "[":
            end = self._find("]", self.at)
            begin = self.at
            subscript = RawWord(self._expansions(end), self.text[begin:end], begin, end)
            self.at = end + 1
            if not (operator := _EQUALS.match(self.text, self.at, self.limit)):
                raise Unparsable("a subscript outside an assignment")
            self.at = operator.end()
        if self._peek() == "(":
            items = self._array()
            return Assignment(name, None, items, subscript, start, self.at)
        value = None if self._at_word_end() else self._word()
        return Assignment(name, value, (), subscript, start, self.at)

    def _assignment_as_word(self, match: re.Match[str]) -> RawWord:
        """An assignment among the arguments of `export` and the like, which are words."""
        assignment = self._assignment(match)
        name = assignment.name + ("[…]=" if assignment.subscript else "=")
        pieces = (piece for word in assignment.all_words for piece in word.pieces)
        source = self.text[assignment.start : assignment.end]
        return RawWord((LiteralText(name, False), *pieces), source, assignment.start, assignment.end)

    def _array(self) -> tuple[RawWord, ...]:
        self.at += 1
        items: list[RawWord] = []
        while True:
            self._skip_lines()
            if self._peek() == ")":
                self.at += 1
                return tuple(items)
            if self._peek() == "[":
                raise Unparsable("an array with subscripts")
            items.append(self._word())

    # Compound commands

    def _body(self, *ends: str) -> ShellScript:
        """A script that is not empty, and the word that closes it."""
        script = self.script()
        self._skip_blanks()
        word = self._raw_word()
        if word not in ends or not script.and_or_lists:
            raise Unparsable(f"`{ends[-1]}` is missing")
        self.at += len(word)
        self._closing_word = word
        return script

    def _parenthesis(self) -> Command:
        if self._startswith("((") and (end := self._arithmetic_end(self.at + 2)) is not None:
            self.at += 2
            start = self.at
            arithmetic = self._arithmetic(end, quoted=True)
            word = RawWord((arithmetic,), self.text[start:end], start, end)
            self.at = end + 2
            return ConditionCommand((word,), arithmetic.hazard, self._trailing_redirects())
        self._skip_operator(1)
        body = self._to_parenthesis()
        if not body.and_or_lists:
            raise Unparsable("an empty subshell")
        return GroupCommand(body, True, self._trailing_redirects())

    def _if(self) -> Command:
        self.at += 2
        bodies = [self._body("then"), self._body("elif", "else", "fi")]
        while (word := self._closing_word) != "fi":
            if word == "elif":
                bodies.append(self._body("then"))
                bodies.append(self._body("elif", "else", "fi"))
            else:
                bodies.append(self._body("fi"))
        return BranchCommand(tuple(bodies), (), self._trailing_redirects())

    def _for(self) -> Command:
        keyword = self._raw_word()
        self.at += len(keyword)
        self._skip_blanks()
        if self._startswith("(("):
            return self._arithmetic_for()
        name = self._raw_word()
        if not _NAME.fullmatch(name):
            raise Unparsable("a loop without a variable")
        self.at += len(name)
        self._skip_lines()
        words: list[RawWord] | None = None
        if self._raw_word() == "in":
            self.at += 2
            words = []
            self._skip_blanks()
            while self._peek() not in ("", "\n", ";"):
                words.append(self._word())
                self._skip_blanks()
        body = self._loop_body()
        values = None if words is None else tuple(words)
        redirects = self._trailing_redirects()
        return LoopCommand(body, None, name, values, redirects=redirects, select=keyword == "select")

    def _arithmetic_for(self) -> Command:
        end = self._arithmetic_end(self.at + 2)
        if end is None:
            raise Unparsable("a loop header that is not closed")
        self.at += 2
        text = self.text[self.at : end]
        header = self._arithmetic(end, quoted=True)
        if text.count(";") != 2:
            raise Unparsable("a loop header without its three parts")
        self.at = end + 2
        return LoopCommand(self._loop_body(), header=header, redirects=self._trailing_redirects())

    def _loop_body(self) -> ShellScript:
        self._skip_blanks()
        if self._peek() == ";":
            self._skip_operator(1)
        self._skip_lines()
        word = self._raw_word()
        if word not in ("do", "{"):
            raise Unparsable("a loop without `do`")
        self.at += len(word)
        return self._body("done" if word == "do" else "}")

    def _case(self) -> Command:
        self.at += 4
        self._skip_blanks()
        words = [self._word()]
        self._skip_lines()
        if self._raw_word() != "in":
            raise Unparsable("`in` is missing")
        self.at += 2
        bodies: list[ShellScript] = []
        while True:
            self._skip_lines()
            if self._raw_word() == "esac":
                self.at += 4
                return BranchCommand(tuple(bodies), tuple(words), self._trailing_redirects())
            if self._peek() == "(":
                self._skip_operator(1)
                self._skip_blanks()
            words.append(self._word())
            self._skip_blanks()
            while self._peek() == "|":
                self._skip_operator(1)
                self._skip_blanks()
                words.append(self._word())
                self._skip_blanks()
            if self._peek() != ")":
                raise Unparsable("a case pattern that is not closed")
            self.at += 1
            bodies.append(self.script())
            self._skip_blanks()
            if terminator := next((mark for mark in (";;&", ";;", ";&") if self._startswith(mark)), ""):
                self.at += len(terminator)
            elif self._raw_word() != "esac":
                raise Unparsable("a case that is not closed")

    def _function(self) -> Command:
        self.at += 8
        self._skip_blanks()
        name = self._raw_word()
        if not _FUNCTION_NAME.fullmatch(name):
            raise Unparsable("a function without a plain name")
        self.at += len(name)
        self._skip_blanks()
        if self._peek() == "(":
            self._skip_operator(1)
            self._skip_blanks()
            if self._peek() != ")":
                raise Unparsable("`)` is missing")
            self.at += 1
        return self._function_body(name)

    def _function_after(self, words: list[RawWord], *, plain: bool) -> FunctionDefinition:
        """The rest of a definition `name() …`, from the parenthesis on."""
        self._skip_operator(1)
        self._skip_blanks()
        if len(words) != 1 or not plain or self._peek() != ")" or not _FUNCTION_NAME.fullmatch(words[0].source):
            raise Unparsable("an unexpected parenthesis")
        self.at += 1
        return self._function_body(words[0].source)

    def _function_body(self, name: str) -> FunctionDefinition:
        self._skip_lines()
        body = self._command()
        if isinstance(body, SimpleCommand | FunctionDefinition | Coprocess):
            raise Unparsable("a function without a body")
        return FunctionDefinition(name, body)

    def _coproc(self) -> Command:
        self.at += 6
        self._skip_blanks()
        name = self._raw_word()
        rest = self.text[self.at + len(name) : self.limit].lstrip(" \t")
        if _NAME.fullmatch(name) and re.match(r"[({]|\[\[|(if|while|until|for|case|select)\s", rest):
            self.at += len(name)
            self._skip_blanks()
        return Coprocess(self._command())

    def _condition(self) -> Command:
        self.at += 2
        words: list[RawWord] = []
        self._condition_terms(words)
        if self._raw_word() != "]]":
            raise Unparsable("a test that is not closed")
        self.at += 2
        return ConditionCommand(tuple(words), _condition_hazard(words), self._trailing_redirects())

    def _condition_terms(self, words: list[RawWord]) -> None:
        """Terms joined by `&&` and `||`; all their words are added to `words`."""
        while True:
            self._condition_term(words)
            self._skip_lines()
            if not self._startswith(("&&", "||")):
                return
            self.at += 2

    def _condition_term(self, words: list[RawWord]) -> None:
        self._skip_lines()
        while self._raw_word() == "!":
            words.append(self._word())
            self._skip_lines()
        if self._peek() == "(":
            self.at += 1
            self.depth += 1
            if self.depth > MAX_DEPTH:
                raise Unparsable("nested too deeply")
            self._condition_terms(words)
            self.depth -= 1
            if self._peek() != ")":
                raise Unparsable("a parenthesis in a test that is not closed")
            self.at += 1
            return
        first = self._condition_operand(words)
        if _UNARY_TEST.fullmatch(first.source):
            self._condition_operand(words)
            return
        self._skip_blanks()
        if self._peek() in ("<", ">") and self._peek(1) != "(":
            self.at += 1
            self._condition_operand(words)
        elif self._raw_word() in _BINARY_TESTS:
            operator = self._condition_operand(words)
            self._condition_operand(words, regex=operator.source == "=~")

    def _condition_operand(self, words: list[RawWord], *, regex: bool = False) -> RawWord:
        self._skip_blanks()
        if self._raw_word() == "]]" or (self._at_word_end() and not (regex and self._peek() == "(")):
            raise Unparsable("an operand is missing in a test")
        words.append(self._word(regex=regex))
        return words[-1]

    # Redirections and here-documents

    def _redirect(self, redirects: list[Redirect]) -> bool:
        if self._peek() == "{" and _NAMED_DESCRIPTOR.match(self.text, self.at, self.limit):
            raise Unparsable("a redirection to a named descriptor")
        match = _REDIRECT.match(self.text, self.at, self.limit)
        if match is None:
            return False
        operator = match.group(2) or match.group(3)
        if operator in ("<", ">") and self.text.startswith("(", match.end(), self.limit):
            if match.group(1):
                raise Unparsable("a number before a process substitution")
            return False
        self.at = match.end()
        self._reject_continuation()
        self._skip_blanks()
        if _DESCRIPTOR.match(self.text, self.at, self.limit):
            raise Unparsable("a descriptor in place of a file")
        redirects.append(Redirect(operator, match.group(1) or "", self._word()))
        if operator in ("<<", "<<-"):
            self._pending_heredocs.append(redirects[-1])
        return True

    def _trailing_redirects(self) -> tuple[Redirect, ...]:
        """The redirections of a compound command, after which it must end."""
        redirects: list[Redirect] = []
        self._skip_blanks()
        while self._redirect(redirects):
            self._skip_blanks()
        char = self._peek()
        if char and char not in "\n;&|)" and self._raw_word() not in _CLOSING_WORDS:
            raise Unparsable(f"unexpected {self._excerpt()}")
        return tuple(redirects)

    def _heredoc(self, redirect: Redirect) -> None:
        delimiter = redirect.target
        if any(not isinstance(piece, LiteralText) for piece in delimiter.pieces):
            raise Unparsable("a here-document whose end mark is expanded")
        quoted = any(char in delimiter.source for char in "'\"\\")
        end_line = "".join(piece.text for piece in delimiter.pieces if isinstance(piece, LiteralText))
        start = line = self.at
        while line < self.limit:
            stop = self.text.find("\n", line, self.limit)
            stop = self.limit if stop < 0 else stop
            content = self.text[line:stop]
            if (content.lstrip("\t") if redirect.operator == "<<-" else content) == end_line:
                body = self.text[start:line]
                pieces = (LiteralText(body, True),) if quoted else self._expansions(line)
                redirect.target = RawWord(pieces, body, start, line)
                self.at = min(stop + 1, self.limit)
                return
            line = stop + 1
        raise Unparsable("a here-document without its end")

    # Words

    def _word(self, *, regex: bool = False) -> RawWord:
        """The word that starts here; in a `regex` parentheses and bars belong to it."""
        start = self.at
        pieces: list[Piece] = []
        depth = 0
        while self.at < self.limit:
            char = self.text[self.at]
            if char in "<>" and self._peek(1) == "(":
                self.at += 2
                pieces.append(Substitution(self._to_parenthesis(), quoted=False, process=True))
            elif char in _METACHARACTERS:
                if not regex or _ends_regex(char, depth):
                    break
                depth += (char == "(") - (char == ")")
                self._add_text(pieces, char, 1, quoted=False)
            elif char == "\\":
                escaped = self._peek(1)
                if escaped in ("", "\n"):
                    raise Unparsable("a line continuation inside a word")
                self._add_text(pieces, escaped, 2, quoted=True)
            elif char in "\"'$`":
                self._quote_or_expansion(pieces)
            elif char in "?*+@!" and self._peek(1) == "(" and not regex:
                raise Unparsable("an extended pattern such as @(a|b)")
            else:
                run = _UNQUOTED_TEXT.match(self.text, self.at, self.limit)
                text = run.group() if run else char
                self._add_text(pieces, text, len(text), quoted=False)
        if self.at == start:
            raise Unparsable(f"expected a word at {self._excerpt()}")
        return RawWord(tuple(pieces), self.text[start : self.at], start, self.at)

    def _quote_or_expansion(self, pieces: list[Piece]) -> None:
        char = self.text[self.at]
        if char == "'":
            end = self._find("'", self.at + 1)
            self._add_text(pieces, self.text[self.at + 1 : end], end + 1 - self.at, quoted=True)
        elif char == '"':
            self._double_quoted(pieces)
        elif char == "`":
            pieces.append(self._backticks(quoted=False))
        elif self._startswith("$'"):
            end = self._unescaped("'", self.at + 2)
            self._add_text(pieces, decode_ansi_c(self.text[self.at + 2 : end]), end + 1 - self.at, quoted=True)
        elif self._startswith('$"'):
            raise Unparsable('a translated string $"…"')
        else:
            pieces.append(self._dollar(quoted=False))

    def _double_quoted(self, pieces: list[Piece]) -> None:
        self.at += 1
        pieces.append(LiteralText("", True))
        while (char := self._peek()) != '"':
            if not char:
                raise Unparsable("a double quote that is not closed")
            if char == "\\":
                escaped = self._peek(1)
                if escaped == "\n":
                    self.at += 2
                elif escaped and escaped in '$`"\\':
                    self._add_text(pieces, escaped, 2, quoted=True)
                else:
                    self._add_text(pieces, "\\", 1, quoted=True)
            elif char == "$":
                pieces.append(self._dollar(quoted=True))
            elif char == "`":
                pieces.append(self._backticks(quoted=True))
            else:
                run = _DOUBLE_QUOTED_TEXT.match(self.text, self.at, self.limit)
                text = run.group() if run else char
                self._add_text(pieces, text, len(text), quoted=True)
        self.at += 1

    def _add_text(self, pieces: list[Piece], text: str, length: int, *, quoted: bool) -> None:
        """Step over `length` characters that stand for `text`."""
        self.at += length
        last = pieces[-1] if pieces else None
        if isinstance(last, LiteralText) and last.quoted == quoted:
            pieces[-1] = LiteralText(last.text + text, quoted)
        else:
            pieces.append(LiteralText(text, quoted))

    # Expansions

    def _dollar(self, *, quoted: bool, heredoc: bool = False) -> Piece:
        """What a `$` begins: a variable, an expansion, a substitution, or just a dollar sign."""
        if self._startswith("$((") and (end := self._arithmetic_end(self.at + 3)) is not None:
            self.at += 3
            arithmetic = self._arithmetic(end, quoted=quoted)
            self.at = end + 2
            return arithmetic
        if self._startswith("$("):
            self.at += 2
            return Substitution(self._to_parenthesis(), quoted)
        if self._startswith("$["):
            raise Unparsable("old-style arithmetic $[…]")
        if self._startswith("${"):
            return self._braced(quoted, heredoc)
        name = _UNBRACED_PARAMETER.match(self.text, self.at + 1, self.limit)
        if name is None:
            self.at += 1
            return LiteralText("$", True)
        self.at = name.end()
        return Variable(name.group(), quoted)

    def _backticks(self, *, quoted: bool) -> Substitution:
        """An old-style substitution; bash removes its backslashes before it parses the script."""
        start = self.at + 1
        end = self._unescaped("`", start)
        body = self.text[start:end]
        if "\\" in body:
            unescaped = re.sub(r'\\([$`\\"])' if quoted else r"\\([$`\\])", r"\1", body)
            script = self._nested(unescaped, 0, len(unescaped))
        else:
            script = self._nested(self.text, start, end)
        self.at = end + 1
        return Substitution(script, quoted)

    def _expansions(self, limit: int) -> tuple[Piece, ...]:
        """Text up to `limit` in which `$` and backticks work and quotes do not, as in a here-document."""
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise Unparsable("nested too deeply")
        pieces: list[Piece] = []
        outer, self.limit = self.limit, limit
        while self.at < limit:
            char = self.text[self.at]
            if char == "\\" and self._peek(1) in ("$", "`", "\\", "\n"):
                self._add_text(pieces, "" if self._peek(1) == "\n" else self._peek(1), 2, quoted=True)
            elif char == "$":
                pieces.append(self._dollar(quoted=True, heredoc=True))
            elif char == "`":
                pieces.append(self._backticks(quoted=True))
            else:
                run = _HEREDOC_TEXT.match(self.text, self.at, limit)
                text = run.group() if run else char
                self._add_text(pieces, text, len(text), quoted=True)
        self.limit = outer
        self.depth -= 1
        return tuple(pieces)

    def _arithmetic(self, end: int, *, quoted: bool) -> Arithmetic:
        """The expression from here to `end`; the position moves to `end`."""
        start = self.at
        inner = self._expansions(end)
        safe = _SAFE_ARITHMETIC.fullmatch(self.text, start, end)
        return Arithmetic(inner, quoted, "" if safe else "arithmetic on names can run code held in their values")

    def _arithmetic_end(self, start: int) -> int | None:
        """Where the `))` that closes an arithmetic expression begins, or None if this is no arithmetic."""
        depth, index = 0, start
        while index < self.limit:
            char = self.text[index]
            if char in "'\"`\\":
                raise Unparsable("quotes inside arithmetic")
            if char == "(":
                depth += 1
            elif char == ")":
                if depth == 0:
                    return index if self.text.startswith("))", index, self.limit) else None
                depth -= 1
            index += 1
        raise Unparsable("an arithmetic expression that is not closed")

    def _braced(self, quoted: bool, heredoc: bool) -> Piece:
        self.at += 2
        length = self._peek() == "#" and self._peek(1) not in ("}", "")
        indirect = self._peek() == "!" and self._peek(1) not in ("}", "")
        self.at += length or indirect
        match = _PARAMETER.match(self.text, self.at, self.limit)
        if match is None:
            raise Unparsable("an expansion without a name")
        name, self.at = match.group(), match.end()
        operand: list[Piece] = []
        hazard = "an indirect expansion can run code held in a variable" if indirect else ""
        if self._peek() == "[":
            hazard = self._subscript(operand) or hazard
        if self._peek() == "}" and not (length or indirect or operand):
            self.at += 1
            return Variable(name, quoted)
        operator = "#" if length else ""
        if self._peek() != "}":
            operator, hazard = self._operation(name, operand, quoted, heredoc, hazard)
        if self._peek() != "}":
            raise Unparsable("an expansion that is not closed")
        self.at += 1
        return Expansion(name, operator or "[]", tuple(operand), quoted, hazard)

    def _operation(self, name: str, operand: list[Piece], quoted: bool, heredoc: bool, hazard: str) -> tuple[str, str]:
        if self._peek() == "@":
            self.at += 2
            return "@", "a transformed expansion such as ${x@P} can run code held in a variable"
        numbers = _SLICE.match(self.text, self.at, self.limit)
        if numbers and self.text.startswith("}", numbers.end(), self.limit):
            self.at = numbers.end()
            return ":", hazard
        operator = _OPERATOR.match(self.text, self.at, self.limit)
        if operator is None:
            raise Unparsable("an expansion with an unknown operator")
        self.at = operator.end()
        self._operand(operand, quoted or heredoc)
        if operator.group().endswith("=") and not name.islower():
            hazard = hazard or f"it sets `{name}`, which can change what programs do"
        return operator.group(), hazard

    def _operand(self, operand: list[Piece], quoted: bool) -> None:
        while (char := self._peek()) != "}":
            if not char:
                raise Unparsable("an expansion that is not closed")
            if char == "'" and quoted:
                raise Unparsable("a single quote inside a quoted expansion")
            if char in "<>" and self._peek(1) == "(":
                raise Unparsable("a process substitution inside an expansion")
            if char == "\\":
                self._add_text(operand, self._peek(1), 2, quoted=True)
            elif char == "$" and quoted:
                operand.append(self._dollar(quoted=True))
            elif char in "\"'$`":
                self._quote_or_expansion(operand)
            else:
                self._add_text(operand, char, 1, quoted=quoted)

    def _subscript(self, operand: list[Piece]) -> str:
        start = self.at + 1
        end = self._find("]", start)
        content = self.text[start:end]
        self.at = start
        operand.extend(self._expansions(end))
        self.at = end + 1
        if content in ("@", "*") or content.isdecimal():
            return ""
        return "an array subscript can run code held in a variable"

    # Characters

    def _peek(self, ahead: int = 0) -> str:
        """The character ahead, or nothing at the limit."""
        index = self.at + ahead
        return self.text[index] if index < self.limit else ""

    def _startswith(self, text: str | tuple[str, ...]) -> bool:
        return self.text.startswith(text, self.at, self.limit)

    def _at_word_end(self) -> bool:
        char = self._peek()
        return not char or (char in _METACHARACTERS and not (char in "<>" and self._peek(1) == "("))

    def _raw_word(self) -> str:
        """The run of ordinary characters that starts here, for comparison with reserved words."""
        match = _RAW_WORD.match(self.text, self.at, self.limit)
        return match.group() if match else ""

    def _find(self, text: str, start: int) -> int:
        end = self.text.find(text, start, self.limit)
        if end < 0:
            raise Unparsable(f"`{text}` is missing")
        return end

    def _unescaped(self, quote: str, index: int) -> int:
        """Where the next `quote` without a backslash before it stands."""
        while index < self.limit and self.text[index] != quote:
            index += 2 if self.text[index] == "\\" else 1
        if index >= self.limit:
            raise Unparsable("a backtick that is not closed" if quote == "`" else "a quote that is not closed")
        return index

    def _excerpt(self) -> str:
        return repr(self.text[self.at : min(self.at + 12, self.limit)] or "the end")

    def _skip_operator(self, length: int) -> None:
        self.at += length
        self._reject_continuation()

    def _reject_continuation(self) -> None:
        """Bash joins operators across a line continuation; that form is not supported."""
        if self._startswith("\\\n"):
            raise Unparsable("a line continuation after an operator")

    def _skip_blanks(self) -> None:
        """Skip blanks and a comment."""
        if match := _BLANKS.match(self.text, self.at, self.limit):
            self.at = match.end()
        if self._peek() == "#":
            end = self.text.find("\n", self.at, self.limit)
            self.at = self.limit if end < 0 else end

    def _skip_lines(self) -> None:
        """Skip blanks, comments and line breaks; here-documents start at the line break after their operator."""
        while True:
            self._skip_blanks()
            if self._peek() != "\n":
                return
            self.at += 1
            pending, self._pending_heredocs = self._pending_heredocs, []
            for redirect in pending:
                self._heredoc(redirect)


def _condition_hazard(words: list[RawWord]) -> str:
    for index, word in enumerate(words):
        if word.source in ("-v", "-R"):
            return "a test for a variable can run code in a subscript"
        if word.source in _INTEGER_TESTS:
            sides = [*words[max(index - 1, 0) : index], *words[index + 1 : index + 2]]
            if not all(side.source.isdecimal() for side in sides):
                return "a numeric test in [[ ]] can run code held in a variable"
    return ""


def _ends_regex(char: str, depth: int) -> bool:
    if char in " \t":
        return depth == 0
    return char not in "(|<>)" or (char == ")" and depth == 0)


def decode_ansi_c(body: str) -> str:
    """The characters that `$'body'` stands for."""
    return _ANSI_C_ESCAPE.sub(_decode_escape, body)


def _decode_escape(match: re.Match[str]) -> str:
    byte, short, long, octal, control, other = match.groups()
    if control:
        raise Unparsable("a control escape in $'…'")
    if other:
        return _NAMED_ESCAPES.get(other) or (other if other in "\\'\"?" else "\\" + other)
    code = int(octal, 8) if octal else int(byte or short or long, 16)
    # Bytes above ASCII depend on the locale, and a NUL cuts the string short.
    if code == 0 or code > 0x10FFFF or 0xD800 <= code < 0xE000 or ((byte or octal) and code > 0x7F):
        raise Unparsable("an escape in $'…' that depends on the locale")
    return chr(code)
