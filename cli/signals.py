"""Ctrl-C pressed more than once."""

from __future__ import annotations

import signal
import threading
import time

#: For so many seconds after one Ctrl-C others are ignored: it is being obeyed.
PATIENCE_S = 2.0


def ignore_bursts() -> None:
    """From now on, let a burst of Ctrl-C interrupt once, so that it is cleaned up after in peace.

    Until the process ends: the burst may outlast the command.
    """
    if threading.current_thread() is not threading.main_thread():
        return
    last = -PATIENCE_S

    def interrupt(number: int, frame: object) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= PATIENCE_S:
            last = now
            raise KeyboardInterrupt

    signal.signal(signal.SIGINT, interrupt)


def ignore() -> None:
    """Ignore Ctrl-C for good; leaving Python would otherwise let the rest of a burst kill it."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.SIG_IGN)
