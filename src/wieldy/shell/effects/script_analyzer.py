"""Follow a script the way bash would run it and collect one `CommandPart` for each simple command."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from msgspec import Struct
from msgspec.structs import replace

from wieldy.core.effects import Effect, Fetches, Reads, Runs, Writes
from wieldy.shell.effects.command_part import CodeInputs, CommandPart, Redirections, RuleTexts, Sweep
from wieldy.shell.effects.programs.builtins import (
    DECLARATIONS,
    ENDS_SHELL,
    folder_after,
    is_harmless_variable,
    is_script_variable,
)
from wieldy.shell.effects.programs.find import listed_links
from wieldy.shell.effects.programs.pipeline_input import UNKNOWN_INPUT, PipelineInput, output_of_stage
from wieldy.shell.effects.programs.profiles import profile_of
from wieldy.shell.effects.programs.registry import check_program, executed_commands
from wieldy.shell.effects.programs.spec import NO_EFFECTS, CallEffects, ProgramCall, unknown, word_set
from wieldy.shell.effects.programs.wrappers import (
    EXACT_RULE_WRAPPERS,
    POSIX_SHELLS,
    SAME_SHELL_SCRIPT,
    SAME_SHELL_WRAPPERS,
    SHELLS,
    UnwrappedCommand,
    fill_placeholder,
    takes_input_arguments,
    unwrap,
)
from wieldy.shell.effects.side_effects import constant_variables, may_change_cwd
from wieldy.shell.effects.words import (
    PROCESS_SUBSTITUTION_PATH,
    ShellState,
    Word,
    expands_too_far,
    literal,
    resolve_without_braces,
    resolve_word,
    resolve_words,
)
from wieldy.shell.parsing import syntax
from wieldy.shell.parsing.parser import MAX_WORK, NEW_COMMAND_WORK, REPEATED_COMMAND_WORK, parse

MAX_NESTED_SHELLS = 6
MAX_LOOP_VALUES = 16
MAX_UNROLLED_WORK = 350
_BLANK = re.compile(r"[\s\\]")
_STANDARD_STREAMS = frozenset({"/dev/null", "/dev/stdout", "/dev/stderr", "/dev/stdin", "/dev/tty"})
# Variables by which even a known program runs other code.
_CODE_VARIABLES = word_set(
    "PATH LD_PRELOAD LD_AUDIT LD_LIBRARY_PATH DYLD_INSERT_LIBRARIES BASH_ENV ENV PROMPT_COMMAND PS4 HOME XDG_CONFIG_HOME GIT_DIR "
    "GIT_CONFIG_GLOBAL GIT_CONFIG_SYSTEM GIT_EXEC_PATH"
)
# Reading them never ends.
_ENDLESS = word_set("/dev/zero /dev/full /dev/random /dev/urandom")
MAX_BACKGROUND = 16
_SOCKET = re.compile(r"/dev/(tcp|udp)/([^/]+)/([^/]+)")
_OPEN_DESCRIPTOR = re.compile(r"/dev/fd/\d+")
_DUPLICATED_DESCRIPTOR = re.compile(r"\d*-?")
# What other shells read differently, wherever it stands: `$'…'` ends elsewhere, `[[ a || b ]]` runs b.
_BASH_SYNTAX = re.compile(
    r"""\$['"] | \[\[ | \(\( | \{[^}\s]*(,|\.\.) | \{\w+\}[<>] | ~[+-] | [<>]\( | <<< | &> | >&\s*[^\d\s-] | \|& | ;;?&
      | \+?=\( | \+= | ` | \b(function|select|coproc|time)\b""",
    re.VERBOSE,
)


class ExitStates(Struct, frozen=True):
    """The shell's state after a command that succeeded and after one that failed; None where it never gets there."""

    success: ShellState | None
    failure: ShellState | None


class PathEffects(Struct, frozen=True):
    """The files and addresses that a command touches; `why` names the first that is unknown."""

    effects: tuple[Effect, ...] = ()
    bulk_reads: tuple[str, ...] = ()
    why: str = ""
    sweeps: tuple[Sweep, ...] = ()


class Invocation(Struct, frozen=True):
    """A simple command with its words resolved and unwrapped, and the effects of its redirections."""

    command: syntax.SimpleCommand
    unwrapped: UnwrappedCommand
    redirects: Redirections
    exact_rule: bool = False

    def problem(self) -> str:
        """What is not understood about the wrappers, variables and redirections around the program."""
        # `IFS= read -r line` sets it for this one `read`.
        ignored = "IFS" if self.unwrapped.program == "read" and not self.unwrapped.wrappers else ""
        assigned = (one.name for one in self.command.assignments if one.name != ignored)
        names = (*assigned, *self.unwrapped.variables)
        return self.unwrapped.problem or influential_variable(names) or self.redirects.problem


class WrapperContext(Struct, frozen=True):
    """The wrappers around the script that is being analyzed, such as `bash -c` or `find -exec`.

    `closed`: only a rule for the outer command covers what is inside.
    """

    wrappers: tuple[str, ...] = ()
    allow_texts: tuple[str, ...] = ()
    deny_texts: tuple[str, ...] = ()
    harmless: bool = True
    why: str = ""
    closed: bool = False

    def enter(self, inner: WrapperContext) -> WrapperContext:
        """The context of a wrapper inside this one."""
        return WrapperContext(
            (*self.wrappers, *inner.wrappers),
            self.allow_texts if self.closed else (*self.allow_texts, *inner.allow_texts),
            (*self.deny_texts, *inner.deny_texts),
            self.harmless and inner.harmless,
            self.why or inner.why,
            self.closed or inner.closed,
        )

    def wrap(self, part: CommandPart) -> CommandPart:
        return replace(
            part,
            wrappers=(*self.wrappers, *part.wrappers),
            rules=RuleTexts(
                self.allow_texts if self.closed else (*self.allow_texts, *part.rules.allow),
                tuple(dict.fromkeys((*self.deny_texts, *part.rules.deny))),
                part.rules.exact or not EXACT_RULE_WRAPPERS.isdisjoint(self.wrappers),
            ),
            read_only=part.read_only and self.harmless,
            program_read_only=part.program_read_only and self.harmless,
            only_fetches=part.only_fetches and self.harmless,
            why=part.why or self.why,
        )


NO_WRAPPERS = WrapperContext()


class ScriptAnalyzer:
    """Collects the parts of a script and of everything nested in it.

    `problems`: what is not understood. `scripts`: every script with the text it was parsed from. `revisited`: whether some
    command was followed more than once, in a loop or a function, so that equal parts may be the same command. `sweeps`: the
    files that are read without being named.
    """

    def __init__(self, text: str, script: syntax.ShellScript, *, names_on_disk: bool = False) -> None:
        self.parts: list[CommandPart] = []
        self.problems: list[str] = []
        self.sweeps: list[Sweep] = []
        self.scripts: list[tuple[str, syntax.ShellScript]] = [(text, script)]
        self.functions: dict[str, syntax.FunctionDefinition] = {}
        self.revisited = False
        self._work = 0
        self._context = NO_WRAPPERS
        self._pipeline_start: int | None = None
        self._running_functions: set[str] = set()
        self._sources: set[str] = set()
        self._script = script
        self._constants: frozenset[str] | None = None
        self._names_on_disk = names_on_disk
        # How many loops are around the command, and how many of unknown length; how many processes were left running;
        # whether a later stage ends it.
        self._loops = self._open_loops = 0
        self._background = 0
        self._is_cut = False

    def follow_script(self, script: syntax.ShellScript, state: ShellState) -> ShellState:
        """Follow a script; the state at its end."""
        current: ShellState | None = state
        for chain in script.and_or_lists:
            current = self._follow_list(chain, current or state.with_unknown_cwd())
        return current or state.with_unknown_cwd()

    def _follow_list(self, chain: syntax.AndOrList, state: ShellState) -> ShellState | None:
        success: ShellState | None = state
        failure: ShellState | None = state
        self._background += chain.background
        if self._background > MAX_BACKGROUND or (chain.background and self._loops):
            self._add_problem("it starts processes in the background without a small bound")
        for operator, pipeline in chain.links:
            if operator == "":
                after = self._follow_pipeline(pipeline, state)
                success, failure = after.success, after.failure
            elif operator == "&&":
                after = self._follow_pipeline(pipeline, success or state.with_unknown_cwd())
                if success:
                    success, failure = after.success, _merge_states(failure, after.failure)
            else:
                after = self._follow_pipeline(pipeline, failure or state.with_unknown_cwd())
                if failure:
                    success, failure = _merge_states(success, after.success), after.failure
        return state if chain.background else _merge_states(success, failure)

    def _follow_pipeline(self, pipeline: syntax.Pipeline, state: ShellState) -> ExitStates:
        if len(pipeline.stages) == 1:
            after = self._follow_command(pipeline.stages[0], state, UNKNOWN_INPUT)
            return ExitStates(after.failure, after.success) if pipeline.negated else after
        piped, outer, start = UNKNOWN_INPUT, self._pipeline_start, len(self.parts)
        cut = _streaming_stages(pipeline)
        for index, stage in enumerate(pipeline.stages):
            stage_start = len(self.parts)
            self._is_cut = index < cut
            if isinstance(stage, syntax.SimpleCommand) and any(map(_redirects_input, stage.redirects)):
                piped = UNKNOWN_INPUT
            self._follow_command(stage, state, piped)
            piped = output_of_stage(self.parts[stage_start:], piped, state.cwds, first=index == 0)
            self._pipeline_start = start if outer is None else outer
        self._pipeline_start, self._is_cut = outer, False
        return ExitStates(state, state)

    def _follow_command(self, command: syntax.Command, state: ShellState, piped: PipelineInput) -> ExitStates:
        match command:
            case syntax.SimpleCommand():
                return self._follow_simple(command, state, piped)
            case syntax.GroupCommand(body=body, subshell=subshell):
                inner = state if subshell else _before_body(state, command)
                after = self.follow_script(body, inner)
                self._follow_redirects(command.redirects, state)
                after = state if subshell else after.merge(inner)
            case syntax.BranchCommand():
                after = self._follow_branches(command, state)
            case syntax.LoopCommand():
                after = self._follow_loop(command, state)
            case syntax.ConditionCommand(words=words, hazard=hazard):
                if hazard:
                    self._add_problem(hazard)
                self._follow_expansions(words, state)
                self._follow_redirects(command.redirects, state)
                text = " ".join(word.source for word in words)
                self._add(CommandPart(text, (), None, (), not hazard, not hazard, hazard))
                after = state
            case syntax.Coprocess(body=body):
                self._follow_command(body, state, UNKNOWN_INPUT)
                after = state
            case syntax.FunctionDefinition():
                after = self._define_function(command, state)
        return ExitStates(after, after)

    def _add(self, part: CommandPart) -> None:
        self.parts.append(part if self._context is NO_WRAPPERS else self._context.wrap(part))

    def _add_problem(self, text: str) -> None:
        if text not in self.problems:
            self.problems.append(text)

    # Compound commands

    def _follow_branches(self, branches: syntax.BranchCommand, state: ShellState) -> ShellState:
        self._follow_expansions(branches.words, state)
        self._follow_redirects(branches.redirects, state)
        inner = _before_body(state, branches)
        for body in branches.bodies:
            inner = inner.merge(self.follow_script(body, inner))
        return inner

    def _follow_loop(self, loop: syntax.LoopCommand, state: ShellState) -> ShellState:
        self._follow_expansions(loop.words or (), state)
        if loop.header:
            self._follow_pieces((loop.header,), state)
        if loop.variable and (why := influential_variable((loop.variable,), is_script_variable)):
            self._add_problem(why)
        self._follow_redirects(loop.redirects, state)
        values = self._loop_values(loop, state)
        state = _before_body(state, loop)
        self._loops += 1
        self._open_loops += values is None
        if values is not None and loop.variable:
            self.revisited = True
            for value in values:
                self.follow_script(loop.body, state.with_variable(loop.variable, value))
        else:
            if loop.condition:
                self.follow_script(loop.condition, state)
            self.follow_script(loop.body, state)
        self._loops -= 1
        self._open_loops -= values is None
        return state

    def _loop_values(self, loop: syntax.LoopCommand, state: ShellState) -> list[Word] | None:
        """The values of a `for` loop to follow one by one, if they are few and nothing else sets the variable."""
        if not loop.variable or not loop.words or not self._is_constant(loop.variable):
            return None
        words = resolve_words(loop.words, state)
        if len(words) > MAX_LOOP_VALUES:
            return None
        body_work = NEW_COMMAND_WORK * sum(
            isinstance(one, syntax.SimpleCommand) for one in syntax.every_command(loop.body)
        )
        if self._work + body_work * len(words) > MAX_UNROLLED_WORK:
            return None
        values: list[Word] = []
        for word in words:
            folders = word.paths(state)
            if word.kind == "literal":
                values.append(literal(word.text))
            elif word.kind == "glob" and folders:
                # Whether a name with a blank is among them, which bash would split, is seen on disk.
                splits = self._names_on_disk and not _BLANK.search(word.text) and _is_used_unquoted(loop)
                self.sweeps.extend(replace(sweep, splits=splits) for sweep in glob_sweeps(word, state))
                prefix = self._without_dashes(word, state).prefix
                values.append(Word(word.source, "single", "", prefix, folders, unsplit=splits, glob=word.text))
            else:
                return None
        return values

    def _define_function(self, function: syntax.FunctionDefinition, state: ShellState) -> ShellState:
        """Follow the body, so that rules see what is in it. Which program a name means is not certain from here on."""
        self._add_problem(f"it defines the function `{function.name}`, which can replace a program")
        self.functions[function.name] = function
        self._follow_function(function, _before_body(state, function.body))
        return state

    def _follow_function(self, function: syntax.FunctionDefinition, state: ShellState) -> None:
        self._running_functions.add(function.name)
        self._follow_command(function.body, state, UNKNOWN_INPUT)
        self._running_functions.discard(function.name)

    def _follow_redirects(self, redirects: tuple[syntax.Redirect, ...], state: ShellState) -> None:
        """Add the redirections of a compound command as a part of their own."""
        self._follow_expansions(tuple(redirect.target for redirect in redirects), state)
        touched = redirect_effects(redirects, state)
        if touched.effects or touched.problem:
            files = [redirect for redirect in redirects if not redirect.heredoc]
            text = " ".join(f"{redirect.operator} {redirect.target.source}" for redirect in files)
            why = touched.problem or describe_change(touched.effects)
            self._add(
                CommandPart(text, (), None, touched.effects, not why, not touched.problem, why, redirects=touched)
            )

    def _follow_expansions(self, words: tuple[syntax.RawWord, ...], state: ShellState) -> None:
        """Follow the scripts that run when these words are expanded."""
        for word in words:
            if expands_too_far(word, state):
                self._add_problem(f"`{word.source}` becomes too many words")
            if len(word.pieces) != 1 or not isinstance(word.pieces[0], syntax.LiteralText):
                self._follow_pieces(word.pieces, state)

    def _follow_pieces(self, pieces: tuple[syntax.Piece, ...], state: ShellState) -> None:
        if self._open_loops and any(
            isinstance(piece, syntax.Substitution) and piece.process for piece in syntax.nested_pieces(pieces)
        ):
            self._add_problem("it starts processes in the background without a small bound")
        for hazard in syntax.expansion_hazards(pieces):
            self._add_problem(hazard)
        for script in syntax.substituted_scripts(pieces):
            self.follow_script(script, state)

    # Simple commands

    def _follow_simple(self, command: syntax.SimpleCommand, state: ShellState, piped: PipelineInput) -> ExitStates:
        # The length of the text bounds how often a command can be repeated outside functions and loops.
        is_cheap = command.source in self._sources and not (self._loops or self._running_functions)
        self._sources.add(command.source)
        self._work += REPEATED_COMMAND_WORK if is_cheap else NEW_COMMAND_WORK
        if self._work > MAX_WORK:
            raise syntax.TooComplex
        before = len(self.parts)
        words = resolve_words(command.words, state)
        words = (*words[:1], *(self._without_dashes(word, state) for word in words[1:]))
        name = words[0].text if words and words[0].kind == "literal" else ""
        after = self._analyze_simple(command, words, state, piped)
        # A wrapped command costs more than wrapper and command apart.
        self._work += sum(2 * NEW_COMMAND_WORK * len(part.wrappers) for part in self.parts[before:])
        if name in self.functions:
            function = self.functions[name]
            after = _before_body(state, function.body)
            if name not in self._running_functions:
                # The working directory may be another than at the definition.
                self.revisited = True
                self._follow_function(function, state)
        elif name == ENDS_SHELL and self.parts[-1].known and not command.redirects and not command.assignments:
            return ExitStates(None, None)
        return ExitStates(after, state if after.cwds != state.cwds else after)

    def _analyze_simple(
        self, command: syntax.SimpleCommand, words: tuple[Word, ...], state: ShellState, piped: PipelineInput
    ) -> ShellState:
        """Add the parts of a simple command with these words; the state after it."""
        self._follow_expansions(command.words, state)
        self._follow_expansions(tuple(redirect.target for redirect in command.redirects), state)
        for assignment in command.assignments:
            if assignment.subscript and not assignment.subscript.source.isdecimal():
                self._add_problem("an array subscript can run code held in a variable")
            self._follow_expansions(assignment.all_words, state)
        redirects = Redirections()
        if command.redirects:
            bounded = self._is_cut or _bounds_its_input(words, state)
            redirects = redirect_effects(command.redirects, state, bounded=bounded)
        if not words:
            self._add_without_program(command, redirects, state)
            return self._after_assignments(command, state)
        if self._names_on_disk and piped.folders:
            piped = replace(piped, prefix=piped.prefix or "./", on_disk=True)
        unwrapped = _with_heredoc_script(unwrap(words, piped), command, state)
        start = len(self.parts)
        after = self._analyze_invocation(Invocation(command, unwrapped, redirects), state, state)
        if takes_input_arguments(unwrapped.wrappers):
            read = [effect for part in self.parts[start:] for effect in part.effects if isinstance(effect, Reads)]
            self._add_sweeps(piped if read else replace(piped, links=None), splits=unwrapped.splits_input)
        return after

    def _add_sweeps(self, files: PipelineInput, *, splits: bool = False) -> None:
        """Note that files are opened whose names a program lists."""
        if files.links is not None or splits or files.on_disk:
            self.sweeps.extend(Sweep(one, "", files.links, splits, dashes=files.on_disk) for one in files.folders)

    def _without_dashes(self, word: Word, state: ShellState) -> Word:
        """A glob whose names are seen on disk to begin with no dash, as if `./` stood before it; any other word as it is."""
        if not self._names_on_disk or word.kind != "glob" or word.prefix or not state.cwds:
            return word
        self.sweeps.extend(Sweep(cwd, word.text, links=None, dashes=True) for cwd in state.cwds)
        return replace(word, text=f"./{word.text}", prefix="./")

    def _analyze_invocation(self, invocation: Invocation, state: ShellState, nested_state: ShellState) -> ShellState:
        if invocation.unwrapped.script is not None and not invocation.unwrapped.problem:
            return self._analyze_nested_script(invocation, invocation.unwrapped.script, nested_state)
        return self._analyze_program(invocation, state)

    def _after_assignments(self, command: syntax.SimpleCommand, state: ShellState) -> ShellState:
        for one in command.assignments:
            if one.value is not None and not command.redirects and self._is_constant(one.name):
                value = resolve_without_braces(one.value, state)
                # Bash expands a tilde after each colon, too.
                if value.kind == "literal" and "~" not in one.value.source:
                    state = state.with_variable(one.name, literal(value.text))
                elif value.revision and not value.text:
                    state = state.with_variable(one.name, value)
        return state

    def _is_constant(self, name: str) -> bool:
        """Whether a variable has one value in all of the script that is being followed."""
        if self._constants is None:
            self._constants = constant_variables(self._script)
        return name in self._constants

    def _add_without_program(self, command: syntax.SimpleCommand, redirects: Redirections, state: ShellState) -> None:
        plain = [one.name for one in command.assignments if one.plain]
        others = [one.name for one in command.assignments if not one.plain]
        influential = influential_variable(plain, is_script_variable) or influential_variable(others)
        unknown_because = influential or redirects.problem
        why = unknown_because or describe_change(redirects.effects)
        values = _influential_values(command, (), state) if unknown_because else ()
        texts = (command.source,) if command.assignments and not command.redirects else ()
        self._add(
            CommandPart(
                command.source,
                (),
                None,
                redirects.effects,
                not why,
                not unknown_because,
                why,
                rules=RuleTexts(texts),
                redirects=redirects,
                code=CodeInputs(variables=values, code_variable=_code_variable([*plain, *others])),
                cwds=state.cwds,
            )
        )

    def _analyze_program(self, invocation: Invocation, state: ShellState) -> ShellState:
        unwrapped = invocation.unwrapped
        words = unwrapped.words
        name = unwrapped.program
        executed = executed_commands(name, words[1:])
        if name is None:
            effects = unknown("which program runs is known only when it runs")
        elif executed is None:
            effects = unknown(f"the commands that `{name}` executes are not known in advance")
        else:
            effects = check_program(ProgramCall(name, words[1:], state))
        if unwrapped.reads:
            effects = replace(effects, reads=(*unwrapped.reads, *effects.reads))
        touched = path_effects(effects, state, bounded=self._is_cut)
        self.sweeps.extend(touched.sweeps)
        part = self._make_part(invocation, name, effects, touched, state)
        if executed or (effects.writes and profile_of(name).executes):
            part = replace(part, rules=replace(part.rules, exact=True))
        self._add(part)
        for command in executed or ():
            self._analyze_find_command(command, part, touched, state)
        return _state_after(unwrapped, effects, state)

    def _analyze_find_command(
        self, words: tuple[Word, ...], find: CommandPart, touched: PathEffects, state: ShellState
    ) -> None:
        """A command that `find` runs for the files it finds: only a rule for the whole `find` covers it."""
        folders = tuple(effect.path for effect in touched.effects if isinstance(effect, Reads | Writes))
        starts = [word.text for word in find.argv[1:2] if word.kind == "literal" and not word.text.startswith("-")]
        in_other_folder = any(word.kind == "literal" and word.text in ("-execdir", "-okdir") for word in find.argv)
        found_files = PipelineInput(folders, starts[0] if starts else "./", listed_links(find.argv[1:]))
        self._add_sweeps(found_files)
        words = fill_placeholder(words, "{}", found_files)
        source = syntax.SimpleCommand((), (), (), find.text, 0, 0)
        invocation = Invocation(source, unwrap(words, UNKNOWN_INPUT), Redirections(), exact_rule=True)
        outer = self._context
        self._context = outer.enter(
            WrapperContext((find.program or "",), find.rules.allow, find.rules.deny, closed=True)
        )
        unknown_cwd = state.with_unknown_cwd()
        self._analyze_invocation(invocation, unknown_cwd if in_other_folder else state, unknown_cwd)
        self._context = outer

    def _analyze_nested_script(self, invocation: Invocation, text: Word, state: ShellState) -> ShellState:
        """Shell text in an argument, such as that of `bash -c` or `eval`."""
        unwrapped, redirects, outer = invocation.unwrapped, invocation.redirects, self._context
        shell = unwrapped.wrappers[-1]
        same_shell = shell == SAME_SHELL_SCRIPT
        if len(outer.wrappers) + len(unwrapped.wrappers) > MAX_NESTED_SHELLS:
            self._add_problem("shells nested too deeply")
            return state.with_unknown_cwd()
        why = invocation.problem() or ("" if text.kind == "literal" else "the script is known only when it runs")
        wrapper = WrapperContext(
            unwrapped.wrappers,
            unwrapped.allow_texts,
            unwrapped.deny_texts,
            harmless=unwrapped.harmless and not why and not describe_change(redirects.effects),
            why=why or _why_not_read_only(unwrapped, redirects.effects, NO_EFFECTS),
            closed=not unwrapped.transparent,
        )
        if shell in POSIX_SHELLS and (match := _BASH_SYNTAX.search(text.text)):
            self._add_problem(f"`{shell}` may be another shell than bash, which reads `{match.group()}` differently")
        self._context = outer.enter(wrapper)
        parts_before, after = len(self.parts), state
        outer_script, constants = self._script, self._constants
        try:
            script = parse(text.text)
            self.scripts.append((text.text, script))
            self._script, self._constants = script, frozenset() if same_shell else None
            after = self.follow_script(script, state if same_shell else replace(state, variables={}))
        except syntax.TooComplex:
            raise
        except syntax.Unparsable as error:
            problem = f"the script of `{shell}` is not understood: {error}"
            self._add_problem(problem)
            why = why or problem
        self._context, self._script, self._constants = outer, outer_script, constants
        if why or redirects.effects or len(self.parts) == parts_before:
            effects = CallEffects(reads=unwrapped.reads, known=not why, why=why)
            touched = path_effects(effects, state)
            self._add(self._make_part(invocation, shell, effects, touched, state))
        return after if same_shell else state

    # Parts

    def _make_part(
        self, invocation: Invocation, name: str | None, effects: CallEffects, touched: PathEffects, state: ShellState
    ) -> CommandPart:
        unwrapped, redirects = invocation.unwrapped, invocation.redirects
        why = invocation.problem() or touched.why
        known = not why
        program_read_only = known and unwrapped.harmless and effects.read_only and not describe_change(touched.effects)
        text = unwrapped.allow_texts[0]
        all_effects = (*touched.effects, *redirects.effects)
        part = CommandPart(
            text=text,
            argv=unwrapped.words,
            program=name,
            effects=(Runs(text, contained=known), *all_effects),
            read_only=program_read_only and not describe_change(redirects.effects),
            known=known,
            why=why or _why_not_read_only(unwrapped, all_effects, effects),
            wrappers=unwrapped.wrappers,
            rules=RuleTexts(
                _with_influential_assignments(invocation.command, unwrapped.allow_texts),
                unwrapped.deny_texts,
                invocation.exact_rule or not EXACT_RULE_WRAPPERS.isdisjoint(unwrapped.wrappers),
            ),
            redirects=redirects,
            bulk_reads=touched.bulk_reads,
            cwds=state.cwds,
            program_read_only=program_read_only,
            only_fetches=known
            and unwrapped.harmless
            and bool(effects.fetches)
            and not (effects.changes or effects.writes),
        )
        is_piped = self._pipeline_start is not None or _reads_process(invocation.command.redirects, state)
        return replace(part, code=self._code_inputs(part, invocation, state, is_piped))

    def _code_inputs(self, part: CommandPart, invocation: Invocation, state: ShellState, is_piped: bool) -> CodeInputs:
        """The texts that a part, or a program it prints to, may run as code."""
        command = invocation.command
        texts = [
            _known_text(resolve_without_braces(redirect.target, state))
            for redirect in command.redirects
            if redirect.heredoc
        ]
        if part.known:
            return CodeInputs(tuple(texts), piped=is_piped)
        if self._pipeline_start is not None:
            earlier = dict.fromkeys(self.parts[self._pipeline_start :])
            printed = [text for one in earlier for text in (*one.code.texts, _arguments_text(one)) if text]
            texts.append("\n".join(printed))
        variables = invocation.unwrapped.variables
        names = [*(one.name for one in command.assignments), *variables]
        if part.program in DECLARATIONS:
            names += [word.prefix.partition("=")[0] for word in part.argv[1:]]
        values = _influential_values(command, variables, state)
        return CodeInputs(tuple(texts), values, _code_variable(names), is_piped)


def _merge_states(one: ShellState | None, other: ShellState | None) -> ShellState | None:
    if one is None or other is None:
        return one or other
    return one if one is other else one.merge(other)


def _with_heredoc_script(
    unwrapped: UnwrappedCommand, command: syntax.SimpleCommand, state: ShellState
) -> UnwrappedCommand:
    """A shell without a script runs its standard input: the text of a here-document is then code."""
    name = unwrapped.program
    texts = [redirect.target for redirect in command.redirects if redirect.heredoc]
    if unwrapped.script or unwrapped.problem or name not in SHELLS or not texts:
        return unwrapped
    if any(not word.prefix.startswith("-") for word in unwrapped.words[1:]):
        return unwrapped
    script = resolve_without_braces(texts[-1], state)
    wrappers = (*unwrapped.wrappers, name or "")
    return replace(unwrapped, script=script, wrappers=wrappers, harmless=False, transparent=False)


def _streaming_stages(pipeline: syntax.Pipeline) -> int:
    """How many stages at the beginning of a pipeline end when a `head` behind them has read enough."""
    count = 0
    for index, stage in enumerate(pipeline.stages):
        name = stage.words[0].source if isinstance(stage, syntax.SimpleCommand) and stage.words else ""
        if profile_of(name).ends_its_input:
            count = index
        if not profile_of(name).streams:
            break
    return count


def _bounds_its_input(words: tuple[Word, ...], state: ShellState) -> bool:
    """Whether a program reads only so much of its input as its options say."""
    return (
        len(words) > 1
        and words[0].kind == "literal"
        and check_program(ProgramCall(words[0].text, words[1:], state)).bounded
    )


def _redirects_input(redirect: syntax.Redirect) -> bool:
    return redirect.operator.startswith("<") or redirect.descriptor == "0"


def _reads_process(redirects: tuple[syntax.Redirect, ...], state: ShellState) -> bool:
    """Whether the input comes from a process substitution."""
    inputs = [redirect for redirect in redirects if _redirects_input(redirect) and not redirect.heredoc]
    return any(word.text == PROCESS_SUBSTITUTION_PATH for one in inputs for word in resolve_word(one.target, state))


def _before_body(state: ShellState, command: syntax.Command) -> ShellState:
    """The state in the body of a compound command: if something in it may change the folder, no folder is known."""
    return state.with_unknown_cwd() if may_change_cwd(command) else state


def _state_after(unwrapped: UnwrappedCommand, effects: CallEffects, state: ShellState) -> ShellState:
    name, words = unwrapped.program, unwrapped.words
    if name is None or unwrapped.problem:
        return state.with_unknown_cwd()
    folder = folder_after(name, words[1:], state.home)
    if folder is None:
        return state
    # Another program of that name, and a folder that is not certain.
    elsewhere = words[0].text != name or not SAME_SHELL_WRAPPERS.issuperset(unwrapped.wrappers) or not folder
    return state.with_unknown_cwd() if elsewhere or not effects.known else state.after_cd(folder)


def redirect_effects(
    redirects: tuple[syntax.Redirect, ...], state: ShellState, *, bounded: bool = False
) -> Redirections:
    """The files that redirections read and write. Here-documents and standard streams touch nothing.

    `bounded`: only so much is read that the file may have no end.
    """
    effects: list[Effect] = []
    patterns: list[str] = []
    why = ""
    for redirect in redirects:
        if redirect.heredoc:
            continue
        words = resolve_word(redirect.target, state)
        word = words[0]
        if len(words) != 1 or word.kind != "literal":
            why = f"the redirection to `{redirect.target.source}` is not known in advance"
            if redirect.operator not in ("<", "<&"):
                patterns.extend(path for one in words for path in state.absolute_paths(one.pattern) or (one.pattern,))
            continue
        if redirect.operator in (">&", "<&") and _DUPLICATED_DESCRIPTOR.fullmatch(word.text):
            continue
        if socket := _SOCKET.fullmatch(word.text):
            effects.append(Fetches(f"{socket.group(1)}://{socket.group(2)}:{socket.group(3)}"))
            why = f"`{word.text}` opens a connection"
            continue
        paths = state.absolute_paths(word.text)
        if not paths:
            why = "the folder of a redirection is not known in advance"
        for path in paths:
            if path in _ENDLESS and redirect.operator == "<" and not bounded:
                why = why or f"reading {path} never ends"
            if not _is_stream(path):
                if redirect.operator in ("<", "<&", "<>"):
                    effects.append(Reads(path))
                if redirect.operator not in ("<", "<&"):
                    effects.append(Writes(path))
    return Redirections(tuple(effects), why, tuple(patterns))


def path_effects(call: CallEffects, state: ShellState, *, bounded: bool = False) -> PathEffects:
    """The paths that a program call reads and writes in this state; `bounded` as for redirections."""
    effects: list[Effect] = []
    bulk_reads: list[str] = []
    sweeps: list[Sweep] = []
    why = call.why if not call.known else ""
    for word in call.reads:
        paths = word.paths(state)
        why = why or ("" if paths else f"the file read by {word.shown} is not known in advance")
        if not (bounded or call.bounded or call.changes) and (
            endless := next(filter(_ENDLESS.__contains__, paths or ()), "")
        ):
            why = why or f"reading {endless} never ends"
        effects.extend(Reads(path) for path in paths or () if not _is_stream(path))
        if (call.recursive and word not in call.not_recursive) or word.kind != "literal":
            bulk_reads.extend(paths or ())
        if call.follows_links:
            sweeps.extend(map(Sweep, paths or ()))
        if word.kind == "glob":
            sweeps.extend(glob_sweeps(word, state))
    for word in call.writes:
        paths = word.paths(state)
        why = why or ("" if paths else f"the file written by {word.shown} is not known in advance")
        effects.extend(Writes(path) for path in paths or () if not _is_stream(path))
    effects.extend(map(Fetches, call.fetches))
    return PathEffects(tuple(dict.fromkeys(effects)), tuple(dict.fromkeys(bulk_reads)), why, tuple(sweeps))


def _is_used_unquoted(loop: syntax.LoopCommand) -> bool:
    """Whether the body of a loop uses its variable somewhere without quotes."""
    return any(
        isinstance(piece, syntax.Variable) and piece.name == loop.variable and not piece.quoted
        for command in syntax.every_command(loop.body)
        for piece in syntax.nested_pieces(syntax.pieces_of(command))
    )


def glob_sweeps(word: Word, state: ShellState) -> list[Sweep]:
    """The files that a glob may match, in each folder it may be expanded in."""
    folders = ("/",) if word.prefix.startswith("/") else state.cwds
    return [Sweep(folder, word.text.removeprefix("./").lstrip("/")) for folder in folders]


def _is_stream(path: str) -> bool:
    """Whether a path is no file: the null device, or a descriptor that is already open."""
    return path in _STANDARD_STREAMS or _OPEN_DESCRIPTOR.fullmatch(path) is not None


def describe_change(effects: tuple[Effect, ...]) -> str:
    """The first effect that changes something, in words; nothing if none does."""
    for effect in effects:
        if isinstance(effect, Writes):
            return f"it writes {effect.path}"
        if isinstance(effect, Fetches):
            return f"it fetches {effect.url}"
    return ""


def _why_not_read_only(unwrapped: UnwrappedCommand, effects: tuple[Effect, ...], call: CallEffects) -> str:
    """Why a call whose effects are known is not read-only; nothing if it is."""
    if change := describe_change(effects):
        return change
    if call.changes or call.writes:
        return call.why or "it changes something"
    return "" if unwrapped.harmless else f"it runs through `{unwrapped.wrappers[-1]}`"


def influential_variable(names: Iterable[str], is_harmless: Callable[[str], bool] = is_harmless_variable) -> str:
    """The first variable that may change what programs do, as a reason; nothing if there is none."""
    return next((f"it sets `{name}`, which can change what programs do" for name in names if not is_harmless(name)), "")


def _code_variable(names: Iterable[str]) -> str:
    return next((name for name in names if name in _CODE_VARIABLES), "")


def _influential_assignments(command: syntax.SimpleCommand) -> list[syntax.Assignment]:
    return [one for one in command.assignments if not is_harmless_variable(one.name)]


def _with_influential_assignments(command: syntax.SimpleCommand, texts: tuple[str, ...]) -> tuple[str, ...]:
    """These texts behind the assignments that may change what programs do: a rule must name them, too."""
    assignments = _influential_assignments(command)
    if not assignments:
        return texts
    lead = command.source[: assignments[-1].end - command.start]
    return tuple(f"{lead} {text}" for text in texts)


def _influential_values(
    command: syntax.SimpleCommand, variables: tuple[str, ...], state: ShellState
) -> tuple[str, ...]:
    """The values of influential variables: assigned before the command, or given to a wrapper such as `env` by name."""
    values = [one.value for one in _influential_assignments(command) if one.value]
    texts = [_known_text(resolve_without_braces(value, state)) for value in values]
    if variables:
        pairs = [_known_text(word).partition("=") for word in resolve_words(command.words, state)]
        texts += [value for name, _, value in pairs if name in variables and not is_harmless_variable(name)]
    return tuple(texts)


def _arguments_text(part: CommandPart) -> str:
    return " ".join([word.text or word.source for word in part.argv[1:]])


def _known_text(word: Word) -> str:
    return word.text if word.kind == "literal" else word.source
