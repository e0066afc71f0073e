"""What is loaded when: declaring and plain inputs cost nothing heavy, accepting what fits needs no schema checker."""

import subprocess
import sys

PROGRAM = """
import sys
from wieldy.schema.parameters import Parameters
def add(a: int, b: int = 0, tags: list[str] | None = None): ...
parameters = Parameters.from_function(add)
print("msgspec" in sys.modules, "jsonschema_rs" in sys.modules)
parameters.accept({"a": 1})
print("msgspec" in sys.modules, "jsonschema_rs" in sys.modules)
parameters.accept({"a": 1, "tags": ["b"]})
print("msgspec" in sys.modules, "jsonschema_rs" in sys.modules)
try:
    parameters.accept({"a": "x"})
except Exception:
    print("msgspec" in sys.modules, "jsonschema_rs" in sys.modules, "pydantic" in sys.modules)
"""


def test_libraries_are_loaded_at_first_use():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.splitlines() == ["False False", "False False", "True False", "True True False"]
