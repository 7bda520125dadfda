"""The ladder of a Hopper or Blackwell GPU on it: any shape, every rung, launch after launch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpukit import dtypes
from gpukit.devices import cuda
from gpukit.devices.cuda import CudaDevice
from gpukit.ops import matmul_sm90, matmul_sm100
from gpukit.reference import matmul as ref
from gpukit.reference.tolerance import scaled_error

pytestmark = pytest.mark.gpu

LAUNCH = {(9, 0): matmul_sm90.launch, (10, 0): matmul_sm100.launch}
CLUSTERS = {(9, 0): (1, 2), (10, 0): (2, 4)}
RUNGS = range(2, 9)
CHECKED_ROWS = 64
GUARD = 8  # rows before and after C that nobody may touch
TYPES = (("bf16", "bf16"), ("bf16", "f32"), ("f16", "f16"), ("f16", "f32"))
DRAWN = settings(max_examples=25, deadline=None,
                 suppress_health_check=[HealthCheck.function_scoped_fixture])

each_rung = pytest.mark.parametrize("rung", RUNGS)


@pytest.fixture
def device() -> CudaDevice:
    found = cuda.get(0)
    if found.properties.capability not in LAUNCH:
        pytest.skip("needs a GPU of compute capability 9.0 or 10.0")
    return found


def normal(shape: tuple[int, int], dtype: dtypes.DType, seed: int) -> np.ndarray:
    """Normal values in rows that end in NaN beyond the matrix and start 16-byte aligned."""
    rows, columns = shape
    wide = np.full((rows, -(-columns // 8) * 8 + 8), np.nan, dtype.numpy)
    wide[:, :columns] = np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)
    return wide


def check(rung: int, device: CudaDevice, m: int, n: int, k: int, types: tuple[str, str], *,
          repeats: int = 3, **options: Any) -> None:
    """Every launch gives the same bits, a sample of rows is right, and the guards still stand."""
    import cupy

    dtype, out = map(dtypes.parse, types)
    a, w = normal((m, k), dtype, m + k), normal((n, k), dtype, n + k + 1)
    on_gpu = cupy.asarray(a)[:, :k], cupy.asarray(w)[:, :k].T
    poison = np.full((m + 2 * GUARD, n), np.nan, out.numpy)
    results = [cupy.asarray(poison) for _ in range(repeats)]
    launch: Any = LAUNCH[device.properties.capability]
    for c in results:
        launch(rung, device, *on_gpu, c[GUARD:-GUARD], **options)
    bits = [c.view(f"u{out.itemsize}") for c in results]
    assert all(bool((other == bits[0]).all()) for other in bits)
    got = cupy.asnumpy(results[0]).astype(np.float32)
    assert np.isnan(got[:GUARD]).all() and np.isnan(got[-GUARD:]).all()
    got = got[GUARD:-GUARD]
    assert not np.isnan(got).any()
    rows = np.unique(np.concatenate([
        [0, m - 1], np.random.default_rng(m).integers(0, m, CHECKED_ROWS)]))
    left, right = a[rows, :k], w[:, :k].T
    assert scaled_error(got[rows].astype(np.float64), ref.oracle(left, right),
                        ref.bound(left, right, out)) <= 1


@each_rung
@pytest.mark.parametrize("types", TYPES, ids="-".join)
def test_types(rung: int, types: tuple[str, str], device: CudaDevice) -> None:
    check(rung, device, 700, 1000, 520, types)


@each_rung
@pytest.mark.parametrize("shape", [(1, 8, 8), (4096, 4096, 4096), (8200, 1032, 2056),
                                   (128, 4096, 16384), (4096, 14336, 256)], ids=str)
def test_shapes(rung: int, shape: tuple[int, int, int], device: CudaDevice) -> None:
    check(rung, device, *shape, ("bf16", "bf16"))


@each_rung
@DRAWN
@given(m=st.integers(1, 1500), n=st.integers(1, 200), k=st.integers(1, 150),
       types=st.sampled_from(TYPES))
def test_any_size(rung: int, m: int, n: int, k: int, types: tuple[str, str],
                  device: CudaDevice) -> None:
    check(rung, device, m, 8 * n, 8 * k, types)


@pytest.mark.parametrize("rung", [2, 3])
@DRAWN
@given(m=st.integers(1, 300), n=st.integers(1, 700), k=st.integers(1, 500))
def test_rungs_without_tma_stores_take_any_size(rung: int, m: int, n: int, k: int,
                                                device: CudaDevice) -> None:
    check(rung, device, m, n, k, ("f16", "f16"))


@pytest.mark.parametrize("rung", [5, 6, 7, 8])
@DRAWN
@given(tiles=st.tuples(st.integers(1, 17), st.integers(1, 13)), k=st.integers(1, 40),
       cut=st.tuples(st.integers(0, 127), st.integers(0, 31)))
def test_grids_of_tiles(rung: int, tiles: tuple[int, int], k: int, cut: tuple[int, int],
                        device: CudaDevice) -> None:
    check(rung, device, 128 * tiles[0] - cut[0], 256 * tiles[1] - 8 * cut[1], 8 * k,
          ("bf16", "bf16"))


@pytest.mark.parametrize("rung", [6, 7, 8])
@pytest.mark.parametrize("bn", [64, 128, 192, 256])
@pytest.mark.parametrize("larger", [False, True])
@pytest.mark.parametrize("stages", [2, 3])
def test_tunables(rung: int, bn: int, larger: bool, stages: int, device: CudaDevice) -> None:
    cluster = CLUSTERS[device.properties.capability][larger]
    check(rung, device, 1000, 776, 1032, ("bf16", "bf16"), bn=bn, cluster=cluster, stages=stages)


@DRAWN
@given(clusters=st.integers(1, 66), group=st.integers(1, 40), m=st.integers(1, 3000),
       n=st.integers(1, 300))
def test_the_persistent_rung_in_any_grid_and_order(clusters: int, group: int, m: int, n: int,
                                                   device: CudaDevice) -> None:
    ctas = {"ctas": 2 * clusters} if device.properties.capability == (9, 0) else {}
    check(8, device, m, 8 * n, 200, ("bf16", "bf16"), group=group, **ctas)


@each_rung
def test_many_launches_back_to_back(rung: int, device: CudaDevice) -> None:
    check(rung, device, 1157, 1288, 712, ("bf16", "bf16"), repeats=50)
