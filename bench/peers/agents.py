"""The agents that are measured: how each is told of the model, started, and what it calls its tools."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from bench.peers.npm import Package
from bench.peers.script import Call, Tool
from bench.peers.wires import Wire

HERE = Path(__file__).parent
PROMPT = "Do what the script says."
CODEX = Package("codex", "@openai/codex", "0.169.0")
PI = Package("pi", "@earendil-works/pi-coding-agent", "0.87.1", node=22)


@dataclass(frozen=True, slots=True)
class Place:
    """Where an agent runs: a home that is its own, the project, the address of the model."""

    home: Path
    project: Path
    url: str

    @property
    def port(self) -> str:
        """The model's port."""
        return self.url.rpartition(":")[2]


def nothing(place: Place) -> None:
    """An agent that needs no files of its own."""


@dataclass(frozen=True, slots=True)
class Agent:
    """One agent. `tools` gives its name for a tool and for that tool's argument; an argument may be a template."""

    name: str
    wire: Wire
    command: Callable[[Place], list[str]]
    tools: Mapping[Tool, tuple[str, str, str]]
    prepare: Callable[[Place], None] = nothing
    variables: Callable[[Place], Mapping[str, str]] = field(default=lambda place: {})
    package: Package | None = None

    def named(self, call: Call) -> tuple[str, dict[str, str]]:
        """A call in this agent's words."""
        name, argument, template = self.tools[call.tool]
        return name, {argument: template.format(call.argument)}

    def environment(self, place: Place) -> dict[str, str]:
        """A bare environment: nothing of ours, no telemetry, no updates."""
        node = self.package.node_folder() if self.package else None
        path = os.pathsep.join([str(node), os.environ["PATH"]] if node else [os.environ["PATH"]])
        plain = {"HOME": str(place.home), "PATH": path, "LANG": "C.UTF-8", "TERM": "dumb", "SHELL": "/bin/bash"}
        quiet = {"DO_NOT_TRACK": "1", "DISABLE_TELEMETRY": "1", "NO_UPDATE_NOTIFIER": "1", "NO_PROXY": "127.0.0.1"}
        return {**plain, **quiet, "MODEL_KEY": "none", **self.variables(place)}


def wieldy(wire: Wire) -> Agent:
    """wieldy over one of its two wires."""
    provider, name = {"messages": ("anthropic", "wieldy"), "chat": ("openai", "wieldy (chat)")}[wire]
    path = {"messages": "", "chat": "/v1"}[wire]

    def command(place: Place) -> list[str]:
        model = ["--model", f"{provider}/m", "--base-url", f"{place.url}{path}"]
        return [
            str(Path(sys.executable).parent / "wieldy"),
            "-p",
            PROMPT,
            "--permission-mode",
            "bypassPermissions",
            *model,
        ]

    return Agent(
        name,
        wire,
        command,
        {"read": ("Read", "file_path", "{}"), "shell": ("Bash", "command", "{}")},
        variables=lambda place: {"ANTHROPIC_API_KEY": "none", "OPENAI_API_KEY": "none"},
    )


FLOOR = Agent(
    "bare loop",
    "messages",
    lambda place: [sys.executable, "-I", "-S", str(HERE / "floor.py"), place.port, PROMPT],
    {"read": ("read", "path", "{}"), "shell": ("shell", "command", "{}")},
)


def _codex_settings(place: Place) -> None:
    settings = f"""
model = "m"
model_provider = "script"
model_context_window = 100000000
model_auto_compact_token_limit = 90000000
approval_policy = "never"
sandbox_mode = "danger-full-access"
check_for_update_on_startup = false
web_search = "disabled"
analytics.enabled = false
feedback.enabled = false

[model_providers.script]
name = "script"
base_url = "{place.url}/v1"
wire_api = "responses"
env_key = "MODEL_KEY"
request_max_retries = 0
stream_max_retries = 0
"""
    folder = place.home / ".codex"
    folder.mkdir(exist_ok=True)
    (folder / "config.toml").write_text(settings)


def _codex_command(place: Place) -> list[str]:
    # Plugins and apps are synchronised at start-up: without a network that alone would take five seconds.
    less = ["--disable", "plugins", "--disable", "apps", "--skip-git-repo-check"]
    return [
        CODEX.program,
        "exec",
        "--dangerously-bypass-approvals-and-sandbox",
        *less,
        "-C",
        str(place.project),
        PROMPT,
    ]


def _pi_settings(place: Place) -> None:
    folder = place.home / ".pi" / "agent"
    folder.mkdir(parents=True, exist_ok=True)
    model = {"id": "m", "contextWindow": 100_000_000, "maxTokens": 8192, "input": ["text"]}
    provider = {"baseUrl": place.url, "api": "anthropic-messages", "apiKey": "none", "models": [model]}
    (folder / "models.json").write_text(json.dumps({"providers": {"script": provider}}))
    chosen = {"defaultProvider": "script", "defaultModel": "m", "quietStartup": True}
    quiet = {"enableInstallTelemetry": False, "compaction": {"enabled": False}}
    (folder / "settings.json").write_text(json.dumps({**chosen, **quiet}))


PEERS = (
    Agent(
        "Codex CLI",
        "responses",
        _codex_command,
        {"read": ("exec_command", "cmd", "cat {}"), "shell": ("exec_command", "cmd", "{}")},
        _codex_settings,
        package=CODEX,
    ),
    Agent(
        "pi",
        "messages",
        lambda place: [PI.program, "--offline", "--provider", "script", "--model", "m", "-p", PROMPT],
        {"read": ("read", "path", "{}"), "shell": ("bash", "command", "{}")},
        _pi_settings,
        lambda place: {"PI_OFFLINE": "1", "PI_TELEMETRY": "0", "PI_SKIP_VERSION_CHECK": "1"},
        PI,
    ),
)
