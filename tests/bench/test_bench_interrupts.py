"""Ctrl-C is put off, never lost."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator

import pytest

from gpukit.bench import interrupts


@pytest.fixture(autouse=True)
def python_handles_interrupts() -> Iterator[None]:
    """As in a shell's foreground; what a shell starts in the background ignores them."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_a_held_interrupt_comes_after_the_block():
    done = []
    with pytest.raises(KeyboardInterrupt), interrupts.held():
        signal.raise_signal(signal.SIGINT)
        done.append("all of it")
    assert done == ["all of it"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_nothing_happens_without_an_interrupt():
    with interrupts.held():
        pass
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_error_in_the_block_passes():
    with pytest.raises(ValueError, match="own"), interrupts.held():
        raise ValueError("own")
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_other_threads_are_left_alone():
    ran = []

    def body() -> None:
        with interrupts.held():
            ran.append(True)

    thread = threading.Thread(target=body)
    thread.start()
    thread.join()
    assert ran == [True]


def test_a_blocked_interrupt_arrives_on_leaving():
    reached = []
    with pytest.raises(KeyboardInterrupt), interrupts.blocked():
        signal.raise_signal(signal.SIGINT)
        reached.append(True)
    assert reached == [True]
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, set())
