from __future__ import annotations

import json
import os

import pytest

from wieldy.core.errors import SettingsError
from wieldy.policy.settings.consent import Trust


def test_scalars_override_by_layer_and_lists_join(project) -> None:
    for layer, mode in (("user", "plan"), ("project", "acceptEdits"), ("local", "dontAsk")):
        project.write(
            layer, {"permissions": {"defaultMode": mode, "additionalDirectories": [layer]}, "env": {layer: "1"}}
        )
    settings = project.load()
    assert settings.values["permissions"]["defaultMode"] == "dontAsk"
    assert settings.values["permissions"]["additionalDirectories"] == [
        f"{project.root}/{layer}" for layer in ("local", "project", "user")
    ]
    assert settings.values["env"] == {"local": "1", "project": "1", "user": "1"}
    assert settings.origin("permissions.defaultMode").file == str(project.file("local"))
    assert settings.origin("env.user").file == str(project.file("user"))
    assert settings.origin("model") is None


def test_managed_settings_outrank_code_which_outranks_files(project) -> None:
    project.write("managed", {"model": "m/managed", "baseUrl": "u"})
    project.write("local", {"model": "m/local", "defer": "never", "cleanupPeriodDays": 3})
    settings = project.load(explicit={"model": "m/code", "defer": "always"})
    assert [settings.get(name) for name in ("model", "defer", "cleanupPeriodDays")] == ["m/managed", "always", 3]
    assert settings.origin("defer").layer == "code"


def test_settings_in_code_can_stand_in_for_the_files(project) -> None:
    project.write("user", {"model": "m/user"})
    settings = project.load(explicit={"permissions": {"allow": ["Bash(ls)"]}}, files=False)
    assert settings.values == {"permissions": {"allow": ["Bash(ls)"]}}
    assert [str(rule.origin) for rule in settings.rules.rules] == ["code"]


def test_every_rule_knows_its_file_and_line_and_the_folder_it_starts_at(project) -> None:
    project.write("project", '{\n "permissions": {\n  "allow": [\n   "Read(/a)",\n   7,\n   "Read(/b)"\n  ]\n }\n}')
    project.write("user", '{"permissions": {"deny": ["Bash(rm:*)"]}}')
    a, b, rm = project.load().rules.rules
    assert (a.origin.line, b.origin.line) == (4, 6)
    assert (a.origin.folder, rm.origin.folder) == (str(project.root), str(project.home / "wieldy"))


def test_one_bad_rule_is_left_out_alone_with_a_word_about_it(project, rule_texts) -> None:
    project.write("user", '{"permissions": {"allow": [\n"Bash(",\n"Bash(ls)",\n{"rule": 3},\n"Write(x)"]}}')
    settings = project.load()
    assert rule_texts(settings)["allow"] == ["Bash(ls)"]
    problems = [str(problem) for problem in settings.warnings]
    name = project.file("user")
    assert any(line.startswith(f"{name}:2: allow rule cannot be used") for line in problems)
    assert any(line.startswith(f"{name}:4: ") for line in problems)
    assert any(line.startswith(f"{name}:5: ") and "Edit(x)" in line for line in problems)
    assert not settings.errors and settings.rules.broken is None


def test_unknown_keys_warn_with_a_suggestion_and_wrong_types_are_left_out_alone(project) -> None:
    project.write(
        "user",
        '{"permisions": {},\n"permissions": {"alow": [],\n"outside": "never"},\n"model": 3,\n'
        '"env": {"A": 1, "B": "b"},\n"hooks": [],\n"sandbox": true,\n"defaultMode": "plan"}',
    )
    settings = project.load()
    problems = {problem.line: problem.text for problem in (*settings.errors, *settings.warnings)}
    assert "`permissions`" in problems[1]
    assert "`permissions.allow`" in problems[2]
    assert "one of ask, deny" in problems[3]
    assert "must be a string, not a number" in problems[4]
    assert "`env.A`" in problems[5]
    assert "`hooks` must be an object, not a list" in problems[6]
    assert "`sandbox` must be an object" in problems[7]
    assert "`permissions.defaultMode`" in problems[8]
    assert settings.values["env"] == {"B": "b"}
    assert not {"model", "hooks", "sandbox"} & set(settings.values)


@pytest.mark.parametrize(
    ("content", "place"),
    [('{\n "a": 1\n "b"}', ":3:2: "), ("", ":1:1: "), ("[]", ":1:1: "), ('{"permissions": {"deny": ["Ba', ":1:27: ")],
)
def test_a_file_that_cannot_be_read_is_a_clear_error_and_nothing_is_allowed_unasked(
    project, content: str, place: str
) -> None:
    project.write("project", content)
    project.write("user", {"permissions": {"allow": ["Read"]}})
    settings = project.load()
    (error,) = settings.errors
    assert str(error).startswith(f"{project.file('project')}{place}")
    assert settings.rules.broken is not None and str(project.file("project")) in settings.rules.broken


def test_a_file_that_is_not_text_or_not_a_file_is_an_error_too(project) -> None:
    file = project.write("user", "{}")
    file.write_bytes(b'{"a": "\xff"}')
    assert "UTF-8" in str(project.load().errors[0])
    file.unlink()
    file.mkdir()
    assert project.load().errors


def test_a_pipe_a_device_or_a_flood_in_place_of_a_file_is_an_error_and_never_a_hang(project) -> None:
    file = project.write("project", "{}")
    file.unlink()
    os.mkfifo(file)
    assert "not a regular file" in str(project.load().errors[0])
    file.unlink()
    os.symlink("/dev/zero", file)
    assert "leads out of the project" in str(project.load().errors[0])
    file.unlink()
    with file.open("wb") as flood:
        flood.truncate(1 << 30)
    assert "larger than" in str(project.load().errors[0])


def test_what_a_hostile_file_says_cannot_play_tricks_on_the_screen(project) -> None:
    project.write("project", {"ev\u001b[2Jil\nkey": 1, "env": {"A": "\u001b]0;x\u0007\u202e"}})
    settings = project.load(trusted=False)
    for line in [*map(str, settings.warnings), *map(str, settings.pending)]:
        assert line.isprintable(), ascii(line)


def test_examples_are_checked_when_a_rule_is_read(project, rule_texts) -> None:
    good = {"rule": "Bash(git push:*)", "match": ["git push origin"], "not_match": ["git pull"]}
    wrong = {"rule": "Bash(git pull:*)", "match": ["git push"]}
    kept = {"rule": "Bash(rm:*)", "not_match": ["rm x"]}
    path = {"rule": "Edit(src/**)", "match": ["src/a.py"], "not_match": ["/etc/passwd", "srcs/a"]}
    project.write("user", {"permissions": {"allow": [good, wrong, path], "deny": [kept]}})
    settings = project.load()
    assert rule_texts(settings) == {"deny": ["Bash(rm:*)"], "ask": [], "allow": ["Bash(git push:*)", "Edit(src/**)"]}
    problems = "\n".join(str(problem) for problem in settings.warnings)
    assert "`Bash(git pull:*)` should match `git push` and does not" in problems
    assert "should not match `rm x` and does; the rule stays in force" in problems


def test_what_a_project_asks_for_waits_for_consent_and_what_it_forbids_does_not(project, rule_texts) -> None:
    from wieldy.policy.settings.consent import Trust

    content = {
        "permissions": {
            "allow": ["Bash"],
            "deny": ["Read(.env)"],
            "ask": ["WebFetch"],
            "defaultMode": "bypassPermissions",
        },
        "hooks": {"PreToolUse": [{"hooks": [{"type": "command", "command": "./evil"}]}]},
        "env": {"LD_PRELOAD": "x"},
        "mcpServers": {"m": {"command": "evil"}},
        "sandbox": {"enabled": False},
        "edit": {"onExternalChange": "error"},
    }
    project.write("project", content)
    project.write("local", {"permissions": {"allow": ["Write"], "additionalDirectories": ["/"]}})
    settings = project.load(trusted=False)
    assert rule_texts(settings) == {"deny": ["Read(.env)"], "ask": ["WebFetch"], "allow": []}
    assert set(settings.values) == {"permissions", "edit"}
    assert set(settings.values["permissions"]) == {"deny", "ask"}
    assert settings.mode() == "default"
    assert len(settings.pending) == 8
    assert any("./evil" in str(one) for one in settings.pending)
    assert "for your consent" in str(settings.warnings[-1])

    assert project.load(trusted=False, trust=Trust(trust_all=True)).pending == ()
    trust = Trust(env={"WIELDY_HOME": project.env["WIELDY_HOME"]})
    trust.accept(str(project.root), [one for one in settings.pending if one.name == "permissions.allow"])
    partly = project.load(trusted=False)
    assert rule_texts(partly)["allow"] == ["Write", "Bash"]
    assert "hooks" not in partly.values
    trust.accept(str(project.root), partly.pending)
    assert project.load(trusted=False).pending == ()
    content["hooks"] = {"PreToolUse": [{"hooks": [{"type": "command", "command": "./worse"}]}]}
    project.write("project", content)
    assert [one.name for one in project.load(trusted=False).pending] == ["hooks.PreToolUse"]


def test_the_users_own_settings_need_no_consent(project, rule_texts) -> None:
    project.write("user", {"permissions": {"allow": ["Bash(ls)"]}, "hooks": {"Stop": []}})
    settings = project.load(trusted=False)
    assert rule_texts(settings)["allow"] == ["Bash(ls)"]
    assert settings.pending == ()


def test_an_administrator_can_take_bypass_and_other_peoples_rules_away(project, rule_texts) -> None:
    barred = {"permissions": {"disableBypassPermissionsMode": "disable", "allow": ["Read"]}}
    project.write("managed", {**barred, "allowManagedPermissionRulesOnly": True})
    project.write(
        "user", {"permissions": {"allow": ["Bash"], "deny": ["WebFetch"], "defaultMode": "bypassPermissions"}}
    )
    settings = project.load()
    assert settings.mode() == settings.mode("bypassPermissions") == "default"
    assert settings.mode("plan") == "plan"
    assert rule_texts(settings) == {"deny": ["WebFetch"], "ask": [], "allow": ["Read"]}


def test_a_key_given_twice_is_said(project) -> None:
    project.write("user", '{"model": "a",\n"model": "b"}')
    settings = project.load()
    assert settings.values["model"] == "b"
    assert "twice" in str(settings.warnings[0])


def test_added_folders_are_absolute_and_know_home(project) -> None:
    project.write("user", {"permissions": {"additionalDirectories": ["~/notes", "../sibling", "/abs"]}})
    folders = project.load().get("permissions.additionalDirectories")
    assert folders == [f"{project.home}/notes", str(project.root.parent / "sibling"), "/abs"]


def test_a_file_named_on_the_command_line_ranks_above_the_others_and_starts_its_rules_where_it_lies(
    project, tmp_path
) -> None:
    file = tmp_path / "special.json"
    file.write_text('{"model": "m/named",\n"permissions": {"deny": ["Read(/x)"]}}')
    project.write("local", {"model": "m/local"})
    settings = project.load(named=file)
    assert settings.values["model"] == "m/named"
    (rule,) = settings.rules.rules
    assert (rule.origin.layer, rule.origin.line, rule.origin.folder) == ("command line", 2, str(tmp_path))
    assert "no such file" in str(project.load(named=tmp_path / "missing.json").errors[0])


@pytest.mark.parametrize(
    ("hosts", "count"),
    [(["https://x.org/", "*", "", "a b"], 4), (["x.org", "*.x.org", "localhost:8080", "bücher.example"], 0)],
)
def test_hosts_that_match_nothing_are_said(project, hosts, count) -> None:
    project.write("user", {"sandbox": {"allowedDomains": hosts}})
    settings = project.load()
    assert len(settings.warnings) == count
    assert not settings.errors


def test_settings_of_the_project_hold_in_its_subfolders(project) -> None:
    project.write("project", {"permissions": {"deny": ["Read(secrets/**)", "Bash(rm:*)"]}})
    below = project.root / "tests" / "unit"
    below.mkdir(parents=True)
    settings = project.load(below)
    assert settings.root == str(project.root)
    assert {str(rule) for rule in settings.rules.rules} == {"Read(secrets/**)", "Bash(rm:*)"}


def test_the_project_is_the_nearest_marked_folder_but_not_the_home_or_an_open_one(tmp_path) -> None:
    from wieldy.policy.settings.sources import find_project_root

    home, repo, inner = tmp_path / "home", tmp_path / "home" / "repo", tmp_path / "home" / "repo" / "inner"
    deep = inner / "a" / "b"
    deep.mkdir(parents=True)
    (home / ".claude").mkdir()
    env = {"HOME": str(home)}
    assert find_project_root(deep, env) == str(deep.resolve())
    (repo / ".git").mkdir()
    assert find_project_root(deep, env) == str(repo.resolve())
    (inner / ".claude").mkdir()
    assert find_project_root(deep, env) == str(inner.resolve())
    assert find_project_root(home, env) == str(home.resolve())
    inner.chmod(0o777)
    assert find_project_root(deep, env) == str(deep.resolve())


@pytest.mark.parametrize(
    "settings",
    [
        {"permissions": {"deny": ["Bash("]}},
        {"permissions": {"ask": ["Bash()"]}},
        {"permissions": {"deny": [7]}},
        {"permissions": {"deny": "Bash(rm:*)"}},
        {"permissions": {"deni": ["Bash(rm:*)"]}},
        {"permisions": {"deny": ["Bash(rm:*)"]}},
        {"permissions": ["Bash(rm:*)"]},
        {"permissions": {"disableBypassPermissionsMode": True}},
        {"permissions": {"outside": "denied"}},
        {"tools": {"Bash": {"rateLimit": "2/min"}}},
        {"tools": {"Bash": {"rateLimit": {"calls": 2}}}},
        {"tools": {"Bash": {"rateLimit": {"calls": "2", "seconds": 60}}}},
        {"tools": {"Bash": {"ratelimit": {"calls": 2, "seconds": 60}}}},
        {"tools": {"Bash": {"level": "forbiden"}}},
        {"tools": {"Bash": {"blocklist": ["rm"]}}},
        {"tool": {"Bash": {"level": "forbidden"}}},
        {"sandbox": True},
        {"sandbox": {"enabled": "yes"}},
        {"sandbox": {"denyRead": "~/.ssh"}},
        {"hooks": []},
        {"hooks": {"PreToolUse": [{"matcher": "Bash", "hooks": [{"comand": "./guard"}]}]}},
        {"hooks": {"PreToolUs": [{"hooks": [{"command": "./guard"}]}]}},
    ],
)
def test_a_restriction_that_cannot_be_read_is_an_error_and_nothing_is_allowed_without_asking(project, settings) -> None:
    project.write("user", settings)
    loaded = project.load()
    assert len(loaded.errors) == 1 and str(project.file("user")) in str(loaded.errors[0])
    assert loaded.rules.broken
    assert project.load(explicit=settings, files=False).rules.broken


def test_an_allow_rule_that_cannot_be_read_is_only_a_warning(project) -> None:
    project.write("project", {"permissions": {"allow": ["Bash("]}})
    loaded = project.load()
    assert not loaded.errors and loaded.warnings


@pytest.mark.parametrize(
    "settings",
    [
        {"permissions": {"defaultMode": "plann"}},
        {"tools": {"Bash": {"timeout": "60"}}},
        {"sandbox": {"network": "yes"}},
        {"hooks": {"PostToolUse": [{"hooks": [{"comand": "./format"}]}]}},
        {"hooks": {"PreToolUse": [{"hooks": [{"comand": "./guard"}]}]}, "disableAllHooks": True},
        {"modle": "anthropic/x"},
    ],
)
def test_a_mistake_that_loses_no_restriction_stops_nothing(project, settings) -> None:
    project.write("user", settings)
    assert not project.load().errors


@pytest.mark.parametrize("mark", ["folder", "repository", "work tree"])
def test_a_folder_in_a_trusted_project_needs_its_own_consent(project, mark) -> None:
    hook = {"SessionStart": [{"hooks": [{"type": "command", "command": "touch ran"}]}]}
    asked = {"hooks": hook, "permissions": {"allow": ["Bash"]}, "compat": {"claude": True}, "env": {"A": "b"}}
    inner = project.root / "inner"
    for folder in (project.root, inner):
        (folder / ".wieldy").mkdir(parents=True)
        (folder / ".wieldy" / "settings.json").write_text(json.dumps(asked))
        (folder / ".claude").mkdir()
        (folder / ".claude" / "settings.json").write_text(json.dumps({"hooks": hook}))
        (folder / ".mcp.json").write_text(json.dumps({"mcpServers": {"x": {"command": "touch"}}}))
    if mark == "repository":
        (inner / ".git").mkdir()
    elif mark == "work tree":
        (inner / ".git").write_text(f"gitdir: {project.root}/.git/worktrees/inner\n")
    trust = Trust(env={**project.env, "WIELDY_TRUST": ""})
    while pending := project.load(trusted=False, trust=trust).pending:
        trust.accept(str(project.root), pending)
    assert project.load(trusted=False, trust=trust).get("hooks")
    settings = project.load(inner, trusted=False, trust=trust)
    assert settings.root == str(inner)
    assert {item.name for item in settings.pending} >= {"hooks.SessionStart", "permissions.allow", "mcpServers.x"}
    assert not settings.get("hooks") and not settings.get("mcpServers") and not settings.rules.rules


@pytest.mark.parametrize("behavior", ["deny", "ask", "allow"])
def test_a_rule_for_a_tool_that_nobody_has_is_a_warning(project, behavior) -> None:
    rules = ["Raed", "Terminal", "mcp__server__tool", "Task", "Bash"]
    project.write("user", {"permissions": {behavior: rules}})
    loaded = project.load()
    assert not loaded.errors
    assert [str(warning).partition(": ")[2] for warning in loaded.warnings] == [
        f"{behavior} rule `Raed`: there is no built-in tool `Raed`, did you mean `Read`?",
        f"{behavior} rule `Terminal`: there is no built-in tool `Terminal`, it does nothing unless a program adds such a tool",
    ]


def test_tools_of_a_program_may_be_named_in_rules(project) -> None:
    project.write("user", {"permissions": {"deny": ["Deploy", "Reads"]}})
    assert len(project.load().warnings) == 2
    assert not project.load(tool_names={"Deploy", "Reads"}).warnings


def test_claude_codes_files_may_name_tools_of_claude_code(project) -> None:
    project.write("claude project", {"permissions": {"deny": ["SlashCommand", "Bahs"]}})
    assert ["Bahs" in str(warning) for warning in project.load().warnings] == [True]


def test_limits_of_a_tool_that_is_probably_misspelled_are_a_warning(project) -> None:
    project.write(
        "user", {"tools": {"Wirte": {"level": "forbidden"}, "KillBash": {"timeout": 5}, "mine": {"timeout": 5}}}
    )
    loaded = project.load()
    warnings = "\n".join(map(str, loaded.warnings))
    assert not loaded.errors
    assert "no built-in tool `Wirte`, did you mean `Write`?" in warnings
    assert "no built-in tool `KillBash`, did you mean `KillShell`?" in warnings
    assert "mine" not in warnings


def test_a_whole_number_for_a_float_is_not_ignored(project) -> None:
    project.write("user", {"search": {"seconds": 2}})
    assert project.load().get("search.seconds") == 2


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "text",
    [
        json.dumps({f"permission{n}": 1 for n in range(40_000)}),
        json.dumps({"permissions": {f"den{n}": [] for n in range(40_000)}}),
        "{" + ",".join('"permissions": {}' for _ in range(50_000)) + "}",
        json.dumps({"tools": {f"Bash{n}": {"level": 3} for n in range(30_000)}}),
        json.dumps({"permissions": {"deny": [7] * 100_000}}),
        json.dumps({"env": {f"A{n}": 1 for n in range(50_000)}}),
    ],
)
def test_a_flood_of_names_or_mistakes_costs_no_time_and_loses_no_restriction(project, text) -> None:
    project.write("project", text)
    settings = project.load()
    assert len(settings.warnings) + len(settings.errors) < 200
    if '"permissions": {}' not in text:
        assert "more than 50 problems" in str(settings.errors)
        with pytest.raises(SettingsError):
            settings.require_rules()


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    ("section", "value"),
    [
        ("mcpServers", {f"s{n}": {"command": "x"} for n in range(20_000)}),
        ("permissions", {"additionalDirectories": [f"d{n}" for n in range(50_000)]}),
        ("permissions", {"deny": [{"rule": "Bash(x)", "match": [f"x {n}" for n in range(20_000)]}]}),
        ("sandbox", {"denyRead": [f"d{n}" for n in range(50_000)]}),
        ("env", {f"A{n}": "x" for n in range(20_000)}),
    ],
)
def test_no_section_of_a_project_has_values_without_bound(project, section, value) -> None:
    project.write("project", {section: value})
    settings = project.load()
    assert f"may give 2000 values in `{section}`" in str(settings.errors[0])
    assert settings.errors[0].fatal
    project.write("user", {section: value})
    project.write("project", {})
    assert not any("may give" in str(error) for error in project.load().errors)


@pytest.mark.timeout(20)
@pytest.mark.parametrize("behavior", ["deny", "ask", "allow"])
def test_a_project_with_too_many_rules_is_told_so_and_nothing_starts(project, behavior) -> None:
    project.write("project", {"permissions": {behavior: [f"Edit(/a{n})" for n in range(2_001)]}})
    settings = project.load()
    assert "may give 2000 values in `permissions`, and there are more" in str(settings.errors[0])
    with pytest.raises(SettingsError):
        settings.require_rules()
    project.write("project", {"permissions": {behavior: [f"Edit(/a{n})" for n in range(2_000)]}})
    assert not project.load().errors


@pytest.mark.timeout(20)
def test_rules_of_a_project_have_no_more_wildcards_than_can_be_compiled_at_once(project) -> None:
    rules = [f"Read({'**/*a*/' * 40}{n})" for n in range(1_500)]
    project.write("project", {"permissions": {"deny": rules}})
    settings = project.load()
    assert "may give 4000 wildcards outside rules for commands in `permissions`" in str(settings.errors[0])
    with pytest.raises(SettingsError):
        settings.require_rules()
    project.write("project", {"permissions": {"deny": [f"Read(/a{n}/**)" for n in range(2_000)]}})
    assert not project.load().errors
    project.write("project", {"permissions": {"deny": [f"Bash({'*a' * 40}{n})" for n in range(1_500)]}})
    assert not project.load().errors
