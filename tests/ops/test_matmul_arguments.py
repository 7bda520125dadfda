"""What gpukit.matmul refuses, before any launch and by name; and its short way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from fake_device import FakeDevice

import gpukit
from gpukit import kernels
from gpukit.errors import ArgumentError, UnknownKernelError
from gpukit.ops.matmul import Gemm, warm

HALF = "float16"


@pytest.mark.parametrize(("a", "b", "message"), [
    (((2, 3), "float32"), ((4, 5), "float32"), r"a is \(2, 3\) and b is \(4, 5\); a's last dim"),
    (((3,), "float32"), ((3, 5), "float32"), r"a has shape \(3,\); accepted: two dimensions or mo"),
    (((2, 3), "float32"), ((3,), "float32"), r"b has shape \(3,\); accepted: two dimensions or mo"),
    (((2, 2, 3), HALF), ((3, 3, 5), HALF), r"a is \(2, 2, 3\) and b is \(3, 3, 5\); accepted: eq"),
    (((2, 3), "float64"), ((3, 5), "float64"), "a has dtype float64; accepted: float32, float16"),
    (((2, 3), "float32"), ((3, 5), HALF), "b has dtype float16, a has float32; accepted:"),
    (((2, 3), "uint8"), ((3, 5), "uint8"), "a has dtype uint8 and dtype_a is None; accepted: 'e4m"),
    (((2, 3), "int8"), ((3, 5), "int8"), "a has dtype int8"),
])
def test_operands(fake: FakeDevice, a: Any, b: Any, message: str) -> None:
    with pytest.raises(ArgumentError, match=f"^matmul: {message}"):
        gpukit.matmul(fake.array(*a), fake.array(*b))
    assert not fake.launches


def arrays(fake: FakeDevice) -> dict[str, Any]:
    """A good call of every argument."""
    return {"a": fake.array((4, 8), HALF), "b": fake.array((8, 6), HALF),
            "out": fake.array((4, 6), HALF), "bias": fake.array(6, HALF),
            "residual": fake.array((4, 6), HALF), "activation": "relu", "alpha": 2.0,
            "scale_a": fake.array(4), "scale_b": fake.array(6)}


def test_the_good_call_is_accepted(fake: FakeDevice) -> None:
    assert gpukit.matmul(**arrays(fake)).shape == (4, 6)
    assert [launch.name for launch in fake.launches] != []


def strided(fake: FakeDevice, shape: tuple[int, int], dtype: str = HALF) -> Any:
    return fake.array((shape[0], 2 * shape[1]), dtype)[:, ::2]


REFUSED: list[tuple[str, Callable[[FakeDevice], Any], str]] = [
    ("a", lambda f: f.array((4, 8), HALF, offset=1), "a starts at an address that is no multiple"),
    ("out", lambda f: f.array((4, 5), HALF), r"out has shape \(4, 5\), the product has \(4, 6\)"),
    ("out", lambda f: f.array((4, 6), "float64"), "out has dtype float64; accepted: float32"),
    ("out", lambda f: f.array((6, 4), HALF).T, "out is not C-contiguous"),
    ("out", lambda f: strided(f, (4, 6)), "out is not C-contiguous .* next to each other"),
    ("out", lambda f: np.broadcast_to(f.array((1, 6), HALF), (4, 6), subok=True),
     "out has shape .* accepted: positive strides, no two elements in one place"),
    ("out", lambda f: f.array((4, 6), HALF)[::-1], "out has shape .* positive strides"),
    ("bias", lambda f: f.array(5, HALF), r"bias has shape \(5,\); accepted: \(6,\)"),
    ("bias", lambda f: f.array((1, 6), HALF), r"bias has shape \(1, 6\); accepted: \(6,\)"),
    ("bias", lambda f: f.array(6, "float32"), "bias has dtype float32; accepted: out's, float16"),
    ("bias", lambda f: f.array(12, HALF)[::2], "bias is not C-contiguous"),
    ("residual", lambda f: f.array(6, HALF), r"residual has shape \(6,\); accepted: \(4, 6\)"),
    ("residual", lambda f: f.array((4, 6)), "residual has dtype float32; accepted: out's, float16"),
    ("residual", lambda f: strided(f, (4, 6)), "residual is not C-contiguous"),
    ("activation", lambda f: "swish", "activation is 'swish'; accepted: None, relu, gelu"),
    ("activation", lambda f: "none", "activation is 'none'; accepted: None"),
    ("alpha", lambda f: "1", "alpha must be a real number, got str"),
    ("alpha", lambda f: 1e39, "alpha=1e.39 does not fit in float32"),
    ("alpha", lambda f: f.array(1), "alpha must be a real number, got FakeArray"),
    ("scale_a", lambda f: f.array(5), r"scale_a has shape \(5,\) .* one element, \(4,\) without"),
    ("scale_a", lambda f: f.array((1, 4)), r"scale_a has shape \(1, 4\)"),
    ("scale_a", lambda f: f.array(8)[::2], "scale_a has shape .* without gaps"),
    ("scale_a", lambda f: f.array(4, HALF), "scale_a has dtype float16; accepted: float32"),
    ("scale_a", lambda f: 1e39, "scale_a=1e.39 does not fit in float32"),
    ("scale_a", lambda f: True, "scale_a must be a real number, got bool"),
    ("scale_b", lambda f: f.array((6, 1)), r"scale_b has shape \(6, 1\)"),
    ("scale_b", lambda f: f.array((8, 6)), r"scale_b has shape \(8, 6\)"),
    ("activation", lambda f: np.array(["relu", "silu"]), r"activation is array\(\['relu', 's"),
    ("tf32", lambda f: "no", "tf32 is 'no'; accepted: True or False"),
    ("tf32", lambda f: np.ones(2), r"tf32 is array\(\[1., 1.\]\); accepted: True or False"),
    ("fast_accum", lambda f: None, "fast_accum is None; accepted: True or False"),
    ("dtype_a", lambda f: "e4m3", "a has dtype float16 and dtype_a is 'e4m3'; accepted: None, un"),
    ("dtype_a", lambda f: np.array(["e4m3", "e5m2"]), r"a has dtype float16 and dtype_a is array"),
    ("dtype_b", lambda f: "half", "b has dtype float16 and dtype_b is 'half'; accepted: None, un"),
    ("out_dtype", lambda f: ["f16"], r"out has dtype float16 but out_dtype is \['f16'\]"),
    ("kernel", lambda f: [1], r"kernel is \[1\]; accepted: a rung's number, or its name"),
    ("out_dtype", lambda f: "int32", "out has dtype float16 but out_dtype is int32"),
    ("config", lambda f: "gemm:bm=64,bm=64", "config is 'gemm:bm=64,bm=64'; accepted: each settin"),
    ("config", lambda f: "vector:bm=64", "config is 'vector:bm=64': bm=64; accepted: no settings"),
    ("config", lambda f: "gemm:bm=" + "9" * 5000, "config is 'gemm:bm=99.*9; accepted: bm .int"),
    ("config", lambda f: Gemm(bn=None), r"config is Gemm\(.*: bn=None; accepted: bm \(int\), bn"),
    ("config", lambda f: Gemm(group="8"), r"config is Gemm\(.*: group='8'; accepted: bm \(int\)"),
    ("config", lambda f: Gemm(swap=1), r"config is Gemm\(.*: swap=1; accepted: bm \(int\), bn"),
    ("config", lambda f: "gemm:bm=12", "config gemm:bm=12,bn=256 does not go with th"),
    ("config", lambda f: "fast", "config is 'fast'; accepted: gemm, narrow, .*sgemm, ladder"),
]


@pytest.mark.parametrize(("name", "value", "message"), REFUSED,
                         ids=[f"{name}-{i}" for i, (name, _, _) in enumerate(REFUSED)])
def test_each_argument(fake: FakeDevice, name: str, value: Callable[[FakeDevice], Any],
                       message: str) -> None:
    given = {**arrays(fake), name: value(fake)}
    with pytest.raises(ArgumentError, match=f"^matmul: {message}") as caught:
        gpukit.matmul(**given)
    assert "\n" not in str(caught.value)
    assert not fake.launches


@pytest.mark.parametrize("name", ["b", "out", "bias", "residual", "scale_a", "scale_b"])
def test_everything_is_on_one_device(fake: FakeDevice, name: str) -> None:
    other = arrays(FakeDevice(name="fake:1"))[name]
    with pytest.raises(ArgumentError, match=f"^matmul: {name} is on fake:1, the first input on fa"):
        gpukit.matmul(**{**arrays(fake), name: other})


@pytest.mark.parametrize("name", ["a", "b", "bias", "residual", "scale_a", "scale_b"])
def test_out_overlaps_nothing_that_is_read(fake: FakeDevice, name: str) -> None:
    given = arrays(fake)
    raw = fake.array(4096, "uint8")
    shape, dtype = given[name].shape, given[name].dtype

    def at(start: int, shape: tuple[int, ...], dtype: Any) -> Any:
        size = int(np.prod(shape)) * np.dtype(dtype).itemsize
        return raw[start:start + size].view(dtype).reshape(shape)

    given["out"], given[name] = at(64, (4, 6), HALF), at(80, shape, dtype)
    with pytest.raises(ArgumentError, match=f"^matmul: out overlaps {name} in memory"):
        gpukit.matmul(**given)
    given[name] = at(64 + 48, shape, dtype)  # right behind
    gpukit.matmul(**given)


def test_residual_may_be_out_but_no_other_view_of_it(fake: FakeDevice) -> None:
    given = arrays(fake)
    gpukit.matmul(**{**given, "residual": given["out"]})
    wide = fake.array((4, 12), HALF)
    with pytest.raises(ArgumentError, match="out overlaps residual"):
        gpukit.matmul(**{**given, "out": wide[:, :6],
                         "residual": wide.reshape(8, 6)[:4]})


def test_a_number_that_is_none_beside_one_that_is(fake: FakeDevice) -> None:
    with pytest.raises(ArgumentError, match=r"^matmul: alpha must be a real number, got None"):
        gpukit.matmul(**{**arrays(fake), "alpha": None, "scale_a": 2.0})


@pytest.mark.parametrize("k", [0, 8])
def test_types_and_configurations_are_checked_without_work_to_do(fake: FakeDevice, k: int) -> None:
    a, b = fake.array((0 if k else 4, k), HALF), fake.array((k, 6), HALF)
    with pytest.raises(ArgumentError, match=r"^matmul: out_dtype is \{\}; accepted: float32"):
        gpukit.matmul(a, b, out_dtype={})
    with pytest.raises(ArgumentError, match=r"^matmul: config is 'fast'; accepted: gemm, "):
        gpukit.matmul(a, b, config="fast")


@pytest.mark.parametrize("shape", [(0, 4, 6), (2, 0, 6), (2, 4, 0)])
def test_an_out_of_nothing(shape: tuple[int, ...]) -> None:
    """On NumPy's own arrays, whose strides are 0 then."""
    out = np.empty(shape, HALF)
    a, b = np.empty((*shape[:-1], 8), HALF), np.empty((shape[0], 8, shape[2]), HALF)
    assert gpukit.matmul(a, b, out=out) is out


def test_products_of_scales_must_fit_too(fake: FakeDevice) -> None:
    given = {**arrays(fake), "alpha": 1e20, "scale_a": 1e20, "scale_b": None}
    with pytest.raises(ArgumentError, match=r"alpha times scale_a times scale_b is 1e.40"):
        gpukit.matmul(**given)


def test_read_only_outputs(fake: FakeDevice) -> None:
    given = arrays(fake)
    given["out"].flags.writeable = False
    with pytest.raises(ArgumentError, match=r"^matmul: out is read-only"):
        gpukit.matmul(**given)


@pytest.mark.parametrize(("dtype", "given", "message"), [
    ("uint8", {"dtype_a": "e3m4"}, "a has dtype uint8 and dtype_a is 'e3m4'; accepted: 'e4m3', "),
    ("uint8", {"dtype_b": "e4m3"}, "a has dtype uint8 and dtype_a is None"),
    ("uint8", {"dtype_a": "e4m3", "out_dtype": "e4m3"}, "out_dtype is e4m3; accepted: float32"),
    ("uint8", {"dtype_a": "e4m3", "out_dtype": "uint8"}, "out_dtype is uint8; accepted: float32"),
])
def test_8_bit_types(fake: FakeDevice, dtype: str, given: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=f"^matmul: {message}"):
        gpukit.matmul(fake.array((4, 16), dtype), fake.array((16, 6), dtype), **given)


@pytest.mark.parametrize(("held", "said"), [("float8_e4m3fn", "e5m2"), ("float8_e5m2", "f8")])
def test_8_bit_arrays_hold_what_they_say(held: str, said: str) -> None:
    a = np.zeros((4, 16), getattr(pytest.importorskip("ml_dtypes"), held))
    with pytest.raises(ArgumentError, match=f"^matmul: a has dtype {held} and dtype_a is '{said}'; "
                                            "accepted: None, or 'e[45]m[32]', what it holds"):
        gpukit.matmul(a, a.T, dtype_a=said)


def test_matrices_of_numpy_are_no_arrays() -> None:
    a = np.zeros((4, 4), HALF).view(np.matrix)
    with pytest.raises(ArgumentError, match=r"^matmul: a must be .* a NumPy array, got matrix"):
        gpukit.matmul(a, a)


def test_groups_are_no_taller_than_the_product(fake: FakeDevice) -> None:
    """The kernel multiplies their height by the columns, in 32 bits."""
    a, b = fake.array((300, 64), HALF), fake.array((64, 700), HALF)
    gpukit.matmul(a, b, config=f"gemm:bm=64,bn=128,share=pingpong,group={2**40}")
    position = [p.name for p in kernels.get("matmul.sm90.gemm").params].index("group")
    assert fake.launches[-1].args[position] == 5


def test_rungs_have_no_epilogue_and_two_dimensions(fake: FakeDevice) -> None:
    a, b = fake.array((4, 8), HALF), fake.array((8, 6), HALF)
    for extra in ({"bias": fake.array(6, HALF)}, {"activation": "relu"}, {"alpha": 2.0},
                  {"scale_a": 0.5}, {"residual": fake.array((4, 6), HALF)}):
        with pytest.raises(ArgumentError, match="kernel=1 has no epilogue; accepted with it: no"):
            gpukit.matmul(a, b, kernel=1, **extra)
    with pytest.raises(ArgumentError, match="config is given with kernel=1; accepted: one of"):
        gpukit.matmul(a, b, kernel=1, config="gemm")
    with pytest.raises(ArgumentError, match="accepted with kernel=1: two dimensions"):
        gpukit.matmul(a[None], b, kernel=1)
    with pytest.raises(ArgumentError, match="a has dtype uint8; accepted: float32"):
        gpukit.matmul(fake.array((4, 8), "uint8"), fake.array((8, 6), "uint8"), kernel=1,
                      dtype_a="e4m3")
    with pytest.raises(UnknownKernelError, match="unknown kernel"):
        gpukit.matmul(a, b, kernel="sm80.k2")


def test_torch_floats_of_8_bits_are_viewed_as_bytes(fake: FakeDevice,
                                                    monkeypatch: pytest.MonkeyPatch) -> None:
    class Tensor:
        dtype = "torch.float8_e4m3fn"

        def __init__(self, array: Any) -> None:
            self.array = array

        def view(self, kind: Any) -> Any:
            assert kind == "torch.uint8"
            return self.array

    monkeypatch.setitem(__import__("sys").modules, "torch", SimpleNamespace(uint8="torch.uint8"))
    c = gpukit.matmul(Tensor(fake.array((64, 128), "uint8")),
                      Tensor(fake.array((64, 128), "uint8").T))
    assert c.dtype.name == "bfloat16"
    assert fake.launches[0].tunables["dtype"] == "e4m3"


# The short way, on stand-ins for CuPy's arrays


class Pointer:
    def __init__(self, ptr: int, device_id: int = 0) -> None:
        self.ptr, self.device_id = ptr, device_id


class Array:
    """What the short way reads of a cupy.ndarray."""

    def __init__(self, shape: tuple[int, ...], dtype: Any, data: Pointer) -> None:
        like = np.empty(shape, dtype)
        self.shape, self.strides, self.dtype = shape, like.strides, like.dtype
        self.size, self.nbytes, self.data = like.size, like.nbytes, data

    def __eq__(self, other: object) -> bool:
        raise AssertionError("comparing arrays would launch a kernel")

    __hash__ = None  # type: ignore[assignment]


class Calls:
    """Records the launches of the short way."""

    def __init__(self) -> None:
        self.made: list[tuple[Any, ...]] = []

    def __call__(self, *handles: Any) -> None:
        self.made.append(handles)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Iterator[Calls]:
    state = warm._State()
    state.ndarray = Array
    state.alloc = lambda nbytes: Pointer(1 << 40)
    monkeypatch.setattr(warm, "_state", state)
    yield Calls()


def arguments(**changes: Any) -> list[Any]:
    """Of `warm.call`: [64, 32] by [32, 16] in f16, with a bias."""
    default: dict[str, Any] = {
        "a": Array((64, 32), HALF, Pointer(0x1000)), "b": Array((32, 16), HALF, Pointer(0x3000)),
        "out": None, "bias": Array((16,), HALF, Pointer(0x5000)), "activation": None,
        "residual": None, "alpha": 1.0, "scale_a": None, "scale_b": None, "out_dtype": None,
        "tf32": False, "dtype_a": None, "dtype_b": None, "fast_accum": False, "config": None}
    assert set(changes) <= set(default)
    return list({**default, **changes}.values())


def remember(calls: Calls, **changes: Any) -> None:
    given = arguments(**changes)
    device = SimpleNamespace(address=lambda array: array.data.ptr)
    out = given[2] or Array((64, 16), HALF, Pointer(1 << 41))
    warm.keep(tuple(given), SimpleNamespace(out=out, device=device), calls)  # type: ignore[arg-type]


def test_a_call_seen_before_is_launched_with_its_own_addresses(calls: Calls) -> None:
    assert warm.call(*arguments()) is None
    remember(calls)
    out = warm.call(*arguments(a=Array((64, 32), HALF, Pointer(0x9000)), alpha=2.0, scale_b=3.0))
    assert out.shape == (64, 16) and out.dtype == np.float16
    assert calls.made == [(0x9000, 0x3000, 1 << 40, 0x5000, 0, 6.0, 0, 0)]


def test_a_call_without_terms(calls: Calls) -> None:
    remember(calls, bias=None)
    given = Array((64, 16), HALF, Pointer(0x8000))
    remember(calls, bias=None, out=given)
    assert warm.call(*arguments(bias=None, out=given)) is given
    assert calls.made == [(0x1000, 0x3000, 0x8000, 0, 0, 1.0, 0, 0)]


@pytest.mark.parametrize("changes", [
    {"a": Array((64, 32), HALF, Pointer(0x1008))}, {"a": Array((64, 32), "int16", Pointer(0x1000))},
    {"a": Array((64, 32), HALF, Pointer(0x1000, 1))}, {"b": Array((32, 16), HALF, Pointer(0x3002))},
    {"b": Array((32, 17), HALF, Pointer(0x3000))}, {"bias": None}, {"activation": "relu"},
    {"bias": Array((16,), "float32", Pointer(0x5000))}, {"bias": object()}, {"alpha": 1},
    {"out_dtype": "float32"}, {"out_dtype": {}}, {"tf32": True}, {"dtype_a": "e4m3"},
    {"fast_accum": True}, {"config": "gemm"}, {"residual": Array((64, 16), HALF, Pointer(0x7000))},
    {"out": Array((64, 16), HALF, Pointer(0x7000))}, {"a": np.zeros((64, 32), HALF)},
    {"scale_a": Array((1,), "float32", Pointer(0x100))}, {"scale_a": 1}, {"alpha": 1e39},
    {"alpha": 1e30, "scale_a": 1e30}, {"alpha": float("nan")}],
    ids=lambda changes: next(iter(changes)))
def test_any_other_call_goes_the_long_way(calls: Calls, changes: dict[str, Any]) -> None:
    remember(calls)
    assert warm.call(*arguments(**changes)) is None
    assert not calls.made


@pytest.mark.parametrize("where", [0x1000, 0x1000 + 64 * 32 * 2 - 16, 0x3000 - 64 * 16 * 2 + 16,
                                   0x5000])
def test_overlaps_go_the_long_way(calls: Calls, where: int) -> None:
    remember(calls, out=Array((64, 16), HALF, Pointer(0x8000)))
    assert warm.call(*arguments(out=Array((64, 16), HALF, Pointer(where)))) is None
    assert not calls.made
    assert warm.call(*arguments(out=Array((64, 16), HALF, Pointer(0x2000)))) is not None


def test_residual_may_be_out_on_the_short_way(calls: Calls) -> None:
    out = Array((64, 16), HALF, Pointer(0x8000))
    remember(calls, out=out, residual=out)
    assert warm.call(*arguments(out=out, residual=out)) is out
    beside = Array((64, 16), HALF, Pointer(0x8010))
    assert warm.call(*arguments(out=out, residual=beside)) is None


def test_only_residual_may_be_out_on_the_short_way(calls: Calls) -> None:
    place = Array((64, 1), "float32", Pointer(0x8000))  # of factors, too
    b, apart = Array((32, 1), HALF, Pointer(0x3000)), Array((64, 1), "float32", Pointer(0x9000))
    given = {"b": b, "bias": None, "out_dtype": "float32"}
    remember(calls, **given, out=place, residual=place, scale_a=apart)
    assert warm.call(*arguments(**given, out=place, residual=place, scale_a=apart)) is place
    assert warm.call(*arguments(**given, out=place, residual=place, scale_a=place)) is None


def test_on_another_device_than_the_current_one(calls: Calls) -> None:
    remember(calls)
    warm._state.current_device = lambda: 1
    assert warm.call(*arguments()) is None
    warm._state.current_device = lambda: 0
    assert warm.call(*arguments()) is not None


def test_a_program_of_endless_shapes_does_not_grow(calls: Calls,
                                                   monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warm, "_CAPACITY", 8)
    for m in range(1, 30):
        remember(calls, a=Array((m, 32), HALF, Pointer(0x1000)))
        assert len(warm._state.entries) <= 8
