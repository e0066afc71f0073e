"""Finds forbidden commands and files among the arguments of programs whose effects are unknown.

Such a program may run its arguments or its input as commands: code for an interpreter, an alias, a git setting, a pipe.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Sequence
from fnmatch import fnmatchcase
from itertools import chain, islice, pairwise
from typing import TYPE_CHECKING

from msgspec import Struct

from wieldy.core.decision import Reason
from wieldy.core.effects import Reads, Writes
from wieldy.policy.permissions.files import DEPENDS_ON_PROCESS, FilePolicy
from wieldy.policy.permissions.findings import DecisionContext, Finding, rule_reason
from wieldy.policy.permissions.inline_code import InlineScript, inline_scripts, mentioned_paths
from wieldy.policy.permissions.ruleset import CommandRules
from wieldy.shell.effects.interpreters import (
    ARGUMENTS_ARE_CODE,
    CODE_OPTION,
    INTERPRETER,
    READS_COMMANDS,
    READS_INPUT,
    READS_OWN_COMMANDS,
    SHELL,
    SHELL_SPECIAL,
    STARTS_PROGRAMS,
    WITH_SUBCOMMANDS,
    argument_texts,
    interpreters,
    reads_input,
    unknown_code,
    unknown_file,
)

if TYPE_CHECKING:
    from wieldy.shell.effects.analysis import Analysis
    from wieldy.shell.effects.command_part import CommandPart
    from wieldy.shell.effects.words import Word

MAX_COMMAND_WORDS = 24
MAX_GLOB_MATCHES = 1_000
MAX_COMMAND_CHARS = 240
MAX_INTERPRETERS = 4
# After these sub-commands the arguments are a command that the program starts.
_RUN_SUBCOMMANDS = {
    **dict.fromkeys(("docker", "podman", "kubectl"), frozenset({"run", "exec"})),
    **dict.fromkeys(("npm", "pnpm", "yarn"), frozenset({"exec", "x", "dlx"})),
    **dict.fromkeys(("uv", "poetry", "pipenv", "conda"), frozenset({"run"})),
    "bun": frozenset({"x", "exec"}),
    **dict.fromkeys(("bundle", "nx"), frozenset({"exec"})),
    "deno": frozenset({"eval"}),
    "mix": frozenset({"run", "cmd"}),
}
# These take folders with all that is in them.
PACKERS = frozenset(
    {"tar", "bsdtar", "zip", "7z", "7za", "7zz", "rsync", "scp", "sftp", "pax", "cpio", "docker", "podman"}
)
_CONTAINER_QUERIES = frozenset(
    {"ps", "images", "logs", "version", "info", "inspect", "pull", "start", "stop", "restart"}
)
# These take the whole working directory without naming it, or read the names of files from their input.
_FOLDER_READERS = frozenset({"ag", "ack", "ack-grep", "ugrep", "ug", "rga", "sift", "pt", "cpio", "pax"})
_PACKING_SUBCOMMANDS = {
    "git": frozenset({"archive", "bundle", "format-patch", "fast-export", "worktree", "clone", "checkout-index"}),
    **dict.fromkeys(("npm", "pnpm", "yarn", "bun"), frozenset({"pack", "publish"})),
    "cargo": frozenset({"package", "publish"}),
}
_GIT_RUN_SUBCOMMANDS = {"submodule": "foreach", "bisect": "run", "for-each-repo": "", "filter-branch": "", "config": ""}
_GIT_RUN_SUBCOMMANDS |= {"remote-ext": "", "shell": "", "remote-fd": ""}
_GIT_COMMAND_OPTIONS = {"--exec", "--extcmd", "--upload-pack", "--receive-pack", "--open-files-in-pager", "--config"}
_GIT_COMMAND_OPTIONS |= {
    "--smtp-server",
    "--sendmail-cmd",
    "--to-cmd",
    "--cc-cmd",
    "--exec-path",
    "--config-env",
    "--exec",
}
_GIT_SHORT_COMMAND_OPTIONS = {
    "rebase": ("-x",),
    "difftool": ("-x",),
    "grep": ("-O",),
    **dict.fromkeys(("clone", "ls-remote", "fetch-pack"), ("-u",)),
}
_PROGRAM_NAME = re.compile(r"[\w.+@/*?\[\]-]+")
# Settings of git that run nothing, whatever their value is.
_HARMLESS_GIT_SETTING = re.compile(
    r"(user|color|advice|log|init|safe|commit|pull|push|fetch|column|status|http|gc\.auto|merge\.conflictstyle|rebase\.auto\w+"
    r"|core\.(quotepath|autocrlf|longpaths|abbrev|filemode|symlinks|ignorecase))\b.*",
    re.IGNORECASE | re.DOTALL,
)
_GLOB = frozenset("*?[")
_COMMAND_END = re.compile(r"[\"'`;&|\n(){}\[\]]")
_LIST_SEPARATORS = re.compile(r"[\s\"'`,()\[\]]+")
_COMMAND_SEPARATORS = re.compile(r"[;&|\n(){}!]+")
_VARIABLE_SYNTAX = re.compile(r"[\s\"'${}:@,]+")
_QUOTES = str.maketrans("", "", "\"'\\")
_VALUE_SEPARATORS = re.compile(r"[=:,;@<]")
_FILE_URL = re.compile(r"^file:(//[^/]*)?(?=/)", re.IGNORECASE)


class CommandLine(Struct, frozen=True):
    """What is around a part: the text of the whole command line without quotes, and the files that it writes, if any."""

    text: str
    written: frozenset[str]
    only_reads: bool = False

    @classmethod
    def of(cls, command: str, analysis: Analysis) -> CommandLine:
        written = [effect.path for effect in analysis.effects if isinstance(effect, Writes)]
        only_reads = analysis.verdict == "read_only"
        return cls(command.translate(_QUOTES), frozenset(map(os.path.normpath, written)), only_reads)

    def runs_new_file(self, part: CommandPart) -> str | None:
        """Say which file a part runs that the same command line writes."""
        if not self.written or part.program is None:
            return None
        scripts = [word.text for at, _ in interpreters(part) for word in part.argv[at + 1 :] if word.static]
        for name in [part.program, *scripts] if "/" in part.program else scripts:
            if any(os.path.normpath(os.path.join(cwd, name)) in self.written for cwd in part.cwds or ("/",)):
                return f"the content of `{name}`"
        return None

    def feeds(self, part: CommandPart) -> str | None:
        """Say which interpreter of a part may take its script from an input that the line redirects around it."""
        if part.input_texts or any(isinstance(effect, Reads) for effect in part.redirect_effects):
            return None
        if not {"<", "|"} & set(self.text):
            return None
        for position, name in interpreters(part):
            texts = [word.text for word in part.argv[position + 1 :]]
            if name not in READS_OWN_COMMANDS and reads_input(name, texts):
                return f"the script of `{name}`"
        return None


class ArgumentScanner:
    """Raises questions about the arguments of a command part whose effects are not all known."""

    def __init__(self, commands: CommandRules, files: FilePolicy) -> None:
        self._commands = commands
        self._files = files

    def judge(
        self, part: CommandPart, program: Finding, context: DecisionContext, line: CommandLine
    ) -> Iterator[Finding]:
        """Yield the questions; `program` is the finding that allows the program itself, `line` what is around the part."""
        if (rule := self._commands.first_deny or self._files.first_deny) is not None:
            unknown = unknown_code(part) or line.runs_new_file(part) or line.feeds(part)
            if unknown is not None:
                text = f"may forbid it: {unknown} is known only when it runs"
                yield Finding(rule_reason(rule, text, part.text, "ask"))
        # A rule for the program vouches for what it starts; a rule for all commands, or a mode, does not.
        if program.reason is context.blanket or program.reason.kind == "mode":
            yield from self._judge_commands(part, line)
        if self._files.denies_anything:
            yield from self._judge_files(part)

    def judge_attached(self, part: CommandPart) -> Iterator[Finding]:
        """Ask about denied files in words such as `@file` and `-ffile`, which a program may take for more than we know."""
        if not self._files.denies_anything:
            return
        for path in _mentioned_paths(part, tuple(word for word in part.argv[1:] if word.prefix.startswith(("-", "@")))):
            if (rule := self._files.deny_rule_for(path)) is not None:
                yield Finding(rule_reason(rule, f"may forbid what is done with {path}", part.text, "ask"))

    def _judge_files(self, part: CommandPart) -> Iterator[Finding]:
        scripts = list(inline_scripts(part))
        paths = chain(
            _mentioned_paths(part, part.argv[1:]), *(mentioned_paths(script, part.cwds) for script in scripts)
        )
        for path in paths:
            if (rule := self._files.deny_rule_for(path)) is not None:
                yield Finding(rule_reason(rule, f"may forbid what is done with {path}", part.text, "ask"))
            elif _packs_operands(part) and (rule := self._files.rule_inside(path)) is not None:
                yield Finding(rule_reason(rule, f"may forbid something in {path}", part.text, "ask"))
        if _packs_folder(part) or any(script.packs for script in scripts):
            for folder in part.cwds or ("/",):
                if (rule := self._files.rule_inside(folder)) is not None:
                    yield Finding(rule_reason(rule, f"may forbid something in {folder}", part.text, "ask"))
        yield from self._judge_unknown_files(part, scripts)
        if (rule := self._files.deny_rule_mentioned(argument_texts(part))) is not None:
            yield Finding(rule_reason(rule, "may forbid a file that it mentions", part.text, "ask"))
        for folder in {folder for word in part.argv[1:] for folder in word.scope}:
            if (rule := self._files.rule_inside(folder)) is not None:
                yield Finding(rule_reason(rule, f"may forbid something in {folder}", part.text, "ask"))

    def _judge_unknown_files(self, part: CommandPart, scripts: Sequence[InlineScript]) -> Iterator[Finding]:
        """Ask where it is not known which files a part opens, and rules forbid some."""
        from wieldy.shell.effects.programs.git import may_print_content
        from wieldy.shell.effects.programs.registry import FILE_PROGRAMS

        unknown = unknown_file(part)
        in_process = next((text for text in argument_texts(part, plain=True) if DEPENDS_ON_PROCESS.search(text)), None)
        code = next((script for script in scripts if script.files is None), None)
        if unknown is not None:
            text = f"{unknown} is known only when it runs"
        elif in_process is not None:
            text = f"where `{in_process}` leads is known only when it runs"
        elif code is not None:
            text = f"which files the code for `{code.interpreter}` opens is known only when it runs"
        elif part.program in FILE_PROGRAMS or (part.program == "git" and may_print_content(part.argv[1:])):
            text = f"which files it opens is not known: {part.why}"
        else:
            return
        if (rule := self._files.first_deny) is not None:
            yield Finding(rule_reason(rule, f"may forbid it: {text}", part.text, "ask"))

    def _judge_commands(self, part: CommandPart, line: CommandLine) -> Iterator[Finding]:
        programs = self._commands.forbidden_programs
        if not programs:
            return
        if part.argv and part.program is None:
            yield Finding(Reason("analysis", "ask", f"{part.why}, and rules forbid some programs", part=part.text))
            return
        started_by = part.program or part.text
        code = list(_embedded_code(part))
        readings = dict.fromkeys(text for one in code for text in (one, one.translate(_QUOTES)))
        in_code = (text for one in readings for text in find_commands(one, programs))
        takes_commands = part.program not in WITH_SUBCOMMANDS or _command_words(part)
        in_line = find_commands(line.text, programs) if takes_commands else ()
        for text in chain(_commands_among(_command_words(part), programs), in_code, in_line):
            rule = next((rule for rule in self._commands.covering(text) if rule.behavior != "allow"), None)
            if rule is not None:
                yield Finding(rule_reason(rule, f"may forbid what `{started_by}` starts", part.text, "ask"))
                return
        rule = self._commands.first_deny
        if rule is None:
            return
        if part.program == "git":
            is_open = any(SHELL_SPECIAL.search(one) and not _HARMLESS_GIT_SETTING.fullmatch(one) for one in code)
        else:
            is_open = any(map(STARTS_PROGRAMS.search, code)) or _has_open_option(part)
        if is_open:
            text = f"may forbid what the code for `{started_by}` starts"
            yield Finding(rule_reason(rule, text, part.text, "ask"))


def _has_open_option(part: CommandPart) -> bool:
    """Whether an option that may name a program has a value that a shell would expand."""
    from wieldy.policy.permissions.escalation import ESCALATING_OPTIONS, is_option

    options = ESCALATING_OPTIONS.get(part.program or "", ())
    texts = [_known_text(word) for word in part.argv[1:]]
    return any(
        SHELL_SPECIAL.search(f"{text} {following}") and any(is_option(text, option) for option in options)
        for text, following in pairwise((*texts, ""))
    )


def _packs_operands(part: CommandPart) -> bool:
    """Whether a part takes the folders it is given with all that is in them."""
    is_container = part.program in ("docker", "podman")
    subcommand = part.argv[1].text if len(part.argv) > 1 else ""
    return part.program in PACKERS and not (is_container and subcommand in _CONTAINER_QUERIES)


def _packs_folder(part: CommandPart) -> bool:
    """Whether a part takes all of its working directory without naming it."""
    if part.program in _FOLDER_READERS:
        return True
    subcommands = _PACKING_SUBCOMMANDS.get(part.program or "")
    if subcommands is None:
        return False
    if part.program == "git":
        from wieldy.shell.effects.programs.git import split_git_args

        call = split_git_args(part.argv[1:])
        # A clone of another machine's repository holds nothing of this one.
        is_remote = call.command == "clone" and any(re.match(r"[\w+-]+://|[\w.@-]+:", word.text) for word in call.args)
        return call.command in subcommands and not is_remote
    return any(word.static and word.text in subcommands for word in part.argv[1:3])


def _commands_among(words: tuple[Word, ...], programs: Collection[str]) -> Iterator[str]:
    """Yield what could be a command of these programs: from a word on, or inside a word that holds several."""
    from wieldy.shell.effects.words import unquoted_text

    for index, word in enumerate(words):
        text = _known_text(word)
        if os.path.basename(text) in programs:
            yield unquoted_text(words[index : index + MAX_COMMAND_WORDS])
        # An option may be given a command with `=`, and `!` runs a shell from an editor.
        for value in dict.fromkeys((text, text.partition("=")[2], text.rpartition("=")[2])):
            for piece in _COMMAND_SEPARATORS.split(value):
                program, _, rest = piece.strip().partition(" ")
                if os.path.basename(program) in programs and (rest or value != text):
                    yield f"{os.path.basename(program)} {rest}".strip()


def find_commands(text: str, programs: Collection[str]) -> Iterator[str]:
    """Yield the commands of these programs that code may hold: up to the end of its string, and as a list of strings."""
    for match in _PROGRAM_NAME.finditer(text):
        name = match.group().rstrip(".")
        for program in _meant_programs(name, programs):
            end = match.start() + len(name)
            rest = text[end : end + MAX_COMMAND_CHARS]
            yield f"{program}{_COMMAND_END.split(rest, maxsplit=1)[0]}".strip()
            yield f"{program}{_LIST_SEPARATORS.sub(' ', rest)}".strip()


def _meant_programs(name: str, programs: Collection[str]) -> Collection[str]:
    """The programs that a name may mean: itself, or what it matches as a glob."""
    if name in programs:
        return (name,)
    base = os.path.basename(name)
    if base in programs:
        return (base,)
    if _GLOB.isdisjoint(base) or not base.strip("*"):
        return ()
    return [program for program in programs if fnmatchcase(program, base)]


def _known_text(word: Word) -> str:
    """The value of a word where it is known, else its source."""
    return word.text if word.static else word.source.strip("\"'")


def _command_words(part: CommandPart) -> tuple[Word, ...]:
    """The words among which a command may stand. Most arguments of a program with sub-commands name its own things."""
    if part.program not in WITH_SUBCOMMANDS:
        return part.argv[1:]
    run_subcommands = _RUN_SUBCOMMANDS.get(part.program or "", frozenset())
    for position, word in enumerate(part.argv[1:4], 2):
        if word.static and word.text in run_subcommands:
            return part.argv[position:]
    return ()


def _embedded_code(part: CommandPart) -> Iterator[str]:
    """Yield the texts in which a command may stand anywhere."""
    yield from part.variable_values
    if part.program == "git":
        yield from _git_code(part.argv[1:])
        return
    if part.program == "gh" and [word.text for word in part.argv[1:2]] == ["alias"]:
        yield from (_known_text(word).lstrip("!") for word in part.argv[3:])
    words = part.argv if part.program in ("make", "bun", "deno") else (*part.argv[:1], *_command_words(part))
    if part.program in ("make", "gmake"):
        yield from (_known_text(word).partition("=")[2] for word in words[1:])
    if len(words) < 2 and not part.input_texts:
        return
    names = [os.path.basename(word.text) if word.static else "" for word in words]
    if names and READS_COMMANDS.fullmatch(names[0]):
        yield from part.input_texts
    if names and ARGUMENTS_ARE_CODE.fullmatch(names[0]):
        yield from map(_known_text, words[1:])
    interpreters = (at for at, name in enumerate(names) if SHELL.fullmatch(name) or INTERPRETER.fullmatch(name))
    for position in islice(interpreters, MAX_INTERPRETERS):
        yield from _interpreter_code(words[position + 1 :], part.input_texts)


def _interpreter_code(words: tuple[Word, ...], input_texts: tuple[str, ...]) -> Iterator[str]:
    """Yield the code of an interpreter: behind an option for code, or its input where no script is named."""
    texts = [_known_text(word) for word in words]
    is_uncertain = any(not word.static for word in words)
    if is_uncertain or any(map(CODE_OPTION.fullmatch, texts)):
        yield from texts
    if is_uncertain or not READS_INPUT.isdisjoint(texts) or all(text.startswith("-") for text in texts):
        yield from input_texts


def _git_code(words: tuple[Word, ...]) -> Iterator[str]:
    """Yield what git would run: settings of `-c`, options that name programs, and arguments of some sub-commands."""
    from wieldy.shell.effects.programs.git import split_git_args

    texts = [_known_text(word) for word in words]
    call = split_git_args(words)
    for text, following in pairwise((*texts, "")):
        option, equals, value = text.partition("=")
        if option in _GIT_COMMAND_OPTIONS or (option.startswith("--") and option.endswith("-filter")):
            yield value if equals else following
        elif text[:2] in _GIT_SHORT_COMMAND_OPTIONS.get(call.command, ()):
            yield text[2:] or following
        elif text.startswith("ext::"):
            # There a percent sign before a blank keeps words together.
            yield text.removeprefix("ext::").replace("% ", " ")
    # Behind most sub-commands `-c` means something else.
    global_count = len(texts) if call.command == "clone" else len(texts) - len(call.args)
    yield from (value for option, value in pairwise(texts[:global_count]) if option == "-c")
    marker = _GIT_RUN_SUBCOMMANDS.get(call.command)
    arguments = [_known_text(word) for word in call.args]
    if marker is not None and (not marker or marker in arguments):
        yield " ".join(arguments[arguments.index(marker) + 1 :] if marker else arguments)


def _mentioned_paths(part: CommandPart, words: tuple[Word, ...]) -> Iterator[str]:
    """Yield the paths its words may mean: each as it stands, and behind `=`, `@` and `file://`, as options spell files."""
    for word in words:
        for name in _mentioned_names(word):
            for folder in ("/",) if name.startswith("/") else part.cwds if name else ():
                path = os.path.normpath(os.path.join(folder, name))
                yield from _glob(path) if word.kind == "glob" else (path,)


def _mentioned_names(word: Word) -> Collection[str]:
    if word.dynamic:
        # The default in `${x:-file}`, and what stands beside the variable.
        return {name.lstrip("-=+?"): None for name in _VARIABLE_SYNTAX.split(word.source)}
    text = word.text
    names = [_without_url_prefix(piece) for piece in _VALUE_SEPARATORS.split(text)[1:]]
    if text.startswith("-"):
        # The name of an option is no file, but the value of a short one may follow its letter.
        return names if text.startswith("--") else (*names, text[2:], text[3:])
    return (_without_url_prefix(text), *names)


def _without_url_prefix(name: str) -> str:
    name = name.removeprefix("@")
    return _FILE_URL.sub("", name) if ":" in name else name


def _glob(path: str) -> Iterator[str]:
    from glob import iglob

    yield from islice(iglob(path.replace("[^", "[!")), MAX_GLOB_MATCHES)
