from __future__ import annotations

import os
from pathlib import Path

import pytest

from wieldy.core.decision import Opinion
from wieldy.core.effects import Reads, Writes
from wieldy.policy.permissions.paths import PathResolver

EDITORS = ["Write", "Edit", "MultiEdit", "NotebookEdit"]
READERS = ["Read", "Grep", "Glob", "LS"]


@pytest.mark.parametrize("tool", READERS)
def test_reading_in_the_workspace_needs_no_question(judge, called, root: str, tool: str) -> None:
    assert judge().decide(called(tool, f"{root}/a")).behavior == "allow"


@pytest.mark.parametrize("tool", EDITORS)
def test_writing_in_the_workspace_asks_and_offers_a_rule_for_that_file(judge, called, root: str, tool: str) -> None:
    decision = judge().decide(called(tool, f"{root}/src/a*.py"))
    assert decision.behavior == "ask"
    assert decision.suggestions == (r"Edit(/src/a\*.py)",)
    assert judge(allow=decision.suggestions).decide(called(tool, f"{root}/src/a*.py")).behavior == "allow"
    assert judge(allow=decision.suggestions).decide(called(tool, f"{root}/src/ab.py")).behavior == "ask"


@pytest.mark.parametrize("tool", ["Read", "Write"])
def test_outside_the_roots_asks_or_is_refused(judge, called, tmp_path: Path, tool: str) -> None:
    outside = str(tmp_path.resolve() / "elsewhere")
    assert judge().decide(called(tool, outside)).behavior == "ask"
    assert judge(outside="deny").decide(called(tool, outside)).behavior == "deny"
    assert judge(mode="acceptEdits").decide(called(tool, outside)).behavior == "ask"
    assert judge(mode="bypassPermissions").decide(called(tool, outside)).behavior == "allow"
    assert judge(mode="bypassPermissions", outside="deny").decide(called(tool, outside)).behavior == "deny"
    assert judge(extra=[str(tmp_path.resolve())], mode="acceptEdits").decide(called(tool, outside)).behavior == "allow"


def test_a_bare_allow_holds_within_the_roots_and_a_path_rule_where_it_says(
    judge, called, tmp_path: Path, root: str
) -> None:
    outside = str(tmp_path.resolve() / "elsewhere")
    assert judge(allow=["Write"]).decide(called("Write", f"{root}/a")).behavior == "allow"
    assert judge(allow=["Write"]).decide(called("Write", outside)).behavior == "ask"
    assert judge(allow=["Edit"]).decide(called("Write", f"{root}/a")).behavior == "allow"
    decision = judge().decide(called("Write", outside))
    assert decision.suggestions == (f"Edit(/{outside})",)
    assert judge(allow=decision.suggestions).decide(called("Write", outside)).behavior == "allow"


@pytest.mark.parametrize("tool", EDITORS)
def test_an_edit_rule_covers_every_editing_tool(judge, called, root: str, tool: str) -> None:
    assert judge(allow=["Edit(src/**)"]).decide(called(tool, f"{root}/src/a")).behavior == "allow"
    assert judge(allow=["Edit(src/**)"]).decide(called(tool, f"{root}/a")).behavior == "ask"
    assert judge(deny=["Edit(src/**)"]).decide(called(tool, f"{root}/src/a")).behavior == "deny"
    assert judge(ask=["Edit(src/**)"], mode="acceptEdits").decide(called(tool, f"{root}/src/a")).behavior == "ask"


@pytest.mark.parametrize("tool", READERS)
def test_a_read_rule_covers_every_reading_tool(judge, called, root: str, tool: str) -> None:
    assert judge(deny=["Read(.env)"]).decide(called(tool, f"{root}/.env")).behavior == "deny"
    assert judge(deny=["Read"]).decide(called(tool, f"{root}/a")).behavior == "deny"


def test_any_tool_that_declares_what_it_touches_is_held_to_path_rules(judge, plan, root: str) -> None:
    policy = judge(deny=["Read(secret)"], allow=["peek", "poke"])
    assert policy.decide(plan("peek", (Reads(f"{root}/secret"),))).behavior == "deny"
    assert policy.decide(plan("peek", (Reads(f"{root}/open"), Reads(f"{root}/x/secret")))).behavior == "deny"
    assert policy.decide(plan("poke", (Writes(f"{root}/secret"),))).behavior == "deny"
    assert policy.decide(plan("poke", (Writes(f"{root}/open"),))).behavior == "allow"


def test_what_may_not_be_read_may_not_be_written(judge, called, root: str) -> None:
    policy = judge(deny=["Read(secrets/**)"], allow=["Edit"], mode="bypassPermissions")
    assert policy.decide(called("Edit", f"{root}/secrets/key")).behavior == "deny"
    assert policy.decide(called("Write", f"{root}/open")).behavior == "allow"


def test_what_may_be_edited_may_be_read(judge, called, tmp_path: Path) -> None:
    outside = f"{tmp_path.resolve()}/other/a"
    assert judge(allow=[f"Edit(/{outside})"]).decide(called("Read", outside)).behavior == "allow"
    assert judge(allow=[f"Read(/{outside})"]).decide(called("Write", outside)).behavior == "ask"


def test_an_allow_rule_must_match_a_link_and_its_target_and_a_deny_rule_either(judge, called, root: str) -> None:
    for folder in ("open", "closed"):
        os.mkdir(f"{root}/{folder}")
    os.symlink(f"{root}/closed/x", f"{root}/open/x")
    link = called("Write", f"{root}/open/x")
    assert judge(allow=["Edit(open/**)"]).decide(link).behavior == "ask"
    assert judge(allow=["Edit(closed/**)"]).decide(link).behavior == "ask"
    assert judge(allow=["Edit(closed/**)", "Edit(open/**)"]).decide(link).behavior == "allow"
    assert judge(deny=["Edit(open/**)"]).decide(link).behavior == "deny"
    assert judge(deny=["Edit(closed/**)"]).decide(link).behavior == "deny"


def test_a_deny_rule_for_a_link_holds_for_what_it_leads_to(judge, called, root: str) -> None:
    os.mkdir(f"{root}/real")
    os.symlink(f"{root}/real", f"{root}/vault")
    assert judge(deny=["Read(./vault/**)"]).decide(called("Read", f"{root}/vault/a")).behavior == "deny"
    assert judge(deny=["Read(/vault/**)"]).decide(called("Read", f"{root}/real/a")).behavior == "deny"


def test_a_home_behind_a_link_is_the_same_home(judge, called, root: str, tmp_path: Path) -> None:
    (tmp_path / "disk" / "me").mkdir(parents=True)
    os.symlink(tmp_path / "disk" / "me", tmp_path / "me")
    paths = PathResolver((root,), home=str(tmp_path.resolve() / "me"))
    for folder in ("me", "disk/me"):
        file = f"{tmp_path.resolve()}/{folder}/notes/a"
        assert judge(allow=["Edit(~/notes/**)"], paths=paths).decide(called("Write", file)).behavior == "allow", folder
        assert judge(deny=["Read(~/notes/**)"], paths=paths).decide(called("Read", file)).behavior == "deny", folder


def test_removing_a_folder_removes_what_a_rule_protects_in_it(judge, plan, root: str) -> None:
    policy = judge(deny=["Edit(/src/precious.txt)"], mode="bypassPermissions")
    assert policy.decide(plan("Remove", (Writes(f"{root}/src"),))).behavior == "deny"
    assert policy.decide(plan("Remove", (Writes(f"{root}/srcs"),))).behavior == "allow"


@pytest.mark.parametrize("mode", ["default", "acceptEdits", "bypassPermissions"])
@pytest.mark.parametrize(
    "name", [".git/config", ".env", ".mcp.json", ".wieldy/settings.json", ".claude/settings.json", ".bashrc"]
)
def test_protected_paths_ask_in_every_mode_and_whatever_the_rules_allow(
    judge, called, root: str, mode: str, name: str
) -> None:
    policy = judge(allow=["Edit", "Write", "Edit(**)"], mode=mode)
    decision = policy.decide(called("Write", f"{root}/{name}"))
    assert decision.behavior == "ask"
    assert decision.reasons[0].kind == "guard"
    assert decision.suggestions == ()
    assert policy.decide(called("Read", f"{root}/{name}")).behavior == "allow"


def test_a_hook_that_says_yes_opens_the_outside_but_lifts_no_guard(judge, called, root: str, tmp_path: Path) -> None:
    yes = [Opinion("hook", "allow", "go on")]
    assert judge().decide(called("Write", f"{tmp_path.resolve()}/out"), yes).behavior == "allow"
    assert judge(outside="deny").decide(called("Write", f"{tmp_path.resolve()}/out"), yes).behavior == "deny"
    assert judge().decide(called("Write", f"{root}/.git/config"), yes).behavior == "ask"
    assert judge().decide(called("Bash", "rm -rf ~"), yes).behavior == "ask"
    assert judge(mode="plan").decide(called("Write", f"{root}/a"), yes).behavior == "deny"


def test_a_rule_that_names_the_very_file_lifts_some_protection_but_not_that_of_the_agents_own_settings(
    judge, called, root: str
) -> None:
    assert (
        judge(allow=["Edit(**)", "Edit(.env.example)"]).decide(called("Write", f"{root}/a/.env.example")).behavior
        == "allow"
    )
    policy = judge(allow=["Edit(/.env.example)", "Edit(/.wieldy/settings.json)", "Edit(/.git/config)"])
    assert policy.decide(called("Write", f"{root}/.env.example")).behavior == "allow"
    assert policy.decide(called("Write", f"{root}/.wieldy/settings.json")).behavior == "ask"
    assert policy.decide(called("Write", f"{root}/.git/config")).behavior == "ask"


def test_installed_packages_ask_until_a_rule_allows_them(judge, called, root: str) -> None:
    package = called("Edit", f"{root}/node_modules/a/index.js")
    assert judge(mode="acceptEdits").decide(package).behavior == "ask"
    assert judge(mode="acceptEdits", allow=["Edit(node_modules/**)"]).decide(package).behavior == "allow"


def test_memory_asks_until_a_rule_allows_it_and_opens_nothing_else(judge, called, root: str) -> None:
    note = called("Write", f"{root}/.wieldy/memory/a.md")
    assert judge(mode="bypassPermissions").decide(note).behavior == "ask"
    policy = judge(mode="bypassPermissions", allow=["Edit(.wieldy/**)", "Edit(sub/**)"])
    assert policy.decide(note).behavior == "allow"
    for path in ("settings.json", "memories/a.md", "memory/.git/hooks/x", "skills/memory/SKILL.md"):
        assert policy.decide(called("Write", f"{root}/.wieldy/{path}")).behavior == "ask", path
    assert policy.decide(called("Write", f"{root}/sub/.wieldy/memory/a.md")).behavior == "ask"


def test_case_and_composition_do_not_get_round_a_rule_on_a_folding_volume(judge, called, root: str, home: str) -> None:
    folding = PathResolver((root,), home=home, folds_case=lambda path: True)
    policy = judge(deny=["Read(.env)", "Read(~/.ssh/**)", "Read(caf\u00e9)"], paths=folding)
    for path in (f"{root}/.ENV", f"{home}/.SSH/id", f"{root}/Cafe\u0301"):
        assert policy.decide(called("Read", path)).behavior == "deny", path


def test_searches_leave_out_what_may_not_be_read(judge, root: str) -> None:
    policy = judge(deny=["Read(.env)", "Read(secrets/**)"])
    assert policy.hides(f"{root}/.env")
    assert policy.hides(f"{root}/a/secrets/key")
    assert not policy.hides(f"{root}/a.py")
    assert not judge().hides_anything


def test_a_folder_that_is_swapped_for_a_link_hides_what_the_link_leads_to(judge, root: str) -> None:
    for folder in ("open", "secrets"):
        os.mkdir(f"{root}/{folder}")
        Path(root, folder, "a").write_text("x")
        Path(root, folder, "b").write_text("x")
    policy = judge(deny=["Read(secrets/**)"])
    assert not policy.hides(f"{root}/open/a") and not policy.hides(f"{root}/open/b")
    os.rename(f"{root}/open", f"{root}/aside")
    os.symlink(f"{root}/secrets", f"{root}/open")
    assert policy.hides(f"{root}/open/a") and policy.hides(f"{root}/open/b")
    os.symlink(f"{root}/secrets/a", f"{root}/aside/c")
    assert not policy.hides(f"{root}/aside/a")
    assert policy.hides(f"{root}/aside/c")
    assert policy.hides(f"{root}/secrets/new")


def test_plan_mode_reads_and_never_writes(judge, called, root: str) -> None:
    policy = judge(mode="plan", allow=["Edit", "Write"])
    assert policy.decide(called("Read", f"{root}/a")).behavior == "allow"
    decision = policy.decide(called("Write", f"{root}/a"))
    assert decision.behavior == "deny"
    assert decision.reasons[0].kind == "mode"


@pytest.mark.parametrize("mode", ["acceptEdits", "bypassPermissions"])
@pytest.mark.parametrize("command", [False, True], ids=["tool", "command"])
def test_what_decides_what_git_runs_in_a_bare_repository_asks(judge, called, root: str, mode, command) -> None:
    for name in ("bare/objects", "bare/refs", "bare/hooks", "begun/objects", "begun/refs", "last/refs", "linked"):
        Path(root, name).mkdir(parents=True)
    for name in ("bare/HEAD", "last/HEAD", "linked/commondir"):
        Path(root, name).write_text("ref: refs/heads/main\n")
    policy = judge(mode=mode)

    def behavior(name: str) -> str:
        call = called("Bash", f"echo x > {root}/{name}") if command else called("Write", f"{root}/{name}")
        return str(policy.decide(call).behavior)

    asked = ["bare/config", "bare/config.worktree", "bare/hooks/post-update", "bare/commondir", "linked/HEAD"]
    asked += ["begun/HEAD", "last/objects/ab/cd"]
    assert {name: behavior(name) for name in asked} == dict.fromkeys(asked, "ask")
    free = ["bare/description", "begun/config", "src/config", "hooks/pre-commit", "config/app.py", "src/HEAD", "refs/x"]
    assert {name: behavior(name) for name in free} == dict.fromkeys(free, "allow")
