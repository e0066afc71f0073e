"""Loads settings: which sources, what they may set, and the rules and values that come of them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from wieldy.core.places import config_home
from wieldy.core.record import field, record
from wieldy.permissions.origin import Layer, Origin
from wieldy.permissions.paths import Paths
from wieldy.permissions.rule import Rule
from wieldy.permissions.ruleset import RuleSet
from wieldy.settings.merge import merged
from wieldy.settings.rules import rules_of
from wieldy.settings.source import (
    Problem,
    Source,
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
    from wieldy.permissions.trust import Item, Trust


@record
class Settings:
    """What is in force in a project: values, rules, where each is written, and what is wrong.

    `pending` is what the project asks for and the user has not yet consented to; `report` says how foreign settings were read;
    `left_out` are rules that fail the examples they carry and so may allow nothing; `named_file` is the one of the command line.
    """

    root: str
    values: Mapping[str, Any] = field(default_factory=dict)
    rules: RuleSet = field(default_factory=RuleSet)
    origins: Mapping[str, Origin] = field(default_factory=dict)
    warnings: tuple[Problem, ...] = ()
    errors: tuple[Problem, ...] = ()
    pending: tuple[Item, ...] = ()
    report: tuple[Problem, ...] = ()
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
            configured_by=[
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
    report: list[Problem] = []
    if files and _wants_foreign(_trusted(sources, here, trust, env)[0]):
        sources = _with_foreign(sources, here, env, report)
    sources, pending = _trusted(sources, here, trust, env)
    return _settled(here, sources, pending, report, env)


def _ranked(files: Sequence[Source], spoken: Sequence[Source]) -> list[Source]:
    managed = [source for source in files if source.layer == "managed"]
    return [*managed, *spoken, *(source for source in files if source.layer != "managed")]


def _wants_foreign(sources: Sequence[Source]) -> bool:
    for source in sources:
        section = source.values.get("compat")
        if isinstance(section, Mapping) and "claude" in section:
            return section["claude"] is True
    return False


def _with_foreign(sources: list[Source], root: str, env: Mapping[str, str], report: list[Problem]) -> list[Source]:
    """Each foreign source goes right behind our own of the same layer."""
    from wieldy.settings import compat

    found: list[Source] = []
    for place in foreign_places(root, env):
        if (source := load(place)) is not None:
            source, changes = compat.translated(source)
            report += changes
            found.append(source)
    return _in_order([*sources, *found])


def _in_order(sources: Sequence[Source]) -> list[Source]:
    order: list[Layer] = ["managed", "code", "command line", "local", "project", "user"]
    return sorted(sources, key=lambda source: order.index(source.layer))


def _trusted(
    sources: Sequence[Source], root: str, trust: Trust | None, env: Mapping[str, str]
) -> tuple[list[Source], tuple[Item, ...]]:
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


def _agreed(wanted: Item, sources: Sequence[Source]) -> bool:
    """Whether the user's own settings agree beforehand to a server that a project brings."""
    section, _, name = wanted.name.partition(".")
    if section != "mcpServers":
        return False
    own = [source.values for source in sources if not source.from_project]
    named = [name for values in own for name in values.get("enabledMcpjsonServers", ())]
    return name in named or any(values.get("enableAllProjectMcpServers") is True for values in own)


def _settled(
    root: str, sources: Sequence[Source], pending: tuple[Item, ...], report: list[Problem], env: Mapping[str, str]
) -> Settings:
    problems = [problem for source in sources for problem in source.problems]
    errors = tuple(source.error for source in sources if source.error is not None)
    paths = Paths((root,), home=env.get("HOME"))
    left_out: list[Rule] = []
    rules = [rule for source in sources for rule in rules_of(source, paths, problems, left_out)]
    values, origins = merged(sources)
    _make_absolute(values, root, paths.home)
    if any(
        source.layer == "managed" and source.values.get("allowManagedPermissionRulesOnly") is True for source in sources
    ):
        rules = _managed_only(rules, problems)
    if pending:
        problems.append(Problem(_waiting(pending)))
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


def _managed_only(rules: Sequence[Rule], problems: list[Problem]) -> list[Rule]:
    left_out = [rule for rule in rules if rule.behavior == "allow" and rule.origin.layer != "managed"]
    problems += [
        Problem(f"allow rule `{rule}` left out: only managed ones count", rule.origin.file) for rule in left_out
    ]
    return [rule for rule in rules if rule not in left_out]


def _waiting(pending: Sequence[Item]) -> str:
    names = ", ".join(dict.fromkeys(one.name for one in pending))
    return f"{len(pending)} setting(s) of this project wait for your consent and are not in force: {names}"
