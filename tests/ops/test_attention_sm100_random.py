"""Random problems for what gpukit.attention takes on Blackwell, against the oracle."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from test_attention_random import check, problems

from gpukit.devices import emulated


@pytest.mark.slow
@settings(max_examples=60, deadline=None,
          suppress_health_check=[HealthCheck.too_slow])
@given(problems(300))
def test_emulated(p: dict[str, Any]) -> None:
    emulated.get("b200").use()
    try:
        check(p, None, lambda x: x, lambda x: x)
    finally:
        emulated.get().use()
