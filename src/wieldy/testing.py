"""Test doubles for programs that use wieldy: a scripted model, and recording a session as one."""

from wieldy.agent.recording import record_script as record
from wieldy.providers.script import Script

__all__ = ["Script", "record"]
