"""Slash commands of the interactive session, and what the first character of a line means."""

from __future__ import annotations

import difflib
import os
import re
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from wieldy.core.state_dirs import config_home, make_private_folder, write_private
from wieldy.core.text import format_cost, nearest_name, plural, truncate_line, truncate_middle, without_reminders
from wieldy.core.threads import in_thread
from wieldy.faces.terminal.calls import parse_input, split_words
from wieldy.faces.terminal.desktop import running_shells
from wieldy.faces.terminal.named_prompts import list_named_prompts, send_named_prompt
from wieldy.faces.terminal.text import Row, TextSpan
from wieldy.faces.terminal.view_model import SpansBlock

if TYPE_CHECKING:
    from wieldy.agent.rewind import Checkpoint
    from wieldy.faces.terminal.chat import Chat
    from wieldy.files.journal.undo import UndoPlan

CHARS_PER_TOKEN = 4  # an estimate, where a provider has not counted
BAR_WIDTH = 20
RECONNECT_SECONDS = 30.0
MAX_DIFF_ROWS = 400
SHOWN_PROMPT_CHARS = 70
SHOWN_SESSIONS = 15
MAX_SHARED_CHARS = 10_000
NOTE_FILES = ("AGENTS.md", "CLAUDE.md")
BOTH, FILES, CONVERSATION = "files and conversation", "files only", "conversation only"
UNDO_OPTIONS = ("--turn", "--all", "--merge")
_CODE_BLOCK = re.compile(r"^(`{3,}|~{3,})[^\n]*\n(.*?)^\1[ \t]*$", re.MULTILINE | re.DOTALL)


class ExitChat(Exception):
    """The user leaves the session."""


class Command(Struct, frozen=True):
    """A slash command. `while_running`: it does not wait for the end of a run. `complete` proposes its arguments."""

    about: str
    run: Callable[[Chat, str], Awaitable[None]]
    while_running: bool = False
    usage: str = ""
    complete: Callable[[Chat], Sequence[str]] | None = None


COMMANDS: dict[str, Command] = {}


def _command(name: str, about: str, **options: Any) -> Callable[[Callable[[Chat, str], Awaitable[None]]], None]:
    def add(run: Callable[[Chat, str], Awaitable[None]]) -> None:
        COMMANDS[name] = Command(about, run, **options)

    return add


def first_sentence(text: str) -> str:
    """The first sentence of a description, without its full stop."""
    return " ".join(text.partition(". ")[0].split()).rstrip(".")


@_command("/help", "list the commands", while_running=True, usage="[COMMAND]")
async def _help(chat: Chat, rest: str) -> None:
    if rest:
        name = rest if rest.startswith("/") else f"/{rest}"
        _explain(chat, name) if name in COMMANDS else _say_unknown(chat, name)
        return
    rows = {f"{name} {command.usage}".strip(): command.about for name, command in COMMANDS.items()}
    rows |= {f"/{name}": about for name, about in (await list_named_prompts(chat)).items()}
    rows |= {
        "!command": "run a shell command; the model sees its output with your next prompt",
        "#note": "remember a note for later sessions",
        "@path": "name a file, with completion",
        "Esc, Ctrl-C": "stop the run; Ctrl-C twice: exit",
    }
    chat.say("\n".join(_help_row(usage, about) for usage, about in rows.items()))


def _help_row(usage: str, about: str) -> str:
    """Lay out a row of the help: a long usage has a line of its own, so that the descriptions stay in one column."""
    return f"  {usage:<24} {about}" if len(usage) <= 24 else f"  {usage}\n{'':<27}{about}"


def _explain(chat: Chat, name: str) -> None:
    command = COMMANDS[name]
    chat.say(f"  {name} {command.usage}".rstrip() + f"\n  {command.about}")


def _say_unknown(chat: Chat, name: str) -> None:
    near = nearest_name(name[1:], [each[1:] for each in COMMANDS])
    hint = f"did you mean /{near}?" if near else "/help lists them"
    chat.say(f"there is no command {name}; {hint}", "red")


@_command("/tools", "list the tools, and why one is not offered", while_running=True)
async def _tools(chat: Chat, rest: str) -> None:
    lines = []
    for entry in await chat.session.box.offer():
        about = first_sentence(entry.tool.description) if entry.offered else f"not offered: {entry.reason}"
        lines.append(f"  {entry.tool.name:<18} {about}")
    chat.say("\n".join(lines))


@_command("/call", "run a tool by hand: /call Grep pattern=TODO", usage="TOOL key=value …")
async def _call(chat: Chat, rest: str) -> None:
    name, _, fields = rest.partition(" ")
    if not name:
        chat.say("/call TOOL key=value …, for example /call Grep pattern=TODO")
        return
    await chat.call(name, parse_input(split_words(fields.strip()), chat.session.box.catalog.find(name)))


@_command(
    "/permissions",
    "list the rules; allow, deny, ask or remove one",
    while_running=True,
    usage="[allow|deny|ask|remove RULE]",
)
async def _permissions(chat: Chat, rest: str) -> None:
    from wieldy.policy.permissions.explain import format_rules
    from wieldy.policy.permissions.rules import parse
    from wieldy.policy.settings.store import remember, remove_rules, settings_files

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
        files = settings_files(root, box.workspace.env).values()
        held = [str(file) for file in files if await in_thread(remove_rules, file, [rule])]
        chat.say(f"removed from {', '.join(held)}" if held else f"there is no rule `{rule}` in your files")
    else:
        file = await in_thread(remember, root, [parse(rule, verb)])  # type: ignore[arg-type]
        chat.say(f"{verb}: {rule} → {file}")
    await box.reload()


def _mode_names(chat: Chat) -> Sequence[str]:
    from wieldy.policy.permissions.modes import MODES

    return list(MODES)


@_command("/mode", "show or change the permission mode", while_running=True, usage="[MODE]", complete=_mode_names)
async def _mode(chat: Chat, rest: str) -> None:
    if rest:
        try:
            chat.session.mode = rest
        except ValueError as error:
            chat.say(str(error), "red")
            return
    chat.say(f"the mode is {chat.session.mode}" + ("" if rest else f"; /mode takes {', '.join(_mode_names(chat))}"))


@_command("/model", "show or change the model", usage="[NAME]")
async def _model(chat: Chat, rest: str) -> None:
    from wieldy.models.catalog import with_provider

    if rest:
        chat.session.set_model(with_provider(rest))  # an error is shown, and the model stays
    if not chat.has_model:
        chat.say("there is no model; /model NAME sets one, for example /model claude-sonnet-5-5")
        return
    window = chat.session.provider.context_window
    chat.say(f"the model is {chat.session.model_name} ({window:,} tokens)")


@_command(
    "/undo",
    "take back the last change; the changes of a call, of the last turn, or all of this session",
    usage="[CALL|--turn|--all] [--merge]",
)
async def _undo(chat: Chat, rest: str) -> None:
    words = rest.split()
    unknown = [word for word in words if word.startswith("-") and word not in UNDO_OPTIONS]
    calls = [word for word in words if not word.startswith("-")]
    if unknown or len(calls) + len({"--turn", "--all"} & set(words)) > 1:
        chat.say("/undo takes the id of a call, --turn or --all, and --merge")
        return
    plan = await chat.session.box.undo(
        calls[0] if calls else None, turn="--turn" in words, everything="--all" in words, merge="--merge" in words
    )
    _report(chat, plan)


def _report(chat: Chat, plan: UndoPlan, *, tell_model: bool = True) -> None:
    from wieldy.files.journal.undo import plan_lines

    text = "\n".join(plan_lines(plan))
    chat.say(chat.view.format.shorten_paths(text))
    if tell_model:
        verb = "took back changes" if plan.action == "undo" else "brought changes back"
        chat.tell_model(f"The user {verb} of yours. Read the files again before you edit them.\n{text}")
        chat.session.box.workspace.services.read_state.undone.clear()


@_command("/redo", "bring back what the last undo or rewind took back", usage="[--merge]")
async def _redo(chat: Chat, rest: str) -> None:
    from wieldy.files.journal.undo import CannotUndo

    merge = rest.strip() == "--merge"
    if rest and not merge:
        chat.say("/redo takes no argument but --merge")
        return
    try:
        result = await chat.session.rewind.redo(merge=merge)
    except CannotUndo:
        _report(chat, await chat.session.box.redo(merge=merge))
        return
    if result.files is not None:
        _report(chat, result.files)
    if result.conversation:
        chat.say("the conversation is as it was before the rewind", "dim")


@_command("/rewind", "go back to before a prompt: files, conversation or both")
async def _rewind(chat: Chat, rest: str) -> None:
    checkpoints = await chat.session.rewind.checkpoints()
    if not checkpoints:
        chat.say("there is no prompt to go back to", "dim")
        return
    newest_first = checkpoints[::-1]
    choice = await chat.choose("Go back to before which prompt?", [], [_describe(each) for each in newest_first])
    if choice is None:
        return
    checkpoint = newest_first[choice]
    options = [BOTH, FILES, CONVERSATION, "nothing"] if checkpoint.files else [CONVERSATION, "nothing"]
    what = await chat.choose("Restore what?", _consequences(chat, checkpoint), options)
    if what is None or options[what] == "nothing":
        return
    await restore(chat, checkpoint, options[what])


async def restore(chat: Chat, checkpoint: Checkpoint, what: str) -> None:
    """Restore files, conversation or both to before a prompt."""
    result = await chat.session.rewind.restore(
        checkpoint.number, files=what != CONVERSATION, conversation=what != FILES
    )
    if result.conversation:
        chat.view.last_answer = ""
        chat.say(f"back to before: {truncate_line(checkpoint.text, SHOWN_PROMPT_CHARS)}", "dim")
        chat.surface.set_draft(checkpoint.text)
    if result.files is not None:
        _report(chat, result.files, tell_model=not result.conversation)
    chat.say("/redo reverses this", "dim")


def _describe(checkpoint: Checkpoint) -> str:
    when = time.strftime("%H:%M", time.localtime(checkpoint.time))
    count = len(checkpoint.files)
    changed = "no files changed since" if not count else f"{plural(count, 'file')} changed since"
    return f"{when}  {truncate_line(checkpoint.text, SHOWN_PROMPT_CHARS)}  ({changed})"


def _consequences(chat: Chat, checkpoint: Checkpoint) -> Sequence[str]:
    root = chat.session.box.workspace.root
    names = [os.path.relpath(path, root) for path in checkpoint.files]
    lines = [f"  {name}" for name in names[:10]] + ([f"  … {len(names) - 10} more"] if len(names) > 10 else [])
    return [*lines, *(f"  not restored: {line}" for line in checkpoint.uncovered[:5])]


@_command("/diff", "show what this session has changed", while_running=True)
async def _diff(chat: Chat, rest: str) -> None:
    from wieldy.files.journal.undo import CannotUndo, UndoSelector

    box = chat.session.box
    selector = UndoSelector(everything=True, session=box.id)
    try:
        plan = await box.workspace.services.journal.plan_undo(selector, merge=True)
    except CannotUndo:
        chat.say("this session has changed nothing", "dim")
        return
    rows: list[Row] = []
    for file in plan.files:
        name = os.path.relpath(file.path, box.workspace.root)
        rows += _diff_rows(name, file.then, file.now)
    hidden = len(rows) - MAX_DIFF_ROWS
    if hidden > 0:
        rows = [*rows[:MAX_DIFF_ROWS], (TextSpan(f"… {plural(hidden, 'more line')}", "dim"),)]
    chat.show(SpansBlock(tuple(rows)))


def _diff_rows(name: str, before: bytes | None, after: bytes | None) -> list[Row]:
    state = " (new)" if before is None else " (deleted)" if after is None else ""
    rows: list[Row] = [(TextSpan(f"{name}{state}", "bold"),)]
    old, new = ((data or b"").decode("utf-8", "replace").splitlines() for data in (before, after))
    for line in list(difflib.unified_diff(old, new, lineterm="", n=2))[2:]:
        style = {"+": "green", "-": "red", "@": "cyan"}.get(line[:1], "dim")
        rows.append((TextSpan(f"  {line}", style),))
    return rows


@_command("/mcp", "list MCP servers and their prompts, or connect to one again", usage="[reconnect NAME]")
async def _mcp(chat: Chat, rest: str) -> None:
    from wieldy.mcp.resources import list_prompts

    servers = chat.session.box.workspace.services.mcp_servers
    verb, _, name = rest.partition(" ")
    if rest:
        connection = servers.connections.get(name.strip()) if verb == "reconnect" else None
        if connection is None:
            known = ", ".join(servers.states()) or "none"
            chat.say(f"/mcp reconnect NAME; the servers are: {known}")
            return
        connection.reconnect(sign_in=True)
        await servers.wait_settled(RECONNECT_SECONDS, name.strip())
    lines = [f"  {report.name:<18} {report.summary()}" for report in servers.reports().values()]
    if not lines:
        lines = ["  no MCP server is configured; `wieldy mcp add --help` shows how"]
    elif prompts := await list_prompts(servers):
        lines += ["  prompts:", *(f"  {prompt.usage}  {prompt.description}" for prompt in prompts.values())]
    chat.say("\n".join(lines))


@_command("/agents", "list the subagent types, and the subagents of this session")
async def _agents(chat: Chat, rest: str) -> None:
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


@_command("/tasks", "list background shells and subagents; stop one", while_running=True)
async def _tasks(chat: Chat, rest: str) -> None:
    services = chat.session.box.workspace.services
    shells = running_shells(chat.session)
    running = [subagent for subagent in services.subagent_registry.all() if subagent.running]
    names = [f"shell {shell.id}: {truncate_line(shell.command, 80)}" for shell in shells]
    names += [f"agent {subagent.id}: {truncate_line(subagent.task.title, 80)}" for subagent in running]
    if not names:
        chat.say("nothing runs in the background", "dim")
        return
    choice = await chat.choose("In the background. Stop one?", [], [*names, "stop nothing"])
    if choice is None or choice >= len(names):
        return
    if choice < len(shells):
        await services.background_shells.kill(shells[choice].id)
    else:
        await running[choice - len(shells)].stop("stopped by the user")
    chat.say(f"stopped {names[choice]}")
    chat.tell_model(f"The user stopped {names[choice]}")


@_command("/cost", "show answers, tokens and cost so far", while_running=True)
async def _cost(chat: Chat, rest: str) -> None:
    conversation = chat.session.conversation
    tokens = f", {conversation.tokens:,} tokens in the context" if conversation.tokens else ""
    cost = format_cost(conversation.cost, len(conversation.unpriced), digits=4)
    chat.say(f"  {plural(conversation.turns, 'answer')}, {cost}{tokens}")


@_command("/context", "show what fills the context window", while_running=True)
async def _context(chat: Chat, rest: str) -> None:
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


@_command("/compact", "replace the conversation by a summary", usage="[WHAT TO KEEP]")
async def _compact(chat: Chat, rest: str) -> None:
    if not chat.session.conversation.messages:
        chat.say("there is nothing to compact", "dim")
        return
    await chat.session.compact(rest)


@_command("/clear", "start a new session in this folder")
async def _clear(chat: Chat, rest: str) -> None:
    before = chat.session.id if chat.session.messages else ""
    await chat.resume(None)
    chat.say("a new session" + (f"; /resume {before} goes back to the last one" if before else ""), "dim")


@_command("/resume", "choose an earlier session of this folder", usage="[ID]")
async def _resume(chat: Chat, rest: str) -> None:
    from wieldy.agent.store import stored_sessions

    root = chat.session.box.workspace.root
    sessions = [each for each in await in_thread(lambda: list(stored_sessions(root))) if each.id != chat.session.id]
    if rest and not any(each.id.startswith(rest) for each in sessions):
        sessions = [each for each in sessions if rest.casefold() in each.prompt.casefold()]
        if not sessions:
            chat.say(f"no session of this folder has the id or the words `{rest}`", "red")
            return
    elif rest:
        await chat.resume(rest)
        return
    if not sessions:
        chat.say("there is no earlier session in this folder", "dim")
        return
    sessions = sessions[:SHOWN_SESSIONS]
    names = [
        f"{each.id}  {time.strftime('%Y-%m-%d %H:%M', time.localtime(each.changed))}  {truncate_line(each.prompt, 60)}"
        for each in sessions
    ]
    choice = await chat.choose("Resume which session?", [], names)
    if choice is not None:
        await chat.resume(sessions[choice].id)


@_command("/copy", "copy the last answer, or its code block N, to the clipboard", while_running=True, usage="[N]")
async def _copy(chat: Chat, rest: str) -> None:
    from wieldy.faces.terminal.desktop import copy_text

    answer = chat.view.last_answer or _last_answer(chat.session.messages)
    if not answer.strip():
        chat.say("there is no answer to copy", "dim")
        return
    blocks = [match[2] for match in _CODE_BLOCK.finditer(answer)]
    if rest:
        if not rest.isdigit() or not 1 <= int(rest) <= len(blocks):
            chat.say(f"the last answer has {len(blocks)} code blocks; /copy N copies one")
            return
        what, text = f"code block {rest}", blocks[int(rest) - 1]
    else:
        what, text = "the last answer", answer
    chat.say(await copy_text(text, what, chat.session.box.workspace.env))


def _last_answer(messages: Sequence[Mapping[str, Any]]) -> str:
    for message in reversed(messages):
        texts = [block["text"] for block in message["content"] if block["type"] == "text"]
        if message["role"] == "assistant" and texts:
            return "\n".join(texts)
    return ""


@_command("/export", "write the conversation to a Markdown file", while_running=True, usage="[FILE]")
async def _export(chat: Chat, rest: str) -> None:
    messages = chat.session.messages
    if not messages:
        chat.say("there is nothing to export", "dim")
        return
    workspace, name = chat.session.box.workspace, f"wieldy-{chat.session.id[:8]}.md"
    path = Path(workspace.root, os.path.expanduser(rest)) if rest else workspace.session_dir / name
    if path.is_dir():
        path /= name
    if rest and path.exists():
        chat.say(f"{path} exists; /export FILE takes another name")
        return
    try:
        if not rest:
            make_private_folder(path.parent)
        await in_thread(write_private, path, conversation_markdown(messages).encode())
    except OSError as error:
        chat.say(f"{path} cannot be written: {(error.strerror or str(error)).lower()}", "red")
        return
    chat.say(f"the conversation is in {path}")


def conversation_markdown(messages: Sequence[Mapping[str, Any]]) -> str:
    """A conversation as Markdown: prompts as headings, answers as they are, calls and results folded to code blocks."""
    parts: list[str] = []
    for message in messages:
        for block in message["content"]:
            match block["type"]:
                case "text" if message["role"] == "user":
                    text = without_reminders(block["text"]).strip()
                    parts.append(f"## {text}" if text else "")
                case "text":
                    parts.append(block["text"].strip())
                case "tool_use":
                    fields = "\n".join(f"{name}: {value}" for name, value in block["input"].items())
                    parts.append(f"**{block['name']}**\n\n{_fenced(fields)}")
                case "tool_result":
                    content = block.get("content") or ""
                    text = content if isinstance(content, str) else "\n".join(each.get("text", "") for each in content)
                    parts.append(_fenced(text))
    return "\n\n".join(part for part in parts if part) + "\n"


def _fenced(text: str) -> str:
    fence = "`" * max(3, *(len(run) + 1 for run in re.findall(r"`{3,}", text)), 3)
    return f"{fence}\n{text.rstrip()}\n{fence}"


@_command("/reload", "read the settings again")
async def _reload(chat: Chat, rest: str) -> None:
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


@_command("/exit", "end the session", while_running=True)
async def _exit(chat: Chat, rest: str) -> None:
    raise ExitChat


async def shell(chat: Chat, command: str) -> None:
    """`!command`: run it unasked. The model sees it with the next prompt."""
    if not command:
        chat.say("!command runs a shell command, for example !ls")
        return
    result = await chat.call("Bash", {"command": command})
    output = truncate_middle(result.text, MAX_SHARED_CHARS)
    chat.tell_model(f"The user ran this command themselves:\n$ {command}\n{output}")


async def remember(chat: Chat, note: str) -> None:
    """`#note`: add a line to the instructions of this project, or to the user's own."""
    if not note:
        chat.say("#note remembers a note for later sessions, for example #use tabs")
        return
    root = chat.session.box.settings.root
    project = next((name for name in NOTE_FILES if os.path.isfile(os.path.join(root, name))), NOTE_FILES[0])
    own = _own_file(chat)
    choice = await chat.choose(
        "Where should this be remembered?",
        [note],
        [f"{project} (this project)", f"{own} (all your projects)", "nowhere"],
    )
    if choice not in (0, 1):
        chat.say("nothing was remembered", "dim")
        return
    path = os.path.join(root, project) if choice == 0 else str(own)
    before = await in_thread(_read, path)
    separator = "" if not before or before.endswith("\n") else "\n"
    if before:
        await chat.session.box.call("Read", {"file_path": path})
    result = await chat.call("Write", {"file_path": path, "content": f"{before}{separator}- {note}\n"})
    if not result.is_error:
        chat.tell_model(f"The user added this to {path}: {note}")


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except FileNotFoundError:
        return ""


def _own_file(chat: Chat) -> str:
    return str(config_home(chat.session.box.workspace.env) / NOTE_FILES[0])


def find_command(line: str) -> Command | None:
    """The command that a line calls, if any."""
    return COMMANDS.get(line.strip().partition(" ")[0]) if line.lstrip().startswith("/") else None


async def run_line(chat: Chat, line: str) -> None:
    """Handle a line of the person: a command, a shell command after `!`, a note after `#`, or a prompt."""
    text = line.strip()
    if text.startswith("!"):
        await shell(chat, text[1:].strip())
    elif text.startswith("#") and not text.startswith("##") and "\n" not in text:
        await remember(chat, text[1:].strip())
    elif text.startswith("/") and (name := text.split(maxsplit=1)[0]) and "/" not in name[1:]:
        rest = text[len(name) :].strip()
        command = find_command(name)
        if command is not None and rest in ("--help", "-h"):
            _explain(chat, name)
        elif command is not None and rest and not command.usage:
            chat.say(f"{name} takes no argument", "red")
        elif command is not None:
            await command.run(chat, rest)
        elif not await send_named_prompt(chat, name[1:], rest):
            _say_unknown(chat, name)
    elif text:
        await chat.send(line.strip("\n"))
