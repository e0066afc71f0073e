"""Confines a process and its children with Landlock, as a sandbox policy says."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator

from wieldy.core.console import print_error
from wieldy.shell.sandbox import kernel
from wieldy.shell.sandbox.policy import SandboxPolicy

DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/shm", "/dev/ptmx", "/dev/pts")

START_CODE = "from wieldy.shell.sandbox.landlock import main; main(*sys.argv[1:])"


def restrict(policy: SandboxPolicy) -> None:
    """Confine this process irrevocably. Raises OSError if the kernel refuses."""
    version = kernel.abi()
    if not version:
        raise OSError(38, "this kernel has no Landlock")
    writes = kernel.write_rights(version)
    reads = kernel.READ_FILE if policy.unreadable or policy.home else 0
    network = kernel.TCP if version >= 4 and not policy.network else 0
    ruleset = kernel.create_ruleset(version, writes | reads, network, kernel.SCOPES)
    for path in (*policy.writable, *policy.temporary, *DEVICES):
        kernel.grant(ruleset, path, writes | reads)
    hidden = (*policy.unreadable, *([policy.home] if policy.home else []))
    for path in readable_paths(hidden) if reads else ():
        kernel.grant(ruleset, path, reads)
    for path in (*policy.shown, *policy.readable) if policy.home else ():
        for part in _readable_parts(path, policy.unreadable):
            kernel.grant(ruleset, part, reads)
    if network and policy.proxy_port is not None:
        kernel.grant_port(ruleset, policy.proxy_port)
    kernel.gain_no_privileges()
    kernel.restrict(ruleset)
    os.close(ruleset)


def readable_paths(unreadable: Iterable[str]) -> Iterator[str]:
    """Everything but the unreadable paths. Landlock can only allow, so this lists the siblings along the way to each."""
    forbidden = kernel.outermost(os.path.realpath(path) for path in unreadable if os.path.lexists(path))
    return kernel.readable_entries(forbidden, kernel.folders_above(forbidden))


def _readable_parts(path: str, unreadable: Iterable[str]) -> Iterator[str]:
    """A real path, or what is in it beside the unreadable paths."""
    forbidden = kernel.outermost(os.path.realpath(each) for each in unreadable if os.path.lexists(each))
    if any(f"{path}/".startswith(f"{each}/") for each in forbidden):
        return
    inside = [each for each in forbidden if each.startswith(f"{path}/")]
    if not inside:
        yield path
        return
    folders = [folder for folder in kernel.folders_above(inside) if f"{folder}/".startswith(f"{path}/")]
    yield from kernel.readable_entries(inside, folders)


def main(policy: str, program: str, *arguments: str) -> None:
    """Confine this process, then exec the program. Exit code 125 means that it could not."""
    try:
        restrict(SandboxPolicy.from_json(policy))
    except OSError as problem:
        print_error(f"the sandbox could not be set up: {problem.strerror}")
        sys.exit(125)
    os.execv(program, [program, *arguments])
