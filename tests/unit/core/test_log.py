"""Loggers that load `logging` with the first word: what is said arrives as it would from the real one."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path

from wieldy.core.logs import Logger, log

SRC = Path(__file__).parents[3] / "src"


def ran(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-S", "-c", f"import sys; sys.path.insert(0, {str(SRC)!r}); {code}"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )


def test_what_is_said_is_heard_with_the_place_it_was_said_at(caplog):
    with caplog.at_level(logging.DEBUG, "wieldy"):
        log.warning("about %s", "this")
        log.debug("and that")
    assert [(one.name, one.levelname, one.getMessage()) for one in caplog.records] == [
        ("wieldy", "WARNING", "about this"),
        ("wieldy", "DEBUG", "and that"),
    ]
    assert caplog.records[0].filename == "test_log.py"


def test_nothing_is_loaded_until_something_is_said_aloud():
    done = ran(
        "from wieldy.core.logs import log; log.debug('a'); print('logging' in sys.modules);"
        "log.error('b'); print('logging' in sys.modules)"
    )
    assert (done.stdout.split(), done.stderr) == (["False", "True"], "")


def test_a_logger_that_is_not_quiet_speaks_to_stderr_where_nobody_has_set_up_logging():
    done = ran("from wieldy.core.logs import Logger; Logger('asyncio').error('lost')")
    assert done.stderr == "lost\n"


def test_whoever_has_set_up_a_handler_gets_no_second_one():
    logger = logging.getLogger("wieldy.test_log")
    logger.addHandler(handler := logging.NullHandler())
    assert Logger("wieldy.test_log", quiet=True).level == logger.level
    assert logger.handlers == [handler]
