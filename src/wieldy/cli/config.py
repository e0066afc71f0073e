"""`wieldy config`: the settings in force, and the file and line of each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wieldy.cli.arguments import add_root, command_parser, print_settings_problems
from wieldy.core.console import encode_json, write, write_error, write_json
from wieldy.core.text import truncate_line
from wieldy.engine.toolbox import Toolbox
from wieldy.policy.settings.store import settings_files

EXAMPLES = """examples:
  wieldy config                     what is set here, and where
  wieldy config --json              names, values and files as JSON

Values of `env`, `mcpServers` and `hooks` may be secrets: only their names are shown."""

NAMES_ONLY = frozenset({"env", "mcpServers", "hooks"})


def main(command: str, argv: list[str]) -> int:
    parser = command_parser("wieldy config", "Show the settings in force in a folder, and where they are.", EXAMPLES)
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_root(parser, "the folder")
    options = parser.parse_args(argv)
    box = Toolbox(options.root, load_settings=True)
    print_settings_problems(box)
    settings = box.settings
    rows = {name: (_shown(name, value), str(settings.origin(name) or "")) for name, value in settings.values.items()}
    if options.json:
        write_json({name: {"value": value, "from": origin} for name, (value, origin) in rows.items()})
        return 0
    for name, (value, origin) in rows.items():
        write(f"{name} = {truncate_line(encode_json(value), 120)}" + (f"   ({origin})" if origin else ""))
    for layer, file in settings_files(options.root).items():
        write_error(f"{layer} settings: {file}" + ("" if file.exists() else " (not there yet)"))
    return 0


def _shown(name: str, value: Any) -> Any:
    return list(value) if name in NAMES_ONLY and isinstance(value, Mapping) else value
