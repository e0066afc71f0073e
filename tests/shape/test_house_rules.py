"""Rules of AGENTS.md that can be read from the source."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "wieldy"
MODULES = sorted(path for path in SOURCE.rglob("*.py") if "sample" not in path.parts)


def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def test_no_process_is_started_in_a_way_that_turns_vfork_off():
    for path in MODULES:
        assert "preexec_fn" not in path.read_text(encoding="utf-8"), path


def test_every_tool_has_its_prompt_beside_it():
    shared = {"__init__", "skills", "subagent_copies", "subagents", "toolset"}
    modules = {path.stem for path in (SOURCE / "tools").glob("*.py")} - shared
    assert modules == {path.stem for path in (SOURCE / "tools").glob("*.md")}


def test_no_public_class_name_is_defined_twice():
    places: dict[str, list[str]] = defaultdict(list)
    for path in MODULES:
        for node in parsed(path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(str(path.relative_to(SOURCE)))
    assert {name: where for name, where in places.items() if len(where) > 1} == {}


def test_threads_are_made_in_one_place():
    """Others are one for a connection, or they are in processes of their own."""
    others = {
        "shell/backends/channel.py",
        "shell/backends/checks.py",
        "shell/sandbox/bridge.py",
    }
    makers = {str(path.relative_to(SOURCE)) for path in MODULES if makes_threads(parsed(path))}
    assert makers - others == {"core/threads.py"}
    assert others <= makers


def makes_threads(module: ast.Module) -> bool:
    calls = [node.func for node in ast.walk(module) if isinstance(node, ast.Call)]
    names = {getattr(call, "attr", getattr(call, "id", "")) for call in calls}
    return not names.isdisjoint({"Thread", "ThreadPoolExecutor", "to_thread", "run_in_executor"})


def test_our_own_python_is_started_in_one_place():
    """Started otherwise it could import modules from a project, with our environment. The others only name its path."""
    others = {
        "__main__.py",  # itself again, in UTF-8 mode
        "cli/doctor.py",
        "faces/terminal/demo/__init__.py",
        "files/search/ripgrep.py",
        "shell/diagnostics/checkers.py",
    }
    users = {
        str(path.relative_to(SOURCE))
        for path in MODULES
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Attribute) and node.attr == "executable" and getattr(node.value, "id", "") == "sys"
    }
    assert users == {"core/programs.py", *others}
    for path in MODULES:
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.List | ast.Tuple | ast.Call):
                items = node.args if isinstance(node, ast.Call) else node.elts
                words = [ast.unparse(item) for item in items]
                assert ["sys.executable", "'-m'"] not in [words[at : at + 2] for at in range(len(words))], path


READERS_OF_OTHER_FILES = {
    "core/project_text.py": "the bounded reader itself",
    "core/active_commands.py": "only compared; opened without waiting, and bounded",
    **dict.fromkeys(("core/realpath.py", "core/state_dirs.py"), "opens for callers"),
    "core/console.py": "the standard streams",
    "core/tool_decorator.py": "our own tool descriptions",
    **dict.fromkeys(
        (
            *("agent/transcript.py", "core/session_files.py", "engine/mcp_tools.py", "faces/batch/report.py"),
            *("faces/batch/store.py", "faces/batch/workers.py", "faces/batch/remote.py", "faces/batch/ray_engine.py"),
            *("faces/adapters/harbor.py", "faces/terminal/demo/__init__.py"),
            *("files/journal/command_snapshots.py", "files/journal/snapshot_contents.py", "files/journal/store.py"),
            *("files/working_copies.py", "files/writing/locked_update.py", "files/writing/disk.py"),
            *("policy/permissions/protected_watch.py", "shell/backends/overlay.py", "shell/running/shell.py"),
            "shell/running/output.py",
        ),
        "our own files",
    ),
    **dict.fromkeys(
        (
            *("cli/arguments.py", "cli/permissions.py", "cli/run.py", "faces/batch/isolation.py", "models/script.py"),
            *("faces/batch/tasks.py", "faces/terminal/commands.py", "shell/sandbox/policy.py"),
        ),
        "files that the person names, or of the person",
    ),
    **dict.fromkeys(
        (
            *("files/editing/read_state.py", "files/editing/search_replace.py", "files/writing/commit.py"),
            *("files/writing/writers.py", "shell/backends/checks.py", "shell/diagnostics/review.py"),
        ),
        "files that a call names",
    ),
    "files/journal/tree_manifest.py": "folders, /proc, our own records",
    "files/search/ripgrep.py": "a pipe",
    "policy/permissions/protected_scan.py": "only compared; opened without waiting, and bounded",
    "shell/running/process_tag.py": "/proc",
    "shell/running/reaper.py": "/proc",
    "shell/sandbox/kernel.py": "opens no content",
    "tools/skills.py": "bounded, opened without symlinks and without waiting",
}
_READERS = {"read_text", "read_bytes", "fdopen", "mmap", "FileIO", "ZipFile"}


def readers_of_other_files(module: ast.Module) -> list[str]:
    """The calls that open a file to read it, but by the bounded reader; what is only written or is no file is not among them."""
    found = []
    for node in ast.walk(module):
        if not isinstance(node, ast.Call):
            continue
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        owner = ast.unparse(node.func.value) if isinstance(node.func, ast.Attribute) else ""
        source = ast.unparse(node)
        words = [
            arg.value for arg in (*node.args, *(word.value for word in node.keywords)) if isinstance(arg, ast.Constant)
        ]
        is_path_open = " / " in owner or any(isinstance(word, str) and set(word) <= set("rwxabt+") for word in words)
        opens = name == "open" and (not owner or owner in ("os", "io", "gzip", "tarfile") or is_path_open)
        only_writes = any(isinstance(word, str) and re.fullmatch("[wxa][bt]?", word) for word in words) or (
            owner == "os" and any(flag in source for flag in ("O_WRONLY", "devnull", "/dev/null"))
        )
        is_bounded = "files" in owner or "open_regular" in source or owner == "super()"
        if (name in _READERS or opens) and not only_writes and not is_bounded:
            found.append(source)
    return found


PLANTED = (
    "Path(root, '.editorconfig').read_text()",
    "open(path)",
    "open(path, encoding='utf-8')",
    "(root / 'x').open()",
    "Path(root).open('rb')",
    "os.open(path, os.O_RDONLY)",
    "os.fdopen(descriptor)",
    "io.open(path)",
    "mmap.mmap(fd, 0)",
)


def test_text_that_a_project_supplies_is_read_by_one_reader():
    """A module that reads files otherwise says here why what it reads is no text that a project supplies."""
    for planted in PLANTED:
        assert readers_of_other_files(ast.parse(planted)), planted
    assert not readers_of_other_files(ast.parse("files.read_text(path)\nopen(path, 'wb')\nread_project_text(path)"))
    others = {str(path.relative_to(SOURCE)) for path in MODULES if readers_of_other_files(parsed(path))}
    assert others <= READERS_OF_OTHER_FILES.keys(), "use core/project_text.py, or say above why not"
    assert READERS_OF_OTHER_FILES.keys() <= others, "these read nothing any more"


MAKERS_OF_OTHER_FOLDERS = {
    "core/state_dirs.py": "the function itself",
    "core/realpath.py": "folders of the project that a call writes to",
    "files/writing/": "the same",
    "files/working_copies.py": "in the private folder of copies and journals, as git makes them",
    "faces/batch/": "in the private folders of a run and its copies",
    "faces/batch/remote.py": "an object store",
    "policy/permissions/protected_watch.py": "what a command removed of the project",
    "policy/settings/store.py": "`info` of a repository",
    "shell/backends/overlay.py": "in the private folder of an overlay",
    "shell/diagnostics/review.py": "the cache, below a private folder",
    "shell/sandbox/sandbox.py": "in the temporary folder of a trial",
    "shell/sandbox/policy.py": "in a shared folder of a repository",
    "engine/results.py": "below a private folder",
    "agent/export.py": "below a folder that the person names",
}


def test_folders_for_our_own_files_are_made_in_one_place():
    """Made otherwise they would be as open as the umask is, or those above them. A module that does says here why."""
    makers = {
        str(path.relative_to(SOURCE))
        for path in MODULES
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") in ("mkdir", "makedirs")
    }
    unknown = {path for path in makers if not any(path.startswith(known) for known in MAKERS_OF_OTHER_FOLDERS)}
    assert not unknown, "use make_private_folder or make_folders of core/state_dirs.py, or say above why not"
    assert all(any(path.startswith(known) for path in makers) for known in MAKERS_OF_OTHER_FOLDERS)


def test_programs_that_we_run_are_found_in_one_place():
    """Found otherwise, one that a project has put on PATH would run. The others look, and run nothing of what they find."""
    others = {
        "faces/terminal/demo/__init__.py",
        "policy/hooks/lint.py",
        "files/search/ripgrep.py",
        "shell/running/neutral_python.py",
    }
    users = {
        str(path.relative_to(SOURCE))
        for path in MODULES
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Attribute) and node.attr == "which" and getattr(node.value, "id", "") == "shutil"
    }
    assert users == others
    for path in MODULES:
        for node in ast.walk(parsed(path)):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or not node.args:
                continue
            if getattr(node.func.value, "id", "") in ("subprocess", "asyncio", "os"):
                first = node.args[0]
                first = first.elts[0] if isinstance(first, ast.List | ast.Tuple) and first.elts else first
                starts = node.func.attr in (
                    "run",
                    "Popen",
                    "check_output",
                    "create_subprocess_exec",
                    "posix_spawnp",
                    "execvp",
                )
                is_bare = isinstance(first, ast.Constant) and isinstance(first.value, str) and "/" not in first.value
                assert not (starts and is_bare), f"{path}:{node.lineno} runs {ast.unparse(first)}"


def test_similar_names_are_found_in_one_place():
    """Comparing lines of files, and ranking paths, is another matter than finding the name that was meant."""
    others = {"files/editing/matching.py", "files/search/format.py", "faces/terminal/input.py"}
    users = {
        str(path.relative_to(SOURCE))
        for path in MODULES
        for node in ast.walk(parsed(path))
        if (isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "rapidfuzz")
        or (isinstance(node, ast.alias) and node.name in ("rapidfuzz", "get_close_matches"))
        or (isinstance(node, ast.Attribute) and node.attr == "get_close_matches")
    }
    assert users == {"core/text.py", *others}


def test_git_is_prepared_and_started_in_one_place():
    """The environment of commands of the model, and of our copies, is theirs: it only adds to that."""
    for path in MODULES:
        if path != SOURCE / "core" / "git.py":
            text = path.read_text(encoding="utf-8")
            assert 'own_program("git"' not in text, path
            assert not any(name in text for name in ("GIT_OPTIONAL_LOCKS", "GIT_ALLOW_PROTOCOL", "GIT_NO_")), path
