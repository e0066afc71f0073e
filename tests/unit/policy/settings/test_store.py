from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from wieldy.core.setting_keys import find_key
from wieldy.core.workspace import Workspace
from wieldy.policy.permissions.rules import RuleError, select_savable_rules
from wieldy.policy.settings.consent import Trust
from wieldy.policy.settings.json_schema import FILE, as_text, docs_table, settings_schema
from wieldy.policy.settings.store import SettingsNotSaved, add_rules, local_file, remember, set_value, user_file


def test_a_remembered_rule_is_in_force_the_next_time_without_another_consent(project, rule_texts) -> None:
    trust = Trust(env={"WIELDY_HOME": project.env["WIELDY_HOME"]})
    kept = select_savable_rules(["Bash(npm run test:*)", "Edit(/src/a.py)"], str(project.root))
    file = remember(project.root, kept.rules, trust=trust)
    assert file == local_file(project.root)
    settings = project.load(trusted=False)
    assert rule_texts(settings)["allow"] == ["Bash(npm run test:*)", "Edit(/src/a.py)"]
    assert settings.pending == () and settings.warnings == ()


def test_rules_somebody_else_put_beside_it_still_wait(project, rule_texts) -> None:
    trust = Trust(env={"WIELDY_HOME": project.env["WIELDY_HOME"]})
    project.write("local", {"permissions": {"allow": ["Bash"]}})
    remember(project.root, select_savable_rules(["Bash(ls)"], str(project.root)).rules, trust=trust)
    assert rule_texts(project.load(trusted=False))["allow"] == ["Bash(ls)"]


def test_a_link_that_a_project_laid_out_is_not_followed_when_saving(project, tmp_path) -> None:
    victim = tmp_path / "victim.json"
    victim.write_text("{}")
    link = local_file(project.root)
    link.parent.mkdir()
    link.symlink_to(victim)
    with pytest.raises(SettingsNotSaved, match="leads out"):
        remember(
            project.root,
            select_savable_rules(["Bash(ls)"], str(project.root)).rules,
            trust=Trust(tmp_path / "trust.json"),
        )
    assert victim.read_text() == "{}"
    assert not (tmp_path / "trust.json").exists()


def test_a_rule_that_could_not_be_read_back_is_not_written(project) -> None:
    with pytest.raises(RuleError):
        add_rules(local_file(project.root), "allow", ["Bash(ls)", "Bash("])
    assert not local_file(project.root).exists()


@pytest.mark.parametrize("content", ['{"permissions": ', "[]", '{"permissions": {"allow": 3}}'])
def test_a_file_that_cannot_take_it_is_left_as_it_is(project, content: str) -> None:
    file = project.write("local", content)
    with pytest.raises(SettingsNotSaved, match="nothing was saved"):
        add_rules(file, "allow", ["Bash(ls)"])
    assert file.read_text() == content


def test_one_value_is_set_in_the_users_file(project) -> None:
    file = user_file(project.env)
    set_value(file, "compat.claude", True)
    set_value(file, "model", "a/b")
    assert json.loads(file.read_text()) == {"compat": {"claude": True}, "model": "a/b"}


def test_the_shipped_schema_is_the_one_the_table_makes() -> None:
    assert FILE.read_text("utf-8") == as_text(), "run `python -m wieldy.policy.settings.json_schema`"


def test_the_schema_agrees_with_the_checks() -> None:
    import jsonschema_rs

    from wieldy.policy.settings.check import validate

    validator = jsonschema_rs.validator_for(settings_schema())
    good = {
        "permissions": {"allow": ["Bash(ls)", {"rule": "Read", "match": ["Read"]}], "defaultMode": "plan"},
        "tools": {"Deploy": {"level": "safe", "allowlist": {"to": ["a*"], "by": "b"}}},
        "features": {"memory": True},
        "env": {"A": "b"},
    }
    assert validator.is_valid(good) and not validate(good)[1]
    unfit: list[dict[str, Any]] = [
        {"permissions": {"allow": "Bash"}},
        {"permissions": {"allow": [3]}},
        {"permissions": {"allow": [{"rule": "x", "more": 1}]}},
        {"permissions": {"defaultMode": "fast"}},
        {"tools": {"Deploy": {"level": "low"}}},
        {"features": {"memory": "yes"}},
        {"env": {"A": 1}},
        {"cleanupPeriodDays": 1.5},
        {"sandbox": []},
    ]
    for bad in unfit:
        assert not validator.is_valid(bad), bad
        assert validate(bad)[1], bad


def test_every_setting_that_is_asked_for_is_in_the_table() -> None:
    source = Path(__file__).parents[4] / "src" / "wieldy"
    asked = {
        name
        for file in source.rglob("*.py")
        for name in re.findall(r"\bsetting\(\s*\"([a-zA-Z_.]+)\"", file.read_text("utf-8"))
    }
    assert asked, "the search finds nothing any more"
    assert {name for name in asked if find_key(name) is None} == set(), "add it to core/setting_keys.py"


def test_the_documentation_shows_the_table_of_keys() -> None:
    page = (Path(__file__).parents[4] / "docs" / "settings.md").read_text("utf-8")
    assert docs_table() in page, "paste what `python -m wieldy.policy.settings.json_schema` prints"


def test_names_of_older_versions_are_accepted(project) -> None:
    settings = project.load(explicit={"edit": {"max_bytes": 5}, "bash": {"timeout_ms": 7, "tiemout_ms": 1}})
    assert (settings.get("edit.maxBytes"), settings.get("bash.timeoutMs")) == (5, 7)
    assert [str(problem) for problem in settings.warnings] == [
        "settings: there is no setting `bash.tiemout_ms`; did you mean `bash.timeoutMs`?"
    ]


def test_a_setting_that_is_not_set_or_of_another_type_has_its_default(tmp_path: Path) -> None:
    given = {"search": {"seconds": 5}, "bash": {"snapshot": "yes"}, "edit": {"tolerance": ["spaces"]}}
    workspace = Workspace(tmp_path, session_dir=tmp_path / "s", settings=given)
    assert workspace.setting("search.seconds") == 5
    assert workspace.setting("bash.snapshot") is True
    assert workspace.setting("edit.tolerance") == ["spaces"]
    assert workspace.setting("bash.maxBackground") == 32


@pytest.mark.parametrize("forged", ["exclude", "info", ".git", "gitdir"])
def test_gits_list_of_excludes_that_lies_elsewhere_gets_no_line(project, forged) -> None:
    git, outside = project.root / ".git", project.root.parent / "outside"
    (outside / "info").mkdir(parents=True)
    target = outside / "info" / "exclude"
    target.write_text("theirs\n")
    match forged:
        case "exclude":
            (git / "info").mkdir(parents=True)
            (git / "info" / "exclude").symlink_to(target)
        case "info":
            git.mkdir()
            (git / "info").symlink_to(outside / "info")
        case ".git":
            git.symlink_to(outside)
        case "gitdir":
            git.write_text(f"gitdir: {outside}\n")
            (outside / "gitdir").write_text("/elsewhere/.git\n")
    set_value(local_file(project.root), "model", "x")
    assert target.read_text() == "theirs\n"


def test_gits_list_of_excludes_of_a_linked_work_tree_gets_the_line(project) -> None:
    repository = project.root.parent / "main" / ".git"
    own = repository / "worktrees" / "project"
    own.mkdir(parents=True)
    (own / "commondir").write_text("../..\n")
    (own / "gitdir").write_text(f"{project.root}/.git\n")
    (project.root / ".git").write_text(f"gitdir: {own}\n")
    set_value(local_file(project.root), "model", "x")
    assert (repository / "info" / "exclude").read_text() == "/.wieldy/settings.local.json\n"
