"""Fixtures of the emulator's tests."""

from __future__ import annotations

import numpy as np
import pytest


@pytest.fixture
def rng():
    return np.random.default_rng(20240607)


@pytest.fixture(autouse=True)
def _quiet_numpy():
    """The references compute with NaN and infinity on purpose."""
    with np.errstate(all="ignore"):
        yield
