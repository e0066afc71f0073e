"""Inspect: wieldy as an agent of `inspect_ai`. It runs in the sandbox of a sample; its requests go to Inspect's model.

Inspect's bridge in the sandbox speaks the API of Anthropic, so limits, logs and retries of model calls are Inspect's own.
"""

from __future__ import annotations

from collections.abc import Sequence

from inspect_ai.agent import Agent, AgentState, agent, sandbox_agent_bridge
from inspect_ai.model import ChatMessageUser
from inspect_ai.util import sandbox as sandbox_environment

DONE_CODES = (0, 3, 4)  # done, a call was denied, a limit was reached


class WieldyFailed(RuntimeError):
    """wieldy could not run in the sandbox."""


@agent  # type: ignore[untyped-decorator]
def wieldy(  # noqa: PLR0913 - every option is a keyword with a default
    *,
    command: Sequence[str] = ("wieldy",),
    mode: str = "bypassPermissions",
    max_turns: int | None = None,
    allowed_tools: Sequence[str] = (),
    model: str | None = None,
    sandbox: str | None = None,
    user: str | None = None,
    cwd: str | None = None,
    port: int = 13131,
) -> Agent:
    """Run `wieldy -p` in the sandbox of a sample. `command` starts wieldy there, which must be installed in its image."""

    async def execute(state: AgentState) -> AgentState:
        async with sandbox_agent_bridge(state, model=model, sandbox=sandbox, port=port) as bridge:
            words = [*command, "-p", "--model", "anthropic/inspect", "--permission-mode", mode]
            words += ["--max-turns", str(max_turns)] if max_turns else []
            words += ["--allowed-tools", *allowed_tools] if allowed_tools else []
            prompt = "\n\n".join(message.text for message in state.messages if isinstance(message, ChatMessageUser))
            address = {"ANTHROPIC_BASE_URL": f"http://localhost:{bridge.port}", "ANTHROPIC_API_KEY": "inspect"}
            done = await sandbox_environment(sandbox).exec(words, input=prompt, env=address, user=user, cwd=cwd)
            if done.returncode not in DONE_CODES:
                raise WieldyFailed(f"wieldy ended with exit code {done.returncode}: {done.stderr.strip()[-500:]}")
            return bridge.state

    return execute
