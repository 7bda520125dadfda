"""mxfp8 and nvfp4 on the emulated B200: operands with a factor for each block of K."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from products import outside, root, strided, words_of

import gpukit
from gpukit import dtypes, emulator
from gpukit.devices import emulated
from gpukit.devices.models import MODELS
from gpukit.emulator.policies import POLICIES
from gpukit.errors import ArgumentError, UnsupportedError
from gpukit.ops.matmul import Problem, Tcgen05, choose, factors
from gpukit.reference import matmul as ref
from gpukit.reference.tolerance import scaled_error

PAIR = "tcgen05:bn=64,stages=3"
SINGLE = "tcgen05:bn=64,ctas=1,cluster=1,stages=3"
SWAPPED = "tcgen05:bn=32,ctas=1,cluster=1,stages=3,swap=true"
E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])
E4M3, E5M2 = np.dtype(ml_dtypes.float8_e4m3fn), np.dtype(ml_dtypes.float8_e5m2)
E8M0 = np.dtype(ml_dtypes.float8_e8m0fnu)


@pytest.fixture(autouse=True)
def b200() -> Any:
    device = emulated.get("b200")
    device.use()
    yield device
    emulated.get().use()


@dataclass(frozen=True)
class Blocks:
    """C = activation(alpha A B + bias) + residual of operands "e4m3", "e5m2" (mx) or "e2m1" (nv).

    Attributes:
        pads: elements (pairs of 4 bits) between rows of A and of B^T.
    """

    m: int
    n: int
    k: int
    dtypes: tuple[str, str] = ("e4m3", "e4m3")
    out: str = "bf16"
    pads: tuple[int, int] = (0, 0)
    terms: tuple[str, ...] = ()

    @property
    def four_bits(self) -> bool:
        return self.dtypes[0] == "e2m1"

    @property
    def block(self) -> int:
        return 16 if self.four_bits else 32

    def _rng(self, what: int) -> np.random.Generator:
        return np.random.default_rng([self.m, self.n, self.k, what])

    def _stored(self, side: int, rows: int) -> np.ndarray:
        """[rows, K] bytes, of 4 bits two in one, in a buffer that is NaN (or 15s) elsewhere."""
        width = self.k // 2 if self.four_bits else self.k
        kept = strided((rows, width), np.uint8, 0, self.pads[side])
        if self.four_bits:
            kept[...] = self._rng(side).integers(0, 256, kept.shape)
        else:
            dtype = E4M3 if self.dtypes[side] == "e4m3" else E5M2
            kept[...] = self._rng(side).standard_normal(kept.shape).astype(dtype).view(np.uint8)
        return kept

    def _factors(self, side: int, rows: int) -> np.ndarray:
        shape = rows, -(-self.k // self.block)
        low, high = (1, 0x7F) if self.four_bits else (120, 134)
        return self._rng(4 + side).integers(low, high, shape).astype(np.uint8)

    @cached_property
    def a(self) -> np.ndarray:
        return self._stored(0, self.m)

    @cached_property
    def w(self) -> np.ndarray:
        return self._stored(1, self.n)

    @cached_property
    def scale_a(self) -> np.ndarray:
        return self._factors(0, self.m)

    @cached_property
    def scale_w(self) -> np.ndarray:
        return self._factors(1, self.n)

    @cached_property
    def epilogue(self) -> dict[str, Any]:
        kind = dtypes.parse(self.out).numpy
        made = {"bias": lambda: self._rng(2).standard_normal(self.n).astype(kind),
                "residual": lambda: self._rng(3).standard_normal((self.m, self.n)).astype(kind),
                "activation": lambda: "relu", "alpha": lambda: 0.125}
        return {name: made[name]() for name in self.terms}

    def values(self, side: int) -> np.ndarray:
        """float64 [rows, K]: elements times factors."""
        codes, scales = ((self.a, self.scale_a), (self.w, self.scale_w))[side]
        if self.four_bits:
            elements = np.stack([E2M1[codes & 15], E2M1[codes >> 4]], -1).reshape(len(codes), -1)
        else:
            elements = codes.view(E4M3 if self.dtypes[side] == "e4m3" else E5M2).astype("f8")
        kind = E4M3 if self.four_bits else E8M0
        return elements * np.repeat(scales.view(kind).astype("f8"), self.block, 1)[:, :self.k]

    def run(self, **options: Any) -> np.ndarray:
        """Into poison: all of C is right, and nothing around it was written."""
        out = strided((self.m, self.n), dtypes.parse(self.out).numpy)
        before = np.array(words_of(root(out)))
        given = {"scale_a": self.scale_a, "scale_b": self.scale_w.T, "dtype_a": self.dtypes[0],
                 "dtype_b": self.dtypes[1], **self.epilogue, **options}
        got = gpukit.matmul(self.a, self.w.T, out=out, **given)
        a, b = self.values(0), self.values(1).T
        epilogue = ref.Epilogue(**{**self.epilogue, "alpha": given.get("alpha", 1.0)})
        bound = ref.bound(a, b, dtypes.parse(self.out), epilogue=epilogue, multiply="exact")
        assert scaled_error(got.astype("f8"), ref.oracle(a, b, epilogue), bound) <= 1
        outside(out, before, words_of(root(out)))
        return got


MX, NV = ("e4m3", "e4m3"), ("e2m1", "e2m1")
FORMATS = [MX, NV]


@pytest.mark.parametrize("types", FORMATS, ids=["mxfp8", "nvfp4"])
@pytest.mark.parametrize("config", [PAIR, SINGLE, SWAPPED, None])
def test_tails_everywhere(types: tuple[str, str], config: str | None) -> None:
    """Several tiles, steps of K of which the last is short, a last block that is short."""
    Blocks(140, 88, 552, types).run(config=config)


@pytest.mark.parametrize("types", FORMATS, ids=["mxfp8", "nvfp4"])
@pytest.mark.parametrize("config", [
    "tcgen05:bn=192,stages=3", "tcgen05:bn=256,cluster=4,stages=2", "tcgen05:bn=224,stages=2",
    "tcgen05:bn=160,ctas=1,cluster=2,stages=2,swap=true"])
def test_tiles_whose_factors_are_in_two_chunks(types: tuple[str, str], config: str) -> None:
    shape = (272, 140) if "swap" in config else (140, 272)
    Blocks(*shape, 320, types, out="f32").run(config=config)


@pytest.mark.parametrize(("m", "n", "k"), [(1, 1, 2), (3, 8, 16), (1, 200, 64), (130, 1, 32),
                                           (17, 9, 30), (65, 129, 258)])
@pytest.mark.parametrize("types", FORMATS, ids=["mxfp8", "nvfp4"])
def test_any_size(types: tuple[str, str], m: int, n: int, k: int) -> None:
    Blocks(m, n, k, types).run()


@pytest.mark.parametrize("types", [("e5m2", "e5m2"), ("e4m3", "e5m2"), ("e5m2", "e4m3")], ids=str)
@pytest.mark.parametrize("config", [PAIR, SWAPPED])
def test_types_of_8_bits(types: tuple[str, str], config: str) -> None:
    Blocks(40, 72, 160, types, out="f32").run(config=config)


@pytest.mark.parametrize("types", FORMATS, ids=["mxfp8", "nvfp4"])
@pytest.mark.parametrize("config", [PAIR, SWAPPED, f"{PAIR},split=2", f"{SWAPPED},split=3"])
def test_epilogues_and_slices_of_k(types: tuple[str, str], config: str) -> None:
    Blocks(70, 72, 800, types, terms=("bias", "residual", "activation", "alpha")).run(
        config=config)


@pytest.mark.parametrize("types", FORMATS, ids=["mxfp8", "nvfp4"])
@pytest.mark.parametrize("config", [PAIR, f"{SWAPPED},split=2"])
def test_global_factors(types: tuple[str, str], config: str) -> None:
    """A number, or on the device; in the epilogue's f32, where powers of two change no bits."""
    p = Blocks(40, 72, 320, types, terms=("bias",))
    want = p.run(config=config, alpha=0.25)
    half, eighth, four = np.array(0.5, "f4"), np.array([[0.125]], "f4"), np.array([4], "f4")
    for one_a, one_b in ((half, half), (2, eighth), (four, 0.0625)):
        got = gpukit.matmul(p.a, p.w.T, scale_a=(p.scale_a, one_a), scale_b=(p.scale_w.T, one_b),
                            dtype_a=types[0], config=config, **p.epilogue)
        assert np.array_equal(got.view(np.uint16), want.view(np.uint16))


@pytest.mark.parametrize("types", FORMATS, ids=["mxfp8", "nvfp4"])
def test_rows_at_any_address(types: tuple[str, str]) -> None:
    Blocks(33, 40, 96, types, pads=(3, 16)).run()


@pytest.mark.parametrize("types", FORMATS, ids=["mxfp8", "nvfp4"])
def test_factors_of_any_strides(types: tuple[str, str]) -> None:
    p = Blocks(40, 72, 320, types)
    wide = np.zeros((40, 2 * p.scale_a.shape[1]), np.uint8)
    wide[:, ::2] = p.scale_a
    want = p.run()
    got = p.run(scale_a=wide[:, ::2], scale_b=np.ascontiguousarray(p.scale_w.T))
    assert np.array_equal(got.view(np.uint16), want.view(np.uint16))


def test_types_of_factors_say_what_they_are() -> None:
    mx, nv = Blocks(20, 24, 64), Blocks(20, 24, 64, NV)
    mx.run(scale_a=mx.scale_a.view(E8M0), scale_b=mx.scale_w.T.view(E8M0))
    nv.run(scale_a=nv.scale_a.view(E4M3), scale_b=nv.scale_w.T.view(E4M3))


def test_without_k_there_are_zeros() -> None:
    none = np.zeros((4, 0), np.uint8)
    for held in ("e4m3", "e2m1"):
        got = gpukit.matmul(none, none.T, dtype_a=held, scale_a=none, scale_b=none.T)
        assert got.dtype == ml_dtypes.bfloat16 and got.shape == (4, 4) and not got.any()


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("types", FORMATS, ids=["mxfp8", "nvfp4"])
def test_every_schedule_gives_the_same_bits(types: tuple[str, str], policy: str,
                                            monkeypatch: pytest.MonkeyPatch) -> None:
    """Factors follow each other through the same cells of Tensor Memory."""
    run, results = emulator.run, []
    for seed in (1, 2):
        monkeypatch.setattr(emulator, "run", partial(run, policy=policy, seed=seed))
        results.append(Blocks(140, 136, 800, types).run(config="tcgen05:bn=96,stages=2").tobytes())
    assert len(set(results)) == 1


@pytest.mark.parametrize(("rows", "tile", "blocks", "groups"), [
    (300, 128, 9, 1), (300, 192, 21, 4), (40, 32, 5, 1), (1, 256, 1, 4)])
def test_the_order_of_packed_factors(rows: int, tile: int, blocks: int, groups: int,
                                     b200: Any) -> None:
    """Byte b of word c of lane l of a chunk is block b of row 32 c + l."""
    scale = np.random.default_rng(0).integers(0, 256, (rows, blocks)).astype(np.uint8)
    steps = -(-blocks // (4 * groups))
    tiling = factors.Tiling(tile, steps, groups)
    got, _ = factors.bind(b200, scale, tiling)(scale)
    tiles, height = -(-rows // tile), 128 * tiling.chunks
    want = np.zeros((tiles, height, steps * groups * 4), np.uint8)
    for i in range(tiles):
        part = scale[i * tile:(i + 1) * tile]
        want[i, :len(part), :blocks] = part
    want = want.reshape(tiles, tiling.chunks, 4, 32, steps * groups, 4)
    want = want.transpose(0, 4, 1, 3, 2, 5)  # tile, group, chunk, lane, column, block
    assert np.array_equal(got.view(np.uint8), want.ravel())


def test_what_is_chosen() -> None:
    b200 = MODELS["b200"].properties
    for dtype, sums in (("e4m3", "blocks32"), ("e2m1", "blocks16")):
        large, small = (choose(Problem(m, 8192, 4096, dtype=dtype, sums=sums), b200)
                        for m in (8192, 16))
        assert isinstance(large, Tcgen05) and large.ctas == 2 and not large.swap
        assert isinstance(small, Tcgen05) and small.bn == 16 and small.swap


@pytest.mark.parametrize(("words", "message"), [
    ({"scale_b": None}, "scale_b is None; accepted for e4m3 with factors of blocks: uint8 (ue8m0) "
                        "of shape (2, 24), one for each 32 elements of K"),
    ({"scale_a": np.ones((20, 3), np.uint8)}, "scale_a is of dtype uint8 and shape (20, 3); acce"),
    ({"scale_a": np.ones((20, 2), np.float32)}, "scale_a is of dtype float32 and shape (20, 2)"),
    ({"scale_a": np.ones((20, 2), np.int8)}, "scale_a has dtype int8; accepted: float32, or uint8"
                                             " (ue8m0 of blocks)"),
    ({"scale_a": (np.ones((20, 2), np.float32), 2.0)}, "scale_a is a tuple of 2; accepted"),
    ({"scale_a": (np.ones((20, 2), np.uint8),)}, "scale_a is a tuple of 1; accepted: factors of b"),
    ({"scale_b": (np.ones((2, 24), np.uint8), np.ones(24, "f4"))}, "scale_b[1] has shape (24,); a"),
    ({"dtype_b": "e2m1"}, "b has dtype e2m1, a has e4m3; accepted: equal ones, or two 8-bit")])
def test_refusals_of_mxfp8(words: dict[str, Any], message: str) -> None:
    p = Blocks(20, 24, 64)
    with pytest.raises(ArgumentError) as raised:
        gpukit.matmul(p.a, p.w.T, **{"scale_a": p.scale_a, "scale_b": p.scale_w.T,
                                     "dtype_a": "e4m3", **words})
    assert message in str(raised.value)


def test_four_bits_need_factors_of_blocks_and_two_dimensions() -> None:
    p = Blocks(20, 24, 64, NV)
    with pytest.raises(ArgumentError, match=r"scale_a is None; accepted for e2m1 .*\(20, 4\)"):
        gpukit.matmul(p.a, p.w.T, dtype_a="e2m1")
    with pytest.raises(ArgumentError, match=r"scale_a has factors of blocks, a is .*two dimens"):
        gpukit.matmul(p.a[None], p.w.T, dtype_a="e2m1", scale_a=p.scale_a, scale_b=p.scale_w.T)


@pytest.mark.parametrize("types", FORMATS, ids=["mxfp8", "nvfp4"])
def test_hopper_has_no_such_tensor_cores(types: tuple[str, str]) -> None:
    emulated.get("h100").use()
    p = Blocks(20, 24, 64, types)
    with pytest.raises(UnsupportedError, match=f"with factors of blocks of {p.block} need sm_100a, "
                                               "this GPU is sm_90"):
        p.run()
    with pytest.raises(ArgumentError, match=r"it has no factors of blocks that are bytes|tensor"):
        p.run(config="narrow:bn=32")
