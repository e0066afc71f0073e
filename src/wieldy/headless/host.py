"""The host of a session: the program at the other end of stream-json, which answers questions and runs hooks and MCP servers."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from wieldy.core.decision import Answer, Question
from wieldy.core.tool_names import RENAMED_TOOLS
from wieldy.core.user_questions import UserAnswer, UserQuestion
from wieldy.headless.control_channel import ControlChannel, ControlFailure, Fields
from wieldy.hooks.config import Hook, OnError, python_hook
from wieldy.hooks.events import HOOK_EVENTS
from wieldy.subagents.definitions import AgentType

if TYPE_CHECKING:
    from wieldy.agent.session import Session

QUESTION_TOOL = "AskUserQuestion"  # what hosts know AskUser as
MAX_HEADER_CHARS = 12
ON_FAILURE: Mapping[str, OnError] = {"block": "block", "continue": "warn"}


class ControlHost:
    """What a host contributes to a session, from its `initialize` request; None where it sent none.

    `hooks`, `agents` and `servers` are what it registered, `problems` what of that cannot be used.
    """

    def __init__(self, channel: ControlChannel, initialize: Fields | None) -> None:
        self._channel = channel
        self._session: Session | None = None
        self.initialized = initialize is not None
        self.problems: list[str] = []
        fields = initialize or {}
        self.hooks = tuple(self._parse_hooks(fields.get("hooks")))
        self.agents = parse_agents(fields.get("agents"))
        servers = fields.get("sdkMcpServers")
        self.servers = {str(name): {"type": "sdk", "name": name} for name in servers or ()}

    def attach(self, session: Session) -> None:
        """Follow the session whose questions it answers."""
        self._session = session

    async def ask(self, question: Question) -> Answer:
        """Have the host answer a permission question; a failure is a no."""
        plan, decision = question.plan, question.decision
        try:
            reply = await self._channel.request(
                "can_use_tool",
                tool_name=plan.tool.name,
                input=dict(plan.input),
                permission_suggestions=[suggestion(rule) for rule in decision.suggestions],
                blocked_path=None,
                decision_reason=decision.why,
                tool_use_id=plan.call.id,
                **({"agent_id": question.agent} if question.agent else {}),
            )
            return self.interpret(reply, question)
        except ControlFailure as failure:
            return Answer(False, f"nobody could be asked: {failure}")

    def interpret(self, reply: Fields, question: Question) -> Answer:
        """Interpret the answer to a question, and apply the permissions that it changes. Raises `ControlFailure`."""
        if reply.get("behavior") == "allow":
            remember = self._apply_updates(reply.get("updatedPermissions"))
            updated = reply.get("updatedInput")
            is_changed = isinstance(updated, Mapping) and updated != question.plan.input
            return Answer(True, remember=remember, updated_input=updated if is_changed else None)
        if reply.get("interrupt") is True and self._session is not None:
            # Once the answer is in: aborting now would cancel this very question.
            asyncio.get_running_loop().call_soon(self._session.abort, "interrupted with the answer to a question")
        return Answer(False, str(reply.get("message") or ""))

    async def answer(self, questions: Sequence[UserQuestion]) -> list[UserAnswer] | None:
        """Have the host answer the questions of AskUser; None where it gives no answers."""
        asked = [
            {
                "question": each.question,
                "header": each.question[:MAX_HEADER_CHARS],
                "options": [{"label": option, "description": ""} for option in each.options],
                "multiSelect": each.several,
            }
            for each in questions
        ]
        try:
            reply = await self._channel.request("can_use_tool", tool_name=QUESTION_TOOL, input={"questions": asked})
        except ControlFailure:
            return None
        updated = reply.get("updatedInput")
        answers = updated.get("answers") if isinstance(updated, Mapping) else None
        if reply.get("behavior") != "allow" or not isinstance(answers, Mapping):
            return None
        return [_user_answer(each, answers.get(each.question)) for each in questions]

    async def relay(self, server: str, message: Fields) -> Fields:
        """Carry a JSON-RPC message to an MCP server of the host and return its response. Raises `ControlFailure`."""
        reply = await self._channel.request("mcp_message", server_name=server, message=message)
        response = reply.get("mcp_response")
        return response if isinstance(response, Mapping) else {}

    def _apply_updates(self, updates: Any) -> tuple[str, ...]:
        """Apply the changes of permissions that came with an answer; returns the rules to save in the settings."""
        saved: list[str] = []
        for update in updates if isinstance(updates, list) else ():
            match update:
                case {"type": "setMode", "mode": str(mode)}:
                    assert self._session is not None
                    set_mode(self._session, mode)
                case {"type": "addRules", "behavior": "allow", "rules": list(rules)}:
                    texts = [rule_text(rule) for rule in rules]
                    if update.get("destination", "session") == "session":
                        self._grant(texts)
                    else:
                        saved += texts
        return tuple(saved)

    def _grant(self, rules: list[str]) -> None:
        from wieldy.permissions.suggest import select_savable_rules

        assert self._session is not None
        policy = self._session.box.policy
        policy.grant(*select_savable_rules(rules, policy.paths.project).rules)

    def _parse_hooks(self, section: Any) -> list[Hook]:
        """Parse the hooks. What cannot be read is an error: a guard must not be left out unnoticed."""
        if section is None:
            return []
        hooks: list[Hook] = []
        try:
            for event, groups in section.items():
                if event not in HOOK_EVENTS:
                    self._add_unknown_event(event, groups)
                    continue
                for group in groups:
                    hooks += [self._hook(event, group, str(id)) for id in group.get("hookCallbackIds") or ()]
        except (AttributeError, TypeError, ValueError) as error:
            raise ControlFailure(f"the hooks cannot be used: {error}") from None
        return hooks

    def _add_unknown_event(self, event: str, groups: Any) -> None:
        if any(group.get("onFailure") not in (None, "continue") for group in groups):
            raise ValueError(f"wieldy has no event {event}, so that a hook for it would block nothing")
        self.problems.append(f"the hooks for {event} never run: wieldy has no such event")

    def _hook(self, event: str, group: Fields, callback_id: str) -> Hook:
        async def call(payload: dict[str, Any]) -> Fields | None:
            call_id = payload.get("tool_use_id")
            reply = await self._channel.request(
                "hook_callback", callback_id=callback_id, input=payload, tool_use_id=call_id
            )
            return None if reply.get("async") is True else reply or None

        matcher, failure, seconds = group.get("matcher"), group.get("onFailure"), group.get("timeout")
        # A word that is not known must not make a guard fail open.
        on_error = None if failure is None else ON_FAILURE.get(failure, "block")
        hook = python_hook(event, call, match=matcher if isinstance(matcher, str) else "", on_error=on_error)
        limit = float(seconds) if isinstance(seconds, int | float) and seconds > 0 else hook.seconds
        return replace(hook, name=f"{event} callback {callback_id}", seconds=limit)


def parse_agents(section: Any) -> list[AgentType]:
    """The types of subagents in an object of names and definitions, as Claude Code writes them. Raises `ControlFailure`."""
    try:
        return [_agent_type(str(name), fields) for name, fields in (section or {}).items()]
    except (AttributeError, TypeError) as error:
        raise ControlFailure(f"the agents cannot be used: {error}") from None


def _agent_type(name: str, fields: Fields) -> AgentType:
    tools, model = fields.get("tools"), fields.get("model")
    return AgentType(
        name,
        str(fields.get("prompt") or ""),
        str(fields.get("description") or ""),
        None if tools is None else [RENAMED_TOOLS.get(tool, tool) for tool in tools],
        [RENAMED_TOOLS.get(tool, tool) for tool in fields.get("disallowedTools") or ()],
        None if model in (None, "inherit") else str(model),
        fields.get("permissionMode"),
        fields.get("maxTurns"),
    )


def _user_answer(question: UserQuestion, answer: Any) -> UserAnswer:
    """An answer: labels of options, separated by commas where several are allowed, or words."""
    if isinstance(answer, list):
        answer = ", ".join(map(str, answer))
    text = str(answer or "")
    labels = [label.strip() for label in text.split(",")] if question.several else [text]
    chosen = tuple(label for label in labels if label in question.options)
    return UserAnswer(chosen) if chosen and len(chosen) == len(labels) else UserAnswer(words=text)


def set_mode(session: Session, name: str) -> str:
    """Change the permission mode of a session. Raises `ControlFailure` for one that is unknown or disabled."""
    try:
        session.box.mode = name
    except ValueError as error:
        raise ControlFailure(str(error)) from None
    return session.box.mode


def suggestion(rule: str) -> dict[str, Any]:
    """A rule that is offered with a question, as the permission update that would save it."""
    tool, parenthesis, content = rule.partition("(")
    value = {"toolName": tool, "ruleContent": content.removesuffix(")")} if parenthesis else {"toolName": tool}
    return {"type": "addRules", "rules": [value], "behavior": "allow", "destination": "localSettings"}


def rule_text(rule: Any) -> str:
    """The text of a rule in a permission update."""
    if not isinstance(rule, Mapping) or not isinstance(rule.get("toolName"), str):
        raise ControlFailure("a rule in updatedPermissions has no toolName")
    content = rule.get("ruleContent")
    return f"{rule['toolName']}({content})" if content else rule["toolName"]
