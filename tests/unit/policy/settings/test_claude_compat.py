from __future__ import annotations


def test_foreign_settings_are_read_only_when_asked_for(project, rule_texts) -> None:
    project.write("claude user", {"permissions": {"allow": ["Bash(ls)"]}})
    assert rule_texts(project.load())["allow"] == []
    project.write("user", {"compat": {"claude": True}})
    assert rule_texts(project.load())["allow"] == ["Bash(ls)"]
    assert rule_texts(project.load(explicit={"compat": {"claude": False}}))["allow"] == []


def test_each_foreign_file_ranks_right_behind_our_own_of_the_same_layer(project) -> None:
    project.write("user", {"compat": {"claude": True}, "model": "ours/user"})
    project.write("claude user", {"model": "theirs/user", "cleanupPeriodDays": 1})
    project.write("claude project", {"cleanupPeriodDays": 2, "respectGitignore": True})
    project.write("claude local", {"respectGitignore": False})
    settings = project.load()
    assert [settings.get(n) for n in ("model", "cleanupPeriodDays", "respectGitignore")] == ["ours/user", 2, False]
    assert settings.origin("cleanupPeriodDays").file == str(project.file("claude project"))


def test_what_carries_over_under_another_name_or_not_at_all_is_reported(project) -> None:
    project.write("user", {"compat": {"claude": True}})
    project.write(
        "claude user",
        '{"sandbox": {"enabled": true, "autoAllowBashIfSandboxed": true,\n"filesystem": {"allowWrite": ["/x"]},\n'
        '"network": {"socksProxyPort": 1}},\n"permissions": {"defaultMode": "auto",\n"disableAutoMode": "disable"},\n'
        '"skillOverrides": {"a": "b"}, "hooks": {"Stop": []}}',
    )
    settings = project.load()
    assert settings.values["sandbox"] == {"enabled": True, "autoAllow": True, "allowWrite": ["/x"]}
    assert settings.values["permissions"] == {"defaultMode": "default"}
    assert settings.values["hooks"] == {"Stop": []}
    problems = {(problem.line, problem.text) for problem in settings.report}
    assert (1, "`sandbox.autoAllowBashIfSandboxed` was taken as `sandbox.autoAllow`") in problems
    assert (3, "`sandbox.network.socksProxyPort` has no counterpart here and was left out") in problems
    assert (4, "mode `auto` was taken as `default`") in problems
    assert any(line == 5 and "disableAutoMode" in text for line, text in problems)
    assert any("skillOverrides" in text for _, text in problems)


def test_foreign_project_files_wait_for_consent_like_our_own(project, rule_texts) -> None:
    project.write("user", {"compat": {"claude": True}})
    project.write("claude project", {"permissions": {"allow": ["Bash"], "deny": ["Read(.env)"]}, "env": {"A": "1"}})
    project.write("mcp", {"mcpServers": {"db": {"command": "serve"}}})
    settings = project.load(trusted=False)
    assert rule_texts(settings) == {"deny": ["Read(.env)"], "ask": [], "allow": []}
    assert sorted(one.name for one in settings.pending) == ["env.A", "mcpServers.db", "permissions.allow"]
    trusted = project.load()
    assert trusted.values["mcpServers"] == {"db": {"command": "serve"}}
    assert rule_texts(trusted)["allow"] == ["Bash"]


def test_a_project_cannot_have_the_users_foreign_rules_read(project, rule_texts) -> None:
    project.write("claude user", {"permissions": {"allow": ["Bash"]}})
    project.write("project", {"compat": {"claude": True}})
    assert rule_texts(project.load(trusted=False))["allow"] == []
    assert rule_texts(project.load())["allow"] == ["Bash"]


def test_a_path_rule_of_the_foreign_user_file_starts_at_its_own_folder(project) -> None:
    project.write("user", {"compat": {"claude": True}})
    project.write("claude user", {"permissions": {"deny": ["Read(/notes/**)"]}})
    (rule,) = project.load().rules.rules
    assert rule.origin.folder == str(project.home / ".claude")


def test_a_broken_foreign_file_is_an_error_too(project) -> None:
    project.write("user", {"compat": {"claude": True}})
    project.write("claude project", "{")
    assert str(project.file("claude project")) in str(project.load().errors[0])


def test_foreign_deny_and_ask_rules_always_apply_and_nothing_else_does(project, rule_texts) -> None:
    project.write(
        "claude project",
        {"permissions": {"deny": ["Read(.env)"], "ask": ["Task"], "allow": ["Bash"]}, "model": "sonnet", "hooks": {}},
    )
    for explicit in (None, {"compat": {"claude": False}}):
        settings = project.load(explicit=explicit)
        assert rule_texts(settings) == {"deny": ["Read(.env)"], "ask": ["Task"], "allow": []}
        assert not settings.errors and settings.get("model") is None
        assert "compat.claude" in str(settings.report[0]) and "permissions.allow" in str(settings.report[0])


def test_a_model_by_a_foreign_name_is_left_out_and_reported(project) -> None:
    project.write("user", {"compat": {"claude": True}})
    project.write("claude user", {"model": "sonnet"})
    settings = project.load()
    assert settings.get("model") is None
    assert any("`sonnet`" in str(line) for line in settings.report)


def test_a_foreign_deny_rule_that_cannot_be_read_is_an_error(project) -> None:
    project.write("claude project", {"permissions": {"deny": ["Read("]}})
    assert project.load().errors
