"""The recording device, put in the place of the GPU."""

from __future__ import annotations

import pytest
from fake_device import FakeDevice, adopt

from gpukit import devices


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeDevice:
    """A compute capability 9.0 device that the ops take FakeArrays to live on."""
    monkeypatch.setattr(devices, "adopt", adopt)
    return FakeDevice()
