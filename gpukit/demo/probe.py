"""Finding out, on a device, where wgmma takes its operands from and puts its results."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gpukit import devices, kernels
from gpukit.demo.cases import Case, chosen
from gpukit.demo.images import DTYPES, Operand, digits, numbered, numbers
from gpukit.devices.protocol import Device
from gpukit.kernels.ceilings import words
from gpukit.kernels.spec import Value
from gpukit.layout import fragments
from gpukit.layout.shared import SharedTile

_RESULTS: dict[str, Any] = {"f32": np.float32, "f16": np.float16, "i32": np.int32}
_THREADS = 128


@dataclass(frozen=True)
class Map:
    """Where something lies, as a device does it and as the algebra says: equal arrays of int64."""

    found: Any
    expected: Any

    @property
    def same(self) -> bool:
        """Whether they agree everywhere."""
        return bool(np.array_equal(self.found, self.expected))


@dataclass(frozen=True)
class Found:
    """What one case showed.

    ``d`` is 64 rows times columns + column [thread, value], value by value through the registers
    of D; ``a`` and ``b`` [row, k] are bytes from the start of the tile, or for A in registers the
    number value + values * thread.
    """

    case: Case
    device: str
    d: Map
    a: Map
    b: Map

    @property
    def ok(self) -> bool:
        """Whether the device does all that the algebra says."""
        return self.d.same and self.a.same and self.b.same


def wgmma(case: str | Case = "all", device: str | Device = "auto") -> list[Found]:
    """Run demo cases and return the layouts found beside those of the algebra.

    Args:
        case: a name of `gpukit.demo.CASES`, "all", or a case of one's own.
        device: "auto" (a GPU, else the emulator), "cuda:0", "emu:h100", or a device.

    Raises:
        ArgumentError: no such case.
        UnsupportedError: the device has no wgmma (only sm_90 has it).
    """
    on = devices.get(device) if isinstance(device, str) else device
    return [_Probe(one, on).found() for one in (chosen(case) if isinstance(case, str) else (case,))]


class _Probe:
    """One case on one device: images in, words of D out, one launch."""

    def __init__(self, case: Case, device: Device) -> None:
        self.case, self.device = case, device
        bits = 8 * case.itemsize
        a = SharedTile(case.swizzle, case.a != "mn", 64, case.width(case.a), bits, 0)
        start = 0 if self.in_registers else a.end
        b = SharedTile(case.swizzle, case.b != "mn", case.n, case.width(case.b), bits, start)
        self.a = Operand(a, case.dtype, case.first)
        self.b = Operand(b, case.dtype, case.first)
        self.a_row, self.a_k = fragments.operand_a(64, case.k, 4 // case.itemsize)
        self.images: list[Any] = []
        self.held: list[Any] = []  # A's fragments, one per image

    @property
    def in_registers(self) -> bool:
        """Whether A comes from registers."""
        return self.case.a == "registers"

    def found(self) -> Found:
        """Number the results, then the places of A, then those of B; run it; read the numbers."""
        row, column = self._number_rows(), self._number_columns()
        a_rounds, b_digits = self._number_a(), self._number_b()
        d = self._run()
        at = d[row].astype(np.int64) * self.case.n + d[column].astype(np.int64)
        matrices = self._matrices(d, at)
        a = [numbers(self.case.dtype, matrices[one]) for one in a_rounds]
        return Found(self.case, self.device.name, Map(at, self._expected_d()),
                     Map(self._a_found(a), self._expected_a()),
                     Map(self._b_found(matrices[b_digits]), self._expected_b()))

    # What goes in: every method adds images and says which

    def _add(self, a: Any, b: Any, a_memory: Any = None, b_memory: Any = None) -> int:
        """One image: matrices, or for one of them elements in the order of memory."""
        image = np.zeros(self.b.tile.end, np.uint8)
        if b_memory is None:
            self.b.put(image, b)
        else:
            self.b.fill(image, b_memory)
        if self.in_registers:
            self.held.append(a[self.a_row, self.a_k] if a_memory is None else a_memory)
        elif a_memory is None:
            self.a.put(image, a)
        else:
            self.a.fill(image, a_memory)
        self.images.append(image)
        return len(self.images) - 1

    def _number_rows(self) -> int:
        rows, weights = numbered(self.case.dtype, 64, self.case.k)
        return self._add(rows, np.tile(weights, (self.case.n, 1)))

    def _number_columns(self) -> int:
        columns, weights = numbered(self.case.dtype, self.case.n, self.case.k)
        return self._add(np.tile(weights, (64, 1)), columns)

    def _number_a(self) -> list[list[int]]:
        """B is the identity, or in several rounds as many of its columns as N allows."""
        case = self.case
        places = (_THREADS * 16 if self.in_registers else self.a.bytes) // case.itemsize
        rounds = []
        for first in range(0, case.k, case.n):
            b = np.eye(case.n, case.k, k=first).astype(DTYPES[case.dtype])
            rounds.append([self._add(None, b, a_memory=self._shaped(one))
                           for one in digits(case.dtype, places)])
        return rounds

    def _shaped(self, elements: Any) -> Any:
        return elements.reshape(_THREADS, -1) if self.in_registers else elements

    def _number_b(self) -> list[int]:
        a = np.eye(64, self.case.k).astype(DTYPES[self.case.dtype])
        places = self.b.bytes // self.case.itemsize
        return [self._add(a, None, b_memory=one) for one in digits(self.case.dtype, places)]

    # The launch

    def _run(self) -> Any:
        """D as numbers [image, thread, value]."""
        case, device = self.case, self.device
        tunables: dict[str, Value] = {"dtype": case.dtype, "acc": case.acc, "n": case.n,
                                      "b": case.b}
        xp, images = device.xp, np.stack(self.images)
        out = xp.zeros((len(images), _THREADS, words(case.n, case.acc)), np.uint32)
        arguments: list[Any] = [xp.asarray(images), images.shape[1]]
        if self.in_registers:
            held = np.ascontiguousarray(np.stack(self.held)).view(np.uint32)
            kernel = device.compile(kernels.get("wgmma.probe_registers"), tunables)
            arguments.insert(0, xp.asarray(held))
        else:
            kernel = device.compile(kernels.get("wgmma.probe"), {**tunables, "a": case.a})
            arguments.append(self.a.tile.wgmma_descriptor(case.first))
        arguments += [self.b.tile.wgmma_descriptor(case.first), out]
        kernel.launch((len(images),), (_THREADS,), arguments)
        return device.to_host(out).view(_RESULTS[case.acc]).astype(np.float64)

    # What came out

    def _matrices(self, d: Any, at: Any) -> Any:
        """D [image, 64, N], by the places that the device itself told."""
        flat = np.zeros((len(d), 64 * self.case.n))
        flat[:, np.clip(at, 0, flat.shape[1] - 1)] = d
        return flat.reshape(len(d), 64, self.case.n)

    def _a_found(self, rounds: list[Any]) -> Any:
        """[64, k]: bytes of the tile, or values of the threads."""
        places = np.concatenate(rounds, axis=1)[:, : self.case.k]
        return places if self.in_registers else self._bytes(places)

    def _b_found(self, read: Any) -> Any:
        return self._bytes(numbers(self.case.dtype, read)[: self.case.k].T)

    def _bytes(self, places: Any) -> Any:
        return np.where(places < 0, -1, places * self.case.itemsize)

    def _expected_d(self) -> Any:
        row, column = fragments.accumulator(64, self.case.n)
        return row * self.case.n + column

    def _expected_a(self) -> Any:
        if not self.in_registers:
            return self.a.places(self.case.k)
        values = self.a_row.shape[1]
        found = np.zeros((64, self.case.k), np.int64)
        found[self.a_row, self.a_k] = np.arange(_THREADS * values).reshape(_THREADS, values)
        return found

    def _expected_b(self) -> Any:
        return self.b.places(self.case.k) - self.b.tile.start
