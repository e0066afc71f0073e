"""Commands that show what there is: tools, rules, servers, agents, tasks, cost, context, settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wieldy.core.text import plural, truncate_line
from wieldy.core.threads import in_thread
from wieldy.faces.terminal.commands.command import first_sentence

if TYPE_CHECKING:
    from wieldy.faces.terminal.chat import Chat

CHARS_PER_TOKEN = 4  # an estimate, where a provider has not counted
BAR_WIDTH = 20
RECONNECT_SECONDS = 30.0


async def tools(chat: Chat, rest: str) -> None:
    """`/tools`: the tools, and why one is not offered."""
    lines = []
    for entry in await chat.session.box.offer():
        about = first_sentence(entry.tool.description) if entry.offered else f"not offered: {entry.reason}"
        lines.append(f"  {entry.tool.name:<18} {about}")
    chat.say("\n".join(lines))


async def permissions(chat: Chat, rest: str) -> None:
    """`/permissions`: the mode and the rules; or a rule is added or removed."""
    from wieldy.policy.permissions.explain import format_rules
    from wieldy.policy.permissions.rules import parse
    from wieldy.policy.settings.store import local_file, project_file, remember, remove_rules, user_file

    box = chat.session.box
    root = box.settings.root
    verb, _, rule = rest.partition(" ")
    rule = rule.strip()
    if not rest:
        chat.say(
            "\n".join([f"  mode: {box.policy.mode}", *(f"  {line}" for line in format_rules(box.policy.rules.rules))])
        )
        return
    if verb not in ("allow", "deny", "ask", "remove") or not rule:
        chat.say("/permissions allow|deny|ask|remove RULE, for example /permissions allow Bash(npm test:*)")
        return
    if verb == "remove":
        files = (local_file(root), project_file(root), user_file(box.workspace.env))
        held = [str(file) for file in files if await in_thread(remove_rules, file, [rule])]
        chat.say(f"removed from {', '.join(held)}" if held else f"there is no rule `{rule}` in your files")
    else:
        file = await in_thread(remember, root, [parse(rule, verb)])  # type: ignore[arg-type]
        chat.say(f"{verb}: {rule} → {file}")
    await box.reload()


async def mcp(chat: Chat, rest: str) -> None:
    """`/mcp`: the servers and their prompts; or one is connected again."""
    from wieldy.mcp.prompts import list_prompts

    servers = chat.session.box.workspace.services.mcp_servers
    verb, _, name = rest.partition(" ")
    if rest:
        connection = servers.connections.get(name.strip()) if verb == "reconnect" else None
        if connection is None:
            known = ", ".join(servers.states()) or "none"
            chat.say(f"/mcp reconnect NAME; the servers are: {known}")
            return
        connection.reconnect()
        await servers.wait_settled(RECONNECT_SECONDS, name.strip())
    lines = []
    for server_name, state in servers.states().items():
        server = servers.servers.get(server_name)
        about = plural(len(server.tools), "tool") if server and state.name == "ready" else str(state)
        lines.append(f"  {server_name:<18} {about}")
    if not lines:
        lines = ["  no MCP server is configured; `wieldy mcp add --help` shows how"]
    elif prompts := await list_prompts(servers):
        lines += ["  prompts:", *(f"  {prompt.usage}  {prompt.description}" for prompt in prompts.values())]
    chat.say("\n".join(lines))


async def agents(chat: Chat, rest: str) -> None:
    """`/agents`: the types, and those that were started."""
    services = chat.session.box.workspace.services
    types = services.agent_types
    lines = []
    for kind in (await in_thread(types.refresh)).values():
        where = "" if kind.origin == "built-in" else f" ({kind.origin})"
        lines.append(f"  {kind.name:<18} {first_sentence(kind.description)}{where}")
    subagents = services.subagent_registry.all()
    lines.append("  started in this session:" if subagents else "  none was started in this session")
    for subagent in subagents:
        report = subagent.future.result() if not subagent.running else subagent.current_report()
        lines.append(f"  {report.why:<18} {subagent.task.title} [{report.summary()}]")
    chat.say("\n".join(lines))
    for problem in types.problems:
        chat.say(f"  left out: {problem}")


async def tasks(chat: Chat, rest: str) -> None:
    """`/tasks`: what runs in the background; the person chooses one to stop."""
    services = chat.session.box.workspace.services
    shells = [shell for shell in services.background_shells.all() if not shell.finished.done()]
    running = [subagent for subagent in services.subagent_registry.all() if subagent.running]
    names = [f"shell {shell.id}: {truncate_line(shell.command, 80)}" for shell in shells]
    names += [f"agent {subagent.id}: {truncate_line(subagent.task.title, 80)}" for subagent in running]
    if not names:
        chat.say("nothing runs in the background", "dim")
        return
    choice = await chat.surface.choose("In the background. Stop one?", [], [*names, "stop nothing"])
    if choice is None or choice >= len(names):
        return
    if choice < len(shells):
        await services.background_shells.kill(shells[choice].id)
    else:
        await running[choice - len(shells)].stop("stopped by the user")
    chat.say(f"stopped {names[choice]}")
    chat.tell_model(f"The user stopped {names[choice]}")


async def cost(chat: Chat, rest: str) -> None:
    """`/cost`: answers, dollars and the size of the conversation."""
    conversation = chat.session.conversation
    tokens = f", {conversation.tokens:,} tokens in the context" if conversation.tokens else ""
    chat.say(f"  {plural(conversation.turns, 'answer')}, ${conversation.cost:.4f}{tokens}")


async def context(chat: Chat, rest: str) -> None:
    """`/context`: how full the context window is, and of what."""
    session = chat.session
    if not chat.has_model:
        chat.say("there is no model, so there is no context window", "dim")
        return
    window = session.provider.context_window
    parts: dict[str, int] = {}
    if session.ready:
        parts["system prompt"] = sum(map(len, session.system_prompt))
        parts["tools"] = sum(len(str(spec)) for spec in session.tool_specs)
    for message in session.messages:
        for block in message["content"]:
            kind = {"tool_result": "tool results", "tool_use": "tool calls", "thinking": "thinking"}.get(
                block["type"], "your prompts" if message["role"] == "user" else "answers"
            )
            parts[kind] = parts.get(kind, 0) + len(str(block))
    estimated = sum(parts.values()) // CHARS_PER_TOKEN
    used = session.conversation.tokens or estimated
    share = min(used / window, 1.0)
    bar = "█" * round(share * BAR_WIDTH)
    lines = [f"  {bar:░<{BAR_WIDTH}} {share * 100:.0f} %  {used:,} of {window:,} tokens ({session.model_name})"]
    scale = used / estimated if estimated else 0
    for name, chars in sorted(parts.items(), key=lambda item: -item[1]):
        lines.append(f"  {name:<16} about {chars / CHARS_PER_TOKEN * scale:,.0f} tokens")
    chat.say("\n".join(lines))


async def reload(chat: Chat, rest: str) -> None:
    """`/reload`: read the settings again."""
    box = chat.session.box
    settings = await box.reload()
    if settings.errors:
        chat.say("\n".join(f"  {error}" for error in settings.errors), "red")
        chat.say("  the settings stay as they were")
        return
    servers = settings.get("mcpServers")
    numbers = {"rule": len(settings.rules.rules), "hook": len(box.hooks.hooks), "MCP server": len(servers)}
    counts = ", ".join(plural(number, noun) for noun, number in numbers.items())
    chat.say(f"  the settings were read again: {counts}")
    for problem in (*settings.warnings, *box.hook_problems):
        chat.say(f"  {problem}")
