"""The nucleus of rows that fit the shared memory of their cluster, on the emulator: one reading.

A call that asks for the distribution takes the long way, which other tests hold against the oracle:
both ways give the same token and status.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from sampling_ways import both, padded, random

from gpukit import emulator

TWO = {"threads": 512, "cluster": 2, "held": 1}
NUCLEUS: dict[str, Any] = {"temperature": 0.8, "top_p": 0.9}


def test_one_reading_gives_the_token_of_the_long_way(monkeypatch: pytest.MonkeyPatch) -> None:
    x = random(2, 2404)[:, 1:]    # a row at an odd address: no bulk copies, all loads are counted
    x[1] = np.round(x[1] * 16) / 16
    x[1, 5::7] = np.nan
    read: list[int] = []
    run: Any = partial(emulator.run, policy="late", seed=5)

    def counted(*args: Any, **given: Any) -> Any:
        result = run(*args, **given)
        read.append(result.counters.global_loads.bytes)
        return result

    monkeypatch.setattr(emulator, "run", counted)
    both(x, TWO, **NUCLEUS)
    assert read[0] == x.nbytes < read[1]


@pytest.mark.slow
@pytest.mark.parametrize(("cluster", "dtype"), [(2, ml_dtypes.bfloat16), (4, np.float16),
                                                (8, np.float32)])
def test_shapes_of_clusters_types_and_odd_addresses(cluster: int, dtype: Any) -> None:
    x = random(2, 9003, 2).astype(dtype)
    both(padded(x), {**TWO, "cluster": cluster}, **NUCLEUS)
    both(x[:1, 1:], {**TWO, "cluster": cluster}, **NUCLEUS)


@pytest.mark.slow
def test_rows_and_settings_of_all_kinds() -> None:
    x = random(8, 6003, 1)
    x[0] = np.round(x[0])         # more ties than the list holds: the long way after all
    x[1, ::3] = -np.inf
    x[2, [701, 32]] = np.inf      # the first of them
    x[3] = -np.inf
    x[4] = 1.0
    x[5] = np.sort(x[5])          # all of the range in one CTA
    x[6, 2000] = 60.0             # one token has all
    x[7, 1:] = -np.inf
    for temperature, p in ((0.8, 0.0), (0.1, 0.5), (20.0, 0.99), (0.8, 0.99999)):
        both(padded(x), TWO, temperature=temperature, top_p=p)


@pytest.mark.slow
def test_a_bitmask() -> None:
    x = random(3, 6003, 3)
    mask = np.random.default_rng(4).integers(0, 2**32, (3, 188), dtype=np.uint32)
    mask[1] = 0
    mask[2] = 0
    mask[2, [31, 187]] = 1 << 18  # the last token, of no whole piece, too
    both(padded(x), TWO, bitmask=mask, **NUCLEUS)
