"""Loads settings: which sources, what they may set, and the rules and values that come of them."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from msgspec import Struct, field

from wieldy.core.decision import Behavior
from wieldy.core.state_dirs import config_home
from wieldy.permissions.paths import PathResolver
from wieldy.permissions.rules import Examples, Layer, Origin, Rule, RuleError, parse
from wieldy.permissions.ruleset import RuleSet
from wieldy.permissions.trust import FILE_NAME
from wieldy.settings.sources import (
    MCP_FILE,
    SettingsProblem,
    SettingsSource,
    foreign_places,
    given,
    load,
    own_places,
    project_servers,
    required,
)

if TYPE_CHECKING:
    from wieldy.core.workspace import Workspace
    from wieldy.permissions.decide import Policy
    from wieldy.permissions.trust import ConsentItem, Trust


# Members of these are taken whole: half of one server and half of another would be a third that nobody meant.
WHOLE = {("mcpServers",)}


def merged(sources: Sequence[SettingsSource]) -> tuple[dict[str, Any], dict[str, Origin]]:
    """Values and their origins by dotted name, from sources given strongest first."""
    values: dict[str, Any] = {}
    origins: dict[str, Origin] = {}
    for source in sources:
        _add(values, source.values, (), source, origins)
    return values, origins


def _add(
    into: dict[str, Any],
    values: Mapping[str, Any],
    path: tuple[str, ...],
    source: SettingsSource,
    origins: dict[str, Origin],
) -> None:
    for name, value in values.items():
        here = (*path, str(name))
        held = into.get(name)
        if name not in into:
            into[name] = _copied(value)
            _record(value, here, source, origins)
        elif isinstance(held, dict) and isinstance(value, Mapping) and path not in WHOLE:
            _add(held, value, here, source, origins)
        elif isinstance(held, list) and isinstance(value, list):
            seen = {_fingerprint(item) for item in held}
            held += [item for item in value if _fingerprint(item) not in seen]


def _record(value: Any, path: tuple[str, ...], source: SettingsSource, origins: dict[str, Origin]) -> None:
    origins[".".join(path)] = source.origin(path)
    if isinstance(value, Mapping):
        for name, member in value.items():
            _record(member, (*path, str(name)), source, origins)


def _copied(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _copied(member) for name, member in value.items()}
    return list(value) if isinstance(value, list | tuple) else value


def _fingerprint(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True, default=str)


BEHAVIORS: tuple[Behavior, ...] = ("deny", "ask", "allow")


def rules_of(
    source: SettingsSource, paths: PathResolver, problems: list[SettingsProblem], left_out: list[Rule]
) -> Iterator[Rule]:
    """The rules a source gives; what is wrong with the others goes to `problems`, those that break their word to `left_out`."""
    for behavior in BEHAVIORS:
        for value, origin in source.items(("permissions", behavior)):
            rule = _rule(value, behavior, origin, problems)
            if rule is None:
                continue
            if _keeps_its_word(rule, paths, problems):
                yield rule
            else:
                left_out.append(rule)


def _rule(value: Any, behavior: Behavior, origin: Origin, problems: list[SettingsProblem]) -> Rule | None:
    text, examples = (value, Examples()) if isinstance(value, str) else (value["rule"], _examples(value))
    try:
        rule = parse(text, behavior, origin, examples)
    except RuleError as problem:
        problems.append(SettingsProblem(f"{behavior} rule left out: {problem}", origin.file, origin.line))
        return None
    if rule.warning:
        problems.append(SettingsProblem(f"{behavior} rule `{rule}`: {rule.warning}", origin.file, origin.line))
    return rule


def _examples(value: Mapping[str, Any]) -> Examples:
    return Examples(tuple(value.get("match", ())), tuple(value.get("not_match", ())))


def _keeps_its_word(rule: Rule, paths: PathResolver, problems: list[SettingsProblem]) -> bool:
    """A rule that fails its own examples may not allow anything; one that forbids stays in force."""
    from wieldy.permissions.explain import failed_examples

    broken = failed_examples(rule, paths)
    for text in broken:
        kept = "" if rule.behavior == "allow" else "; the rule stays in force"
        problems.append(
            SettingsProblem(f"{rule.behavior} rule `{rule}` {text}{kept}", rule.origin.file, rule.origin.line)
        )
    return not broken or rule.behavior != "allow"


class Settings(Struct, frozen=True):
    """What is in force in a project: values, rules, where each is written, and what is wrong.

    `pending` is what the project asks for and the user has not yet consented to; `report` says how foreign settings were read;
    `left_out` are rules that fail the examples they carry and so may allow nothing; `named_file` is the one of the command line.
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

    def origin(self, dotted: str) -> Origin | None:
        """Where a value is written; None where nobody set it."""
        return self.origins.get(dotted)

    def get(self, dotted: str, default: Any = None) -> Any:
        """A value by its dotted name."""
        value: Any = self.values
        for name in dotted.split("."):
            if not isinstance(value, Mapping) or name not in value:
                return default
            value = value[name]
        return value

    def mode(self, asked_for: str | None = None) -> str:
        """The mode to start in: the one asked for, else the configured one; bypass only where nobody has taken it away."""
        mode = asked_for or self.get("permissions.defaultMode", "default")
        barred = self.get("permissions.disableBypassPermissionsMode") == "disable"
        return "default" if mode == "bypassPermissions" and barred else str(mode)

    @property
    def outside(self) -> Literal["ask", "deny"]:
        """What happens to files outside the allowed folders."""
        return "deny" if self.get("permissions.outside") == "deny" else "ask"

    def extra_roots(self, workspace: Workspace, before: Settings) -> tuple[str, ...]:
        """The folders of a workspace beside its root, once these settings have taken the place of those before."""
        name = "permissions.additionalDirectories"
        gone, new = (list(map(os.path.realpath, one.get(name, ()))) for one in (before, self))
        return tuple(dict.fromkeys([*(folder for folder in workspace.extra_roots if folder not in gone), *new]))

    def policy(self, workspace: Workspace, mode: str | None = None) -> Policy:
        """The judge that these settings make for a workspace."""
        from wieldy.permissions.decide import Policy

        return Policy.for_workspace(
            workspace,
            self.rules,
            mode=self.mode(mode),
            tools=self.values.get("tools"),
            outside=self.outside,
            config_folders=[
                place for place in (self.user_folder, self.named_file, _usual_folder(workspace.env)) if place
            ],
        )


def _usual_folder(env: Mapping[str, str]) -> str:
    """Where the user's settings are when no variable moves them: what is written there binds the next session."""
    return str(config_home({"HOME": env["HOME"]})) if env.get("HOME") else ""


def load_settings(
    root: str | os.PathLike[str],
    *,
    explicit: Mapping[str, Any] | None = None,
    files: bool = True,
    env: Mapping[str, str] = os.environ,
    layer: Layer = "code",
    managed: Path | None = None,
    trust: Trust | None = None,
    named: str | os.PathLike[str] | None = None,
) -> Settings:
    """The settings of a project.

    `explicit` ones, from code or the command line, rank below managed ones and above all files; then comes the file that the
    command line `named`. Without `files` only these two count.
    """
    here = os.path.realpath(root)
    own = [source for place in own_places(here, env, managed) if (source := load(place))] if files else []
    spoken = [given(explicit, here, layer)] if explicit is not None else []
    spoken += [required(Path(named).absolute())] if named is not None else []
    sources = _ranked(own, spoken)
    if files and (servers := project_servers(here)) is not None:
        sources = _in_order([*sources, servers])
    report: list[SettingsProblem] = []
    if files and _wants_foreign(_trusted(sources, here, trust, env)[0]):
        sources = _with_foreign(sources, here, env, report)
    sources, pending = _trusted(sources, here, trust, env)
    return _settled(here, sources, pending, report, env)


def _ranked(files: Sequence[SettingsSource], spoken: Sequence[SettingsSource]) -> list[SettingsSource]:
    managed = [source for source in files if source.layer == "managed"]
    return [*managed, *spoken, *(source for source in files if source.layer != "managed")]


def _wants_foreign(sources: Sequence[SettingsSource]) -> bool:
    for source in sources:
        section = source.values.get("compat")
        if isinstance(section, Mapping) and "claude" in section:
            return section["claude"] is True
    return False


def _with_foreign(
    sources: list[SettingsSource], root: str, env: Mapping[str, str], report: list[SettingsProblem]
) -> list[SettingsSource]:
    """Each foreign source goes right behind our own of the same layer."""
    from wieldy.settings import claude_compat as compat

    found: list[SettingsSource] = []
    for place in foreign_places(root, env):
        if (source := load(place)) is not None:
            source, changes = compat.translated(source)
            report += changes
            found.append(source)
    return _in_order([*sources, *found])


def _in_order(sources: Sequence[SettingsSource]) -> list[SettingsSource]:
    order: list[Layer] = ["managed", "code", "command line", "local", "project", "user"]
    return sorted(sources, key=lambda source: order.index(source.layer))


def _trusted(
    sources: Sequence[SettingsSource], root: str, trust: Trust | None, env: Mapping[str, str]
) -> tuple[list[SettingsSource], tuple[ConsentItem, ...]]:
    if not any(source.from_project for source in sources):
        return list(sources), ()
    from wieldy.permissions.trust import Trust
    from wieldy.settings import consent

    trust = trust or Trust(env=env)
    items = [one for source in sources if source.from_project for one in consent.wanted(source)]
    pending = tuple(one for one in trust.pending(root, items) if not _agreed(one, sources))
    if not pending:
        return list(sources), ()
    return [consent.without(source, pending) if source.from_project else source for source in sources], pending


def _agreed(wanted: ConsentItem, sources: Sequence[SettingsSource]) -> bool:
    """Whether the user's own settings agree beforehand to a server that a project brings."""
    section, _, name = wanted.name.partition(".")
    if section != "mcpServers":
        return False
    own = [source.values for source in sources if not source.from_project]
    named = [name for values in own for name in values.get("enabledMcpjsonServers", ())]
    return name in named or any(values.get("enableAllProjectMcpServers") is True for values in own)


def _settled(
    root: str,
    sources: Sequence[SettingsSource],
    pending: tuple[ConsentItem, ...],
    report: list[SettingsProblem],
    env: Mapping[str, str],
) -> Settings:
    problems = [problem for source in sources for problem in source.problems]
    errors = tuple(source.error for source in sources if source.error is not None)
    paths = PathResolver((root,), home=env.get("HOME"))
    left_out: list[Rule] = []
    rules = [rule for source in sources for rule in rules_of(source, paths, problems, left_out)]
    values, origins = merged(sources)
    _make_absolute(values, root, paths.home)
    if any(
        source.layer == "managed" and source.values.get("allowManagedPermissionRulesOnly") is True for source in sources
    ):
        rules = _managed_only(rules, problems)
    if pending:
        problems.append(SettingsProblem(_waiting(pending)))
    broken = f"the settings file {errors[0]}" if errors else None
    return Settings(
        root,
        values,
        RuleSet(tuple(rules), broken),
        origins,
        tuple(problems),
        errors,
        pending,
        tuple(report),
        str(config_home(env)),
        tuple(left_out),
        next((source.file for source in sources if source.layer == "command line" and source.file), ""),
    )


def _make_absolute(values: dict[str, Any], root: str, home: str) -> None:
    section = values.get("permissions")
    folders = section.get("additionalDirectories") if isinstance(section, dict) else None
    if isinstance(section, dict) and isinstance(folders, list):
        expanded = (home + folder[1:] if folder == "~" or folder.startswith("~/") else folder for folder in folders)
        section["additionalDirectories"] = [os.path.normpath(os.path.join(root, folder)) for folder in expanded]


def _managed_only(rules: Sequence[Rule], problems: list[SettingsProblem]) -> list[Rule]:
    left_out = [rule for rule in rules if rule.behavior == "allow" and rule.origin.layer != "managed"]
    problems += [
        SettingsProblem(f"allow rule `{rule}` left out: only managed ones count", rule.origin.file) for rule in left_out
    ]
    return [rule for rule in rules if rule not in left_out]


def _waiting(pending: Sequence[ConsentItem]) -> str:
    names = ", ".join(dict.fromkeys(one.name for one in pending))
    return f"{len(pending)} setting(s) of this project wait for your consent and are not in force: {names}"


Stamp: TypeAlias = tuple[int, int, int] | None


class SettingsWatcher:
    """The settings files of a folder. A look costs a few microseconds, so every request may take one.

    `named` is the file of the command line; `others` says whether any other counts, `foreign` whether those of the other
    program do.
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        env: Mapping[str, str] = os.environ,
        *,
        named: str | os.PathLike[str] | None = None,
        others: bool = True,
    ) -> None:
        here = os.path.realpath(root)
        self._own: tuple[str, ...] = () if named is None else (os.path.abspath(named),)
        self._foreign: tuple[str, ...] = ()
        if others:
            self._own += (
                *(str(place.file) for place in own_places(here, env)),
                os.path.join(here, MCP_FILE),
                str(config_home(env) / FILE_NAME),
            )
            self._foreign = tuple(str(place.file) for place in foreign_places(here, env))
        self.foreign = True
        self._seen = self._look()

    def changed(self) -> bool:
        """Whether any of them has come, gone or changed since the last look."""
        now = self._look()
        if all(self._seen[file] == stamp for file, stamp in now.items()):
            return False
        self._seen |= now
        return True

    def _look(self) -> dict[str, Stamp]:
        return {file: _stamp(file) for file in (*self._own, *(self._foreign if self.foreign else ()))}


def _stamp(path: str) -> Stamp:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size
