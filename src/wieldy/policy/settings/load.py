"""Loads settings: reads the sources, merges their values, parses their rules, and holds back what needs consent."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Container, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from wieldy.core.active_commands import active_files
from wieldy.core.decision import Behavior
from wieldy.core.errors import SettingsError
from wieldy.core.programs import add_roots
from wieldy.core.setting_keys import BASH_TIMEOUT_VARIABLES, default_of
from wieldy.core.state_dirs import config_home, user_home
from wieldy.core.text import plural
from wieldy.core.tool_names import RENAMED_TOOLS
from wieldy.policy.permissions.paths import PathResolver
from wieldy.policy.permissions.rules import Examples, Layer, Origin, Rule, RuleError, guess_tool, parse, unknown_tool
from wieldy.policy.permissions.ruleset import RiskLevels, RuleSet
from wieldy.policy.settings.consent import FILE_NAME
from wieldy.policy.settings.sources import (
    CLAUDE_FOLDER,
    MCP_FILE,
    SettingsProblem,
    SettingsSource,
    claude_locations,
    find_project_root,
    load_mcp_file,
    load_named_file,
    load_source,
    own_locations,
    source_from_values,
)

if TYPE_CHECKING:
    from wieldy.core.active_commands import ActiveCommands
    from wieldy.core.workspace import Workspace
    from wieldy.policy.permissions.decide import Policy
    from wieldy.policy.settings.consent import ConsentItem, Trust

BEHAVIORS: tuple[Behavior, ...] = ("deny", "ask", "allow")
LAYERS: tuple[Layer, ...] = ("managed", "code", "command line", "local", "project", "user")
# The members of these are never merged: half of one server and half of another would be a third that no file holds.
WHOLE_MEMBERS = {("mcpServers",)}
COMMAND_SECTIONS = frozenset({"hooks", "statusLine", "mcpServers"})


class Settings(Struct, frozen=True):
    """The settings in force in a project: values, rules, where each is written, and what is wrong.

    `root` is the folder of the project, in or below which the work begins.
    `pending` is what the project asks for and the user has not yet consented to; `report` says how Claude Code's settings
    were read; `left_out` are rules that fail their own examples; `named_file` is the file of the command line;
    `mistakes` are the problems of settings given in code, and of the file of the command line if it cannot be read.
    """

    root: str
    values: Mapping[str, Any] = field(default_factory=dict)
    rules: RuleSet = field(default_factory=RuleSet)
    origins: Mapping[str, Origin] = field(default_factory=dict)
    warnings: tuple[SettingsProblem, ...] = ()
    errors: tuple[SettingsProblem, ...] = ()
    pending: tuple[ConsentItem, ...] = ()
    report: tuple[SettingsProblem, ...] = ()
    user_folder: str = ""
    left_out: tuple[Rule, ...] = ()
    named_file: str = ""
    mistakes: tuple[SettingsProblem, ...] = ()
    commands: ActiveCommands | None = None

    def require_valid(self) -> None:
        """Raise `SettingsError` where something given in code is not in force."""
        if self.mistakes:
            raise SettingsError("; ".join(map(str, self.mistakes)))

    def require_rules(self) -> None:
        """Raise `SettingsError` where a rule or setting that forbids is lost, so that no work begins without it."""
        lost = [str(problem) for problem in self.errors if problem.fatal]
        if lost:
            reasons = "; ".join(lost)
            end = "" if reasons.endswith("?") else "."
            raise SettingsError(f"{reasons}{end} Nothing was started: correct this first")

    def origin(self, name: str) -> Origin | None:
        """Return where a value is written; None where it is not set."""
        return self.origins.get(name)

    def get(self, name: str) -> Any:
        """Return a value by its dotted name, or its default where it is not set."""
        value: Any = self.values
        for step in name.split("."):
            if not isinstance(value, Mapping) or step not in value:
                return default_of(name)
            value = value[step]
        return value

    def mode(self, requested: str | None = None) -> str:
        """Return the mode to start in: the requested one, else the configured one; bypass only where it is not disabled."""
        mode = requested or self.get("permissions.defaultMode")
        is_disabled = self.get("permissions.disableBypassPermissionsMode") == "disable"
        return "default" if mode == "bypassPermissions" and is_disabled else str(mode)

    def require_mode(self, name: str) -> None:
        """Raise `ValueError` for a mode that does not exist, or that the settings disable."""
        from wieldy.policy.permissions.modes import find_mode

        if find_mode(name).accepts_all and self.mode(name) != name:
            origin = self.origin("permissions.disableBypassPermissionsMode")
            where = f" ({origin.file})" if origin is not None and origin.file else ""
            raise ValueError(f"the settings disable the mode {name}{where}")

    @property
    def pending_notice(self) -> str:
        """What waits for the person's consent, in one line; empty if nothing does."""
        return _pending_notice(self.pending) if self.pending else ""

    @property
    def outside(self) -> Literal["ask", "deny"]:
        """What happens to files outside the allowed folders."""
        return "deny" if self.get("permissions.outside") == "deny" else "ask"

    def extra_roots(self, workspace: Workspace, before: Settings) -> tuple[str, ...]:
        """Return the extra roots of a workspace after these settings replaced those before."""
        name = "permissions.additionalDirectories"
        old, new = (list(map(os.path.realpath, settings.get(name))) for settings in (before, self))
        return tuple(dict.fromkeys([*(folder for folder in workspace.extra_roots if folder not in old), *new]))

    def policy(self, workspace: Workspace, mode: str | None = None) -> Policy:
        """Build the permission policy of a workspace."""
        from wieldy.policy.permissions.decide import Policy

        # Also where the user's settings are when no variable moves them: they apply to the next session.
        home = workspace.env.get("HOME")
        default_folder = str(config_home({"HOME": home})) if home else ""
        return Policy.for_workspace(
            workspace,
            self.rules,
            mode=self.mode(mode),
            tools=self.values.get("tools"),
            outside=self.outside,
            project=self.root,
            config_folders=[place for place in (self.user_folder, self.named_file, default_folder) if place],
        )

    def apply(self, workspace: Workspace, policy: Policy, *, before: Settings) -> None:
        """Put these settings in force in place of those before; the permission mode stays."""
        workspace.settings = self.values
        workspace.commands = self.commands
        workspace.extra_roots = self.extra_roots(workspace, before)
        add_roots(*workspace.extra_roots)
        policy.use_roots(workspace.roots)
        levels = RiskLevels.from_settings(self.values.get("tools"))
        active = () if not workspace.files.is_local else active_files(self.values, workspace.root, workspace.home)
        policy.update_settings(self.rules, levels, self.outside, active)


def load_settings(  # noqa: PLR0913 - every option is a keyword with a default
    root: str | os.PathLike[str],
    *,
    explicit: Mapping[str, Any] | None = None,
    files: bool | Collection[str] = True,
    env: Mapping[str, str] = os.environ,
    layer: Layer = "code",
    managed: Path | None = None,
    trust: Trust | None = None,
    named: str | os.PathLike[str] | None = None,
    tool_names: Container[str] = (),
) -> Settings:
    """Load the settings of the project that a folder belongs to.

    `explicit` ones, from code or the command line, rank below managed ones and above all files; then comes the file `named`
    on the command line. Without `files` only these two count; with layers, also managed files and those of these layers.
    `tool_names` are tools beside the built-in ones that rules may name.
    """
    root = os.path.realpath(root) if files is False else find_project_root(root, env)
    sources = [source_from_values(explicit, root, layer)] if explicit is not None else []
    if named is not None:
        sources.append(load_named_file(Path(named).absolute()))
    report: list[SettingsProblem] = []
    if files is not False:
        layers = LAYERS if files is True else ("managed", *files)
        loaded = [load_source(location) for location in own_locations(root, env, managed) if location.layer in layers]
        if "project" in layers:
            loaded.append(load_mcp_file(root))
        sources = _sort_by_layer([*sources, *(source for source in loaded if source is not None)])
        restrictions_only = not _reads_claude(_hold_back(sources, root, trust, env)[0])
        sources = _sort_by_layer([*sources, *_load_claude(root, env, report, restrictions_only, layers)])
    sources, pending, digests = _hold_back(sources, root, trust, env)
    settings = _combine(root, sources, pending, report, env, tool_names)
    return settings if digests is None else replace(settings, commands=_active_commands(sources, root, env, digests))


def _sort_by_layer(sources: Sequence[SettingsSource]) -> list[SettingsSource]:
    """Sort the strongest first; sources of one layer keep their order."""
    return sorted(sources, key=lambda source: LAYERS.index(source.layer))


def _reads_claude(sources: Sequence[SettingsSource]) -> bool:
    for source in sources:
        section = source.values.get("compat")
        if isinstance(section, Mapping) and "claude" in section:
            return section["claude"] is True
    return False


def _load_claude(
    root: str,
    env: Mapping[str, str],
    report: list[SettingsProblem],
    restrictions_only: bool,
    layers: Collection[str],
) -> Iterator[SettingsSource]:
    for location in claude_locations(root, env):
        if location.layer in layers and (source := load_source(location)) is not None:
            from wieldy.policy.settings.claude_compat import only_restrictions, translate

            translated, changes = (only_restrictions if restrictions_only else translate)(source)
            report += changes
            yield translated


def _hold_back(
    sources: Sequence[SettingsSource], root: str, trust: Trust | None, env: Mapping[str, str]
) -> tuple[list[SettingsSource], tuple[ConsentItem, ...], dict[str, str] | None]:
    """Return the sources without what needs consent first, those items, and the files of commands that have it.

    Commands of the user's own settings stay: that they must not run is said when they would.
    """
    if not any(source.from_project or not COMMAND_SECTIONS.isdisjoint(source.values) for source in sources):
        return list(sources), (), None
    from wieldy.policy.settings.consent import FileDigests, Trust, consent_items, without_pending

    trust = trust or Trust(env=env)
    files = FileDigests(root, str(user_home(env)))
    items = [item for source in sources for item in consent_items(source, files)]
    needed = [item for item in items if item.layer in ("local", "project", "user")]
    pending = tuple(item for item in trust.pending(root, needed) if not _is_enabled_server(item, sources))
    digests = {path: digest for item in items if item not in pending for path, digest in item.files.items()}
    if pending:
        sources = [without_pending(source, pending, files) if source.from_project else source for source in sources]
    return list(sources), pending, digests


def _active_commands(
    sources: Sequence[SettingsSource], root: str, env: Mapping[str, str], digests: Mapping[str, str]
) -> ActiveCommands:
    from wieldy.core.active_commands import ActiveCommands, CommandPlace, active_commands, command_text
    from wieldy.policy.settings.consent import FileDigests

    home = str(user_home(env))
    places: dict[str, CommandPlace] = {}
    for source in sources:
        place = CommandPlace(source.layer, source.file or "", source.from_project)
        servers = source.values.get("mcpServers")
        for name in servers if isinstance(servers, Mapping) else ():
            places.setdefault(f"mcpServers.{name}", place)
        for command, _ in active_commands(source.values, root):
            text = command_text(command)
            if text not in places or place.is_shared:
                places[text] = place
    return ActiveCommands(root, home, digests, places, FileDigests(root, home).written_by)


def _is_enabled_server(item: ConsentItem, sources: Sequence[SettingsSource]) -> bool:
    """Whether the user's own settings enable this MCP server of the project."""
    section, _, name = item.name.partition(".")
    if section != "mcpServers":
        return False
    own = [source.values for source in sources if not source.from_project]
    enabled = [name for values in own for name in values.get("enabledMcpjsonServers", ())]
    return name in enabled or any(values.get("enableAllProjectMcpServers") is True for values in own)


def _combine(
    root: str,
    sources: Sequence[SettingsSource],
    pending: tuple[ConsentItem, ...],
    report: list[SettingsProblem],
    env: Mapping[str, str],
    tool_names: Container[str],
) -> Settings:
    problems = [problem for source in sources for problem in source.problems]
    problems += _variable_warnings(env)
    unreadable = [source.error for source in sources if source.error is not None]
    paths = PathResolver((root,), home=env.get("HOME"))
    left_out: list[Rule] = []
    rules: list[Rule] = []
    mistakes: list[SettingsProblem] = []
    for source in sources:
        rule_problems: list[SettingsProblem] = []
        rules += _parse_rules(source, paths, rule_problems, left_out, tool_names)
        problems += [*rule_problems, *_tool_name_warnings(source)]
        if source.layer == "command line" and source.error is not None:
            mistakes.append(source.error)
        if source.layer == "code":
            mistakes += [*source.problems, *_hook_problems(source), *(one for one in rule_problems if one.lost)]
    values, origins = merge_sources(sources)
    _make_absolute(values, root, paths.home)
    if values.get("disableAllHooks") is not True:
        problems += [problem for source in sources for problem in _lost_guards(source)]
    managed = [source.values for source in sources if source.layer == "managed"]
    if any(section.get("allowManagedPermissionRulesOnly") is True for section in managed):
        rules = _only_managed(rules, problems)
    if pending:
        problems.append(SettingsProblem(_pending_notice(pending)))
    errors = (*unreadable, *(problem for problem in problems if problem.fatal))
    return Settings(
        root,
        values,
        RuleSet(tuple(rules), broken=f"the settings are broken: {errors[0]}" if errors else None),
        origins,
        tuple(problem for problem in problems if not problem.fatal),
        errors,
        pending,
        tuple(report),
        str(config_home(env)),
        tuple(left_out),
        next((source.file for source in sources if source.layer == "command line" and source.file), ""),
        tuple(mistakes),
    )


def _pending_notice(pending: Sequence[ConsentItem]) -> str:
    names = ", ".join(dict.fromkeys(item.name for item in pending))
    wait = "waits" if len(pending) == 1 else "wait"
    subject = f"{plural(len(pending), 'setting')} of this project {wait}"
    return f"{subject} for your consent: `wieldy permissions trust` ({names})"


def _hook_problems(source: SettingsSource) -> list[SettingsProblem]:
    if "hooks" not in source.values:
        return []
    from wieldy.policy.hooks.config import parse_hooks

    return [SettingsProblem(text) for text in parse_hooks(source.values["hooks"])[1]]


def _lost_guards(source: SettingsSource) -> Iterator[SettingsProblem]:
    """Yield the hooks of a source that should block calls or prompts and cannot be used."""
    if section := source.values.get("hooks"):
        from wieldy.policy.hooks.config import lost_guards

        for event, groups in section.items():
            for text in lost_guards(event, groups):
                yield source.problem(text, ("hooks", event), fatal=True)


def _variable_warnings(env: Mapping[str, str]) -> Iterator[SettingsProblem]:
    for name in BASH_TIMEOUT_VARIABLES:
        if (text := env.get(name)) and not (text.isdecimal() and int(text) > 0):
            yield SettingsProblem(f"{name} must be a number of milliseconds above 0, not `{text}`; it is ignored")


def _tool_name_warnings(source: SettingsSource) -> Iterator[SettingsProblem]:
    section = source.values.get("tools")
    for name in section if isinstance(section, Mapping) else ():
        if likely_name := RENAMED_TOOLS.get(name) or guess_tool(name):
            text = f"`tools.{name}`: there is no built-in tool `{name}`, did you mean `{likely_name}`?"
            yield source.problem(text, ("tools", name))


def merge_sources(sources: Sequence[SettingsSource]) -> tuple[dict[str, Any], dict[str, Origin]]:
    """Merge sources given strongest first; return the values, and their origins by dotted name."""
    values: dict[str, Any] = {}
    origins: dict[str, Origin] = {}
    for source in sources:
        _merge_into(values, source.values, (), source, origins)
    return values, origins


def _merge_into(
    target: dict[str, Any],
    values: Mapping[str, Any],
    path: tuple[str, ...],
    source: SettingsSource,
    origins: dict[str, Origin],
) -> None:
    for name, value in values.items():
        here = (*path, str(name))
        existing = target.get(name)
        if name not in target:
            target[name] = _copy(value)
            _record_origins(value, here, source, origins)
        elif isinstance(existing, dict) and isinstance(value, Mapping) and path not in WHOLE_MEMBERS:
            _merge_into(existing, value, here, source, origins)
        elif isinstance(existing, list) and isinstance(value, list):
            known = {_fingerprint(item) for item in existing}
            existing += [item for item in value if _fingerprint(item) not in known]


def _record_origins(value: Any, path: tuple[str, ...], source: SettingsSource, origins: dict[str, Origin]) -> None:
    origins[".".join(path)] = source.origin(path)
    if isinstance(value, Mapping):
        for name, member in value.items():
            _record_origins(member, (*path, str(name)), source, origins)


def _copy(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _copy(member) for name, member in value.items()}
    return list(value) if isinstance(value, list | tuple) else value


def _fingerprint(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True, default=str)


def _make_absolute(values: dict[str, Any], root: str, home: str) -> None:
    section = values.get("permissions")
    folders = section.get("additionalDirectories") if isinstance(section, dict) else None
    if isinstance(section, dict) and isinstance(folders, list):
        expanded = (home + folder[1:] if folder == "~" or folder.startswith("~/") else folder for folder in folders)
        section["additionalDirectories"] = [os.path.normpath(os.path.join(root, folder)) for folder in expanded]


def _parse_rules(
    source: SettingsSource,
    paths: PathResolver,
    problems: list[SettingsProblem],
    left_out: list[Rule],
    tool_names: Container[str],
) -> Iterator[Rule]:
    """Yield the usable rules of a source; an allow rule that fails its own examples goes to `left_out`."""
    from wieldy.policy.permissions.explain import failed_examples

    for behavior in BEHAVIORS:
        for value, origin in source.items(("permissions", behavior)):
            text, examples = (value, {}) if isinstance(value, str) else (value["rule"], value)
            try:
                rule = parse(
                    text,
                    behavior,
                    origin,
                    Examples(tuple(examples.get("match", ())), tuple(examples.get("not_match", ()))),
                )
            except RuleError as error:
                is_fatal = behavior != "allow"
                text = f"{behavior} rule cannot be used: {error}"
                problems.append(SettingsProblem(text, origin.file, origin.line, fatal=is_fatal, lost=True))
                continue
            problems += [
                SettingsProblem(f"{behavior} rule `{rule}`: {warning}", origin.file, origin.line)
                for warning in (rule.warning, _unknown_tool(rule, source, tool_names))
                if warning is not None
            ]
            failures = failed_examples(rule, paths) if examples else ()
            for failure in failures:
                # A rule that forbids stays in force whatever its examples say.
                note = "" if behavior == "allow" else "; the rule stays in force"
                text = f"{behavior} rule `{rule}` {failure}{note}"
                problems.append(SettingsProblem(text, origin.file, origin.line, lost=behavior == "allow"))
            if failures and behavior == "allow":
                left_out.append(rule)
            else:
                yield rule


def _unknown_tool(rule: Rule, source: SettingsSource, tool_names: Container[str]) -> str | None:
    """What is wrong with the name of a rule's tool. Claude Code's files may name tools that only Claude Code has."""
    is_claudes = CLAUDE_FOLDER in Path(source.file or "").parts
    if is_claudes and guess_tool(rule.text.partition("(")[0]) is None:
        return None
    return unknown_tool(rule, tool_names)


def _only_managed(rules: Sequence[Rule], problems: list[SettingsProblem]) -> list[Rule]:
    left_out = [rule for rule in rules if rule.behavior == "allow" and rule.origin.layer != "managed"]
    problems += [
        SettingsProblem(f"allow rule `{rule}` left out: only managed ones count", rule.origin.file) for rule in left_out
    ]
    return [rule for rule in rules if rule not in left_out]


FileStamp: TypeAlias = tuple[int, int, int] | None


class SettingsWatcher:
    """Notices changes of the settings files of a folder. Checking takes microseconds, so that every request may check.

    `named` is the file of the command line; `others` says whether any other counts.
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        env: Mapping[str, str] = os.environ,
        *,
        named: str | os.PathLike[str] | None = None,
        others: bool = True,
    ) -> None:
        root = find_project_root(root, env)
        self._files: tuple[str, ...] = () if named is None else (os.path.abspath(named),)
        if others:
            self._files += (
                *(str(location.file) for location in own_locations(root, env)),
                *(str(location.file) for location in claude_locations(root, env)),
                os.path.join(root, MCP_FILE),
                str(config_home(env) / FILE_NAME),
            )
        self._stamps = self._stat_all()

    def changed(self) -> bool:
        """Return whether any file has appeared, vanished or changed since the last look."""
        stamps = self._stat_all()
        if all(self._stamps[file] == stamp for file, stamp in stamps.items()):
            return False
        self._stamps |= stamps
        return True

    def _stat_all(self) -> dict[str, FileStamp]:
        return {file: _stat(file) for file in self._files}


class SettingsReader:
    """Reads the settings of a toolbox. `watched` says whether any comes from a file, which may change."""

    def __init__(
        self,
        root: str | os.PathLike[str],
        *,
        explicit: Mapping[str, Any] | None,
        files: bool | Collection[str],
        named: str | os.PathLike[str] | None,
        tool_names: Container[str] = (),
    ) -> None:
        self.watched = files is not False or named is not None
        self._read = partial(load_settings, root, explicit=explicit, files=files, named=named, tool_names=tool_names)
        self._watcher = SettingsWatcher(root, named=named, others=files is not False)

    def read(self) -> Settings:
        return self._read()

    def changed(self) -> bool:
        """Return whether any file has changed since the last look."""
        return self.watched and self._watcher.changed()


def _stat(path: str) -> FileStamp:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size
