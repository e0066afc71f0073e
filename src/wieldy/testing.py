"""For the tests of programs that use wieldy: a scripted model, recording a session as one, and checks for a backend."""

from wieldy.agent.export import record_script as record
from wieldy.models.script import Script
from wieldy.shell.backends.checks import BACKEND_CHECKS, BackendCheck

__all__ = ["BACKEND_CHECKS", "BackendCheck", "Script", "record"]
