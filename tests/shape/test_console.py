"""Only `wieldy/console.py` writes to stdout and stderr, so nothing reaches a terminal without being escaped."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "wieldy"
MODULES = sorted(path for path in SOURCE.rglob("*.py") if "sample" not in path.parts and path.name != "console.py")
STREAMS = {"stdout", "stderr", "__stdout__", "__stderr__"}
HARMLESS = {"isatty", "fileno", "flush"}
PRINTERS = {"print", "input", "breakpoint", "print_formatted_text", "print_exc", "print_exception", "secho", "pprint"}


def violations(tree: ast.Module) -> list[str]:
    """Every place that could write to a terminal."""
    parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _name(node.func) in PRINTERS:
            found.append(f"line {node.lineno}: {_name(node.func)}()")
        elif isinstance(node, ast.Call) and _name(node.func) == "exit" and _writes_on_exit(node):
            found.append(f"line {node.lineno}: exit() with a text")
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("os.write", "os.fdopen", "open", "os.writev"):
            target = node.args[0] if node.args else None
            if isinstance(target, ast.Constant) and target.value in (1, 2, "/dev/tty"):
                found.append(f"line {node.lineno}: {ast.unparse(node)}")
        elif isinstance(node, ast.ImportFrom) and node.module == "sys" and {n.name for n in node.names} & STREAMS:
            found.append(f"line {node.lineno}: from sys import a stream")
        elif isinstance(node, ast.Attribute) and node.attr in STREAMS and ast.unparse(node.value) == "sys":
            parent = parents[node]
            is_harmless = isinstance(parent, ast.Attribute) and parent.attr in HARMLESS
            if not is_harmless and not isinstance(parent, ast.Compare):
                found.append(f"line {node.lineno}: {ast.unparse(parent)}")
    return found


def _name(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _writes_on_exit(node: ast.Call) -> bool:
    """`sys.exit("text")` prints the text."""
    return any(isinstance(value, ast.JoinedStr) or isinstance(getattr(value, "value", 0), str) for value in node.args)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_no_other_module_writes_to_a_terminal(path: Path) -> None:
    assert violations(ast.parse(path.read_text(encoding="utf-8"))) == []


@pytest.mark.parametrize(
    "code",
    [
        "print('x')",
        "input('x')",
        "sys.stdout.write('x')",
        "sys.stderr.buffer.write(b'x')",
        "out = sys.stdout",
        "json.dump(x, sys.stdout)",
        "sys.__stderr__.write('x')",
        "from sys import stdout",
        "os.write(1, b'x')",
        "os.fdopen(2, 'w')",
        "open('/dev/tty', 'w')",
        "sys.exit('x')",
        "traceback.print_exc()",
    ],
)
def test_the_check_sees_every_way_to_write(code: str) -> None:
    assert violations(ast.parse(code))


@pytest.mark.parametrize("code", ["sys.stdout.isatty()", "sys.exit(2)", "os.write(fd, b'x')", "file is sys.stdout"])
def test_the_check_accepts_what_writes_nothing(code: str) -> None:
    assert not violations(ast.parse(code))
