"""What elementwise kernels are compared with, on the same buffers.

memcpy: the runtime's device-to-device copy of x to the output: the same bytes for one-input ops.
copy:   gpukit's own copy kernel, the same bytes for one-input ops.
cupy:   CuPy's ufunc; for copy cupy.copyto, which is a memcpy by way of CuPy.
torch:  PyTorch's function.
All write the same preallocated output. One that has no such op raises `UnsupportedError`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from gpukit.bench.families.buffers import Launch, as_torch, torch_stream
from gpukit.errors import UnsupportedError
from gpukit.kernels.elementwise import BINARY

Inputs = Sequence[tuple[Any, ...]]
Outputs = Sequence[Any]

_DEVICE_TO_DEVICE = 3


def memcpy(inputs: Inputs, outputs: Outputs) -> Launch:
    """cudaMemcpyAsync of the first input to the output, on the current stream."""
    import cupy

    def launch(slot: int) -> None:
        out, x = outputs[slot], inputs[slot][0]
        cupy.cuda.runtime.memcpyAsync(out.data.ptr, x.data.ptr, out.nbytes, _DEVICE_TO_DEVICE,
                                      cupy.cuda.get_current_stream().ptr)

    return launch


def _memcpy_peer(op: str, inputs: Inputs, outputs: Outputs, a: float) -> Launch:
    _require_one_input(op)
    return memcpy(inputs, outputs)


def _require_one_input(op: str) -> None:
    if op in BINARY:
        raise UnsupportedError(f"{op} has two inputs, a copy moves fewer bytes")


def _copy_peer(op: str, inputs: Inputs, outputs: Outputs, a: float) -> Launch:
    import gpukit

    _require_one_input(op)
    if op == "copy":
        raise UnsupportedError("it is what is measured")
    return lambda slot: gpukit.copy(inputs[slot][0], out=outputs[slot])


def _cupy_peer(op: str, inputs: Inputs, outputs: Outputs, a: float) -> Launch:
    import cupy
    import cupyx
    from cupyx.scipy import special

    unary = {"sqrt": cupy.sqrt, "rsqrt": cupyx.rsqrt, "log": cupy.log, "sin": cupy.sin,
             "tanh": cupy.tanh, "exp": cupy.exp, "erf": special.erf}
    if op in unary:
        return lambda slot: unary[op](inputs[slot][0], outputs[slot])
    if op == "copy":
        return lambda slot: cupy.copyto(outputs[slot], inputs[slot][0])
    if op == "add":
        return lambda slot: cupy.add(*inputs[slot], outputs[slot])
    function = {"add_const": cupy.add, "scale": cupy.multiply}.get(op)
    if function is None:
        raise UnsupportedError(f"CuPy has no ufunc for {op}")
    scalar = inputs[0][0].dtype.type(a)  # a Python float would not keep bf16
    return lambda slot: function(inputs[slot][0], scalar, outputs[slot])


def _torch_peer(op: str, inputs: Inputs, outputs: Outputs, a: float) -> Launch:
    import torch

    xs = [tuple(map(as_torch, arrays)) for arrays in inputs]
    outs = [as_torch(out) for out in outputs]
    call = _torch_call(torch, op, a)

    def launch(slot: int) -> None:
        with torch_stream():
            call(xs[slot], outs[slot])

    return launch


def _torch_call(torch: Any, op: str, a: float) -> Callable[[Any, Any], Any]:
    if op == "copy":
        return lambda xs, out: out.copy_(xs[0])
    if op == "add_const":
        return lambda xs, out: torch.add(xs[0], a, out=out)
    if op == "scale":
        return lambda xs, out: torch.mul(xs[0], a, out=out)
    if op == "add":
        return lambda xs, out: torch.add(*xs, out=out)
    if op == "axpy":
        return lambda xs, out: torch.add(xs[1], xs[0], alpha=a, out=out)
    function = torch.special.erf if op == "erf" else getattr(torch, op)
    return lambda xs, out: function(xs[0], out=out)


PEERS: dict[str, Callable[[str, Inputs, Outputs, float], Launch]] = {
    "memcpy": _memcpy_peer,
    "copy": _copy_peer,
    "cupy": _cupy_peer,
    "torch": _torch_peer,
}
