"""Run every bench (or those named) and print each claim; exit 1 when one does not hold."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path


def main(names: list[str]) -> int:
    here = Path(__file__).parent
    found = sorted(p.stem for p in here.glob("*.py") if p.stem not in {"__main__", "__init__", "claim"})
    unknown = sorted(set(names) - set(found))
    if unknown:
        print(f"no such bench: {', '.join(unknown)}; there are: {', '.join(found)}", file=sys.stderr)
        return 2
    missed = 0
    for name in names or found:
        print(f"\n{name}", flush=True)
        for claim in importlib.import_module(f"bench.{name}").claims():
            print(f"  {claim}", flush=True)
            missed += not claim.holds
    print(f"\n{missed} claim(s) missed" if missed else "\nevery claim holds")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
