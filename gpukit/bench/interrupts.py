"""Ctrl-C at the right moment: never between a row's two halves, never into a starting worker."""

from __future__ import annotations

import contextlib
import signal
import threading
from multiprocessing import resource_tracker
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextlib.contextmanager
def held() -> Iterator[None]:
    """Put Ctrl-C off until the block is done. Only the main thread is ever interrupted, so that
    elsewhere this does nothing."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    caught: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: caught.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before or signal.SIG_DFL)
    if caught:
        signal.raise_signal(signal.SIGINT)


@contextlib.contextmanager
def blocked() -> Iterator[None]:
    """Block Ctrl-C while `multiprocessing` starts a process: the child inherits the mask, so that
    it is never interrupted before it can ignore the signal; the parent sees it on leaving."""
    resource_tracker.ensure_running()  # starting it later would unblock the signal again
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def ignore() -> None:
    """Ignore Ctrl-C from now on, in a process started under `blocked`."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
