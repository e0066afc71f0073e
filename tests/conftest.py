"""What holds for every test."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections import Counter
from typing import Any

import hypothesis
import pytest
from tests.needs import MARK

# Tests time nothing: a busy machine is no failure.
hypothesis.settings.register_profile("untimed", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.load_profile("untimed")

# The language of the locale decides between encodings that fit: the same one on every machine.
for _variable in ("LC_ALL", "LC_CTYPE"):
    os.environ.pop(_variable, None)
os.environ["LANG"] = "C.UTF-8"

# Some commands in tests call `python3`; a machine may have Python under another name only.
if shutil.which("python3") is None:
    os.environ["PATH"] = os.pathsep.join([os.environ.get("PATH", os.defpath), os.path.dirname(sys.executable)])

# Tests may run behind `nohup` or `&`, which ignore signals; processes that tests start must receive them all the same.
for _number, _usual in (
    (signal.SIGINT, signal.default_int_handler),
    (signal.SIGQUIT, signal.SIG_DFL),
    (signal.SIGHUP, signal.SIG_DFL),
):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, _usual)


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: Any) -> None:
    """List what could not be tested on this machine, loudly, once."""
    reasons: Counter[str] = Counter()
    for report in terminalreporter.stats.get("skipped", []):
        reason = report.longrepr[2].removeprefix("Skipped: ") if isinstance(report.longrepr, tuple) else ""
        if reason.startswith(MARK):
            reasons[reason.removeprefix(MARK)] += 1
    if reasons:
        terminalreporter.section("NOT TESTED ON THIS MACHINE", sep="!", red=True, bold=True)
        for reason, count in sorted(reasons.items()):
            terminalreporter.line(f"{count} test(s): {reason}")


if os.environ.get("WIELDY_TEST_LOOP") == "uvloop":  # set by tests/process/test_uvloop.py

    def pytest_asyncio_loop_factories(config: Any, item: Any) -> dict[str, Any]:
        """Run every asynchronous test on uvloop."""
        import uvloop

        return {"uvloop": uvloop.new_event_loop}
