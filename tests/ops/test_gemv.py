"""Matrix-vector kernels: emulated against float64, their launch geometry, larger ones on a GPU."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from fake_device import FakeDevice

from gpukit import devices, dtypes, kernels
from gpukit.errors import UnsupportedError
from gpukit.kernels.matmul_helpers import ACTIVATIONS
from gpukit.ops import gemv
from gpukit.ops.gemv import Problem, gemv_kn, gemv_nk
from gpukit.reference import matmul as ref
from gpukit.reference.tolerance import Array, Bound, scaled_error

LAUNCH: dict[str, Callable[..., None]] = {"nk": gemv_nk, "kn": gemv_kn}
POISON = {2: 0x7FDB, 4: 0x7FDBDEAD}


def emulated(sms: int = 3) -> Any:
    """An emulated H100 with few SMs, so that small problems keep a CTA busy for several tiles."""
    device = devices.get("emu:h100")
    return SimpleNamespace(properties=replace(device.properties, sm_count=sms),
                           compile=device.compile, phase=device.phase)


def operand(shape: tuple[int, int], name: str, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.standard_normal(shape).astype(dtypes.parse(name).numpy)


def operands(layout: str, m: int, n: int, k: int, name: str) -> tuple[np.ndarray, np.ndarray]:
    return operand((m, k), name, 1), operand((n, k) if layout == "nk" else (k, n), name, 2)


def poisoned(shape: tuple[int, int], name: str) -> np.ndarray:
    dtype = dtypes.parse(name)
    return np.full(shape, POISON[dtype.itemsize], f"u{dtype.itemsize}").view(dtype.numpy)


def error(layout: str, a: np.ndarray, b: np.ndarray, out: np.ndarray) -> float:
    b = b.T if layout == "nk" else b
    dtype = dtypes.of(out.dtype)
    assert dtype is not None
    return scaled_error(out.astype(np.float64), ref.oracle(a, b), ref.bound(a, b, dtype))


@pytest.mark.parametrize("name", ["f32", "f16", "bf16"])
@pytest.mark.parametrize(("m", "n", "k"), [(1, 1, 1), (1, 33, 264), (2, 40, 130), (3, 17, 97),
                                           (4, 72, 1048), (8, 24, 40)])
@pytest.mark.parametrize("layout", ["nk", "kn"])
def test_shapes_and_types(layout: str, name: str, m: int, n: int, k: int) -> None:
    a, b = operands(layout, m, n, k, name)
    out = poisoned((m, n), name)
    LAUNCH[layout](emulated(), a, b, out, tuning={"warps": 4})
    assert error(layout, a, b, out) <= 1


@pytest.mark.parametrize("tuning", [
    {"split": "false", "warps": 2, "rows": 1, "unroll": 4},
    {"split": "false", "warps": 2, "rows": 4, "unroll": 2},
    {"split": "false", "warps": 2, "rows": 2, "unroll": 2, "stage": 0},
    {"split": "true", "warps": 2, "rows": 8, "unroll": 1},
    {"split": "true", "warps": 4, "rows": 1, "unroll": 2, "stage": 2048, "blocks": 1},
    {"hint": "none"}, {"hint": "fetch_256"}, {"hint": "evict_first"},
], ids=str)
@pytest.mark.parametrize("m", [1, 3])
def test_every_way_to_share_out_rows(m: int, tuning: dict[str, Any]) -> None:
    a, b = operands("nk", m, 43, 840, "bf16")
    out = poisoned((m, 43), "bf16")
    gemv_nk(emulated(2), a, b, out, tuning=tuning)
    assert error("nk", a, b, out) <= 1


@pytest.mark.parametrize("tuning", [
    {"lanes": 4, "warps": 2, "cluster": 1, "unroll": 8},
    {"lanes": 8, "warps": 2, "cluster": 2, "unroll": 4},
    {"lanes": 16, "warps": 4, "cluster": 8, "unroll": 1},
    {"lanes": 32, "warps": 2, "cluster": 4, "unroll": 16},
    {"hint": "none"}, {"hint": "fetch_256"}, {"hint": "evict_first"},
], ids=str)
@pytest.mark.parametrize("m", [1, 3])
def test_every_way_to_share_out_columns(m: int, tuning: dict[str, Any]) -> None:
    a, b = operands("kn", m, 136, 173, "f16")
    out = poisoned((m, 136), "f16")
    gemv_kn(emulated(), a, b, out, tuning={"warps": 4, **tuning})
    assert error("kn", a, b, out) <= 1


@pytest.mark.parametrize("layout", ["nk", "kn"])
def test_a_cluster_larger_than_k_leaves_ctas_without_work(layout: str) -> None:
    a, b = operands(layout, 2, 16, 24, "bf16")
    out = poisoned((2, 16), "f32")
    LAUNCH[layout](emulated(), a, b, out,
                   tuning={"cluster": 8, "warps": 2} if layout == "kn" else None)
    assert error(layout, a, b, out) <= 1


@pytest.mark.parametrize("layout", ["nk", "kn"])
def test_rows_may_lie_apart_and_nothing_between_them_is_written(layout: str) -> None:
    n, k = 24, 80
    a, b = operands(layout, 3, n, k, "f16")
    wide_a, wide_b = poisoned((3, 128), "f16"), poisoned((b.shape[0], 104), "f16")
    wide_a[:, 18:18 + k], wide_b[:, 7:7 + b.shape[1]] = a, b
    whole = poisoned((3, 48), "f32")
    out = whole[:, 5:5 + n]
    LAUNCH[layout](emulated(), wide_a[:, 18:18 + k], wide_b[:, 7:7 + b.shape[1]], out,
                   tuning={"warps": 4})
    assert error(layout, a, b, out) <= 1
    untouched = np.delete(whole, np.s_[5:5 + n], axis=1).view("u4")
    assert (untouched == POISON[4]).all()


@pytest.mark.parametrize("layout", ["nk", "kn"])
def test_bits_do_not_depend_on_the_number_of_sms(layout: str) -> None:
    a, b = operands(layout, 2, 64, 520, "bf16")
    tuning: dict[str, Any] = {"nk": {"split": "false", "warps": 2, "rows": 2, "unroll": 2},
                              "kn": {"lanes": 4, "cluster": 2, "warps": 2, "unroll": 4}}[layout]
    results = []
    for sms in (1, 5):
        out = poisoned((2, 64), "f32")
        LAUNCH[layout](emulated(sms), a, b, out, tuning=tuning)
        results.append(out.view("u4"))
    assert (results[0] == results[1]).all()


def activation(act: str, x: Array) -> Array:
    if act == "relu":
        return np.maximum(x, 0.0)
    if act == "silu":
        return x / (1 + np.exp(-x))
    if act == "gelu":
        return 0.5 * x * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))
    if act == "gelu_tanh":
        return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    return x


def epilogue(a: np.ndarray, b: np.ndarray, bias: Any, residual: Any, alpha: float, act: str,
             out: dtypes.DType) -> tuple[Array, Bound]:
    """What C must be and how far off f32 may be: the slopes of all activations are below 1.13."""
    zero = np.zeros(1)
    product = alpha * ref.oracle(a, b)
    x = product + (zero if bias is None else bias.astype(np.float64))
    y = activation(act, x)
    want = y + (zero if residual is None else residual.astype(np.float64))
    unit = 2.0**-24
    before = abs(alpha) * ref.bound(a, b, dtypes.F32).atol + 2 * unit * (abs(product) + abs(x))
    within = 1.13 * before + 1e-5 * abs(y) + 2 * unit * abs(x) + unit * abs(want)
    return want, Bound(within + 2.0**-25, 2.0**-out.exact_bits + unit)


@pytest.mark.parametrize(("act", "terms"), [
    *((act, "bias residual") for act in ACTIVATIONS), ("silu", ""), ("silu", "bias"),
    ("silu", "residual")])
@pytest.mark.parametrize("layout", ["nk", "kn"])
def test_epilogues(layout: str, act: str, terms: str) -> None:
    m, n, k, out_name = 2, 40, 136, "f32" if act == "gelu" else "bf16"
    a, b = operands(layout, m, n, k, "bf16")
    bias = operand((1, n), out_name, 3)[0] if "bias" in terms else None
    residual = operand((m, 2 * n), out_name, 4)[:, :n] if "residual" in terms else None
    out = poisoned((m, n), out_name)
    LAUNCH[layout](emulated(), a, b, out, bias=bias, residual=residual, alpha=0.25, act=act,
                   tuning={"warps": 4})
    dtype = dtypes.parse(out_name)
    want, bound = epilogue(a, b if layout == "kn" else b.T, bias, residual, 0.25, act, dtype)
    assert scaled_error(out.astype(np.float64), want, bound) <= 1


@pytest.mark.parametrize("layout", ["nk", "kn"])
def test_no_k_leaves_the_epilogue(layout: str) -> None:
    a, b = operands(layout, 2, 8, 0, "f16")
    bias = np.arange(8, dtype=np.float16)
    out = poisoned((2, 8), "f16")
    LAUNCH[layout](emulated(), a, b, out, bias=bias, tuning={"warps": 2})
    assert (out == bias).all()


@pytest.mark.parametrize("layout", ["nk", "kn"])
def test_special_values_stay_where_they_are(layout: str) -> None:
    """Padding must not turn an infinity elsewhere into NaN."""
    a, b = operands(layout, 2, 16, 40, "f32")
    a[1] = np.inf
    b[:] = np.abs(b)
    out = poisoned((2, 16), "f32")
    LAUNCH[layout](emulated(), a, b, out, tuning={"warps": 2})
    assert np.isposinf(out[1]).all()
    assert error(layout, a[:1], b, out[:1]) <= 1


@pytest.mark.parametrize(("k", "pitch", "offset", "vec"), [
    (64, 64, 0, 8), (68, 72, 0, 4), (64, 66, 0, 2), (64, 64, 4, 2), (65, 72, 0, 1), (64, 64, 2, 1)])
def test_loads_are_as_wide_as_the_addresses_allow(k: int, pitch: int, offset: int,
                                                  vec: int) -> None:
    device = FakeDevice()
    b = device.array((5, pitch), "float16", offset=offset)[:, :k]
    gemv_nk(device, device.array((1, k), "float16"), b, device.array((1, 5), "float16"))
    assert device.launches[0].tunables["vec"] == vec


def test_absent_terms_are_never_null_pointers() -> None:
    device = FakeDevice()
    out = device.array((1, 8), "float16")
    gemv_nk(device, device.array((1, 8), "float16"), device.array((8, 8), "float16"), out)
    args = dict(zip((p.name for p in kernels.get("matmul.gemv_nk").params),
                    device.launches[0].args, strict=True))
    assert args["bias"] is out and args["residual"] is out and args["terms"] == 0


WEIGHTS = [(4096, 4096), (6144, 4096), (8192, 8192), (28672, 4096), (4096, 14336)]


@pytest.mark.parametrize("m", [1, 2, 4])
@pytest.mark.parametrize(("n", "k"), WEIGHTS)
def test_an_h200_has_64_kilobytes_of_loads_in_flight_on_every_sm(n: int, k: int, m: int) -> None:
    problem = Problem(m, n, k, 2, 8, 132)
    nk, kn = gemv.tune_nk(problem), gemv.tune_kn(problem)
    assert int(nk["blocks"]) * int(nk["warps"]) * 512 * int(nk["rows"]) * int(
        nk["unroll"]) >= 64 << 10
    ctas = gemv.ctas_kn(problem, kn)
    assert ctas >= 0.9 * 132
    assert ctas * int(kn["warps"]) * 512 * int(kn["unroll"]) >= 0.9 * 132 * (64 << 10)


@pytest.mark.parametrize("itemsize", [2, 4])
@pytest.mark.parametrize("m", range(1, 9))
def test_what_is_chosen_can_run(m: int, itemsize: int) -> None:
    """Accepted tunables, x in whole batches, shared memory for all CTAs of an SM."""
    for n in (1, 100, 1000, 4096, 50000):
        for k in (0, 1, 100, 1000, 4096, 14336, 28672):
            for vec in (1, 2, 4, 16 // itemsize):
                problem = Problem(m, n, k, itemsize, vec, 132)
                types = {"dtype": "f32" if itemsize == 4 else "bf16", "m": m, "vec": vec}
                nk, kn = gemv.tune_nk(problem), gemv.tune_kn(problem)
                runs(kernels.get("matmul.gemv_nk"), {**nk, **types})
                runs(kernels.get("matmul.gemv_kn"), {**kn, **types})
                step = 32 * vec * (int(nk["warps"]) if nk["split"] == "true" else 1)
                batch = step * int(nk["unroll"])
                assert nk["stage"] == 0 or int(nk["stage"]) >= -(-k // batch) * batch
                batch = 32 * int(kn["warps"]) // int(kn["lanes"]) * int(kn["unroll"])
                assert int(kn["stage"]) >= -(-k // int(kn["cluster"]) // batch) * batch


def runs(spec: kernels.KernelSpec, tunables: dict[str, Any]) -> None:
    full = spec.resolve(tunables)
    assert spec.shared_bytes(full) * int(full["blocks"]) <= 227 << 10
    assert 32 * int(full["warps"]) * int(full["blocks"]) <= 2048


def test_k_too_long_for_shared_memory_is_refused() -> None:
    device = FakeDevice()
    a, b = device.array((8, 1), "float16"), device.array((1, 8), "float16")
    long = np.lib.stride_tricks.as_strided
    a = device.own(long(a, (8, 1 << 20), (2, 0)))
    b = device.own(long(b, (1 << 20, 8), (0, 2)))
    with pytest.raises(UnsupportedError, match="gemv_kn: K=1048576 is too long for 8 rows"):
        gemv_kn(device, a, b, device.array((8, 8), "float16"))


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["bf16", "f16", "f32"])
@pytest.mark.parametrize(("m", "n", "k"), [
    (1, 4096, 4096), (2, 4096, 14336), (4, 6144, 4096), (8, 1024, 8192), (1, 4097, 4111),
    (3, 513, 28672), (4, 100, 65), (1, 20000, 256), (4, 4098, 4100), (5, 1, 1)])
@pytest.mark.parametrize("layout", ["nk", "kn"])
def test_on_a_gpu(layout: str, name: str, m: int, n: int, k: int) -> None:
    import cupy

    device = devices.get("cuda:0")
    a, b = operands(layout, m, n, k, name)
    out = cupy.asarray(poisoned((m, n), name))
    LAUNCH[layout](device, cupy.asarray(a), cupy.asarray(b), out)
    assert error(layout, a, b, cupy.asnumpy(out)) <= 1


@pytest.mark.gpu
@pytest.mark.parametrize("offset", [1, 2, 4])
@pytest.mark.parametrize("layout", ["nk", "kn"])
def test_misaligned_views_on_a_gpu(layout: str, offset: int) -> None:
    import cupy

    a, b = operands(layout, 2, 264, 528, "bf16")
    wide = cupy.zeros((b.shape[0], b.shape[1] + 8), b.dtype)
    view = wide[:, offset:offset + b.shape[1]]
    view[:] = cupy.asarray(b)
    out = cupy.asarray(poisoned((2, 264), "f32"))
    LAUNCH[layout](devices.get("cuda:0"), cupy.asarray(a), view, out)
    assert error(layout, a, b, cupy.asnumpy(out)) <= 1


@pytest.mark.gpu
@pytest.mark.parametrize("layout", ["nk", "kn"])
def test_the_same_bits_every_run_on_a_gpu(layout: str) -> None:
    import cupy

    device = devices.get("cuda:0")
    a, b = (cupy.asarray(x) for x in operands(layout, 4, 4096, 4096, "bf16"))
    results = [cupy.asarray(poisoned((4, 4096), "f32")) for _ in range(10)]
    for out in results:
        LAUNCH[layout](device, a, b, out)
    assert all((out.view("u4") == results[0].view("u4")).all() for out in results)
