"""What holds for every test."""

from __future__ import annotations

import signal

# Tests may be run behind `nohup` or `&`, which have signals ignored; what tests start must hear them all the same.
for _number, _usual in (
    (signal.SIGINT, signal.default_int_handler),
    (signal.SIGQUIT, signal.SIG_DFL),
    (signal.SIGHUP, signal.SIG_DFL),
):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, _usual)
