"""`gpukit.matmul`."""

from __future__ import annotations

from typing import Any

from gpukit.errors import ArgumentError
from gpukit.ops.matmul import arguments, ladder, run, warm
from gpukit.ops.matmul.configs import Config, parse


def matmul(a: Any, b: Any, *, out: Any = None, bias: Any = None, activation: str | None = None,
           residual: Any = None, alpha: float = 1.0, scale_a: Any = None, scale_b: Any = None,
           out_dtype: Any = None, tf32: bool = False, dtype_a: str | None = None,
           dtype_b: str | None = None, fast_accum: bool = False,
           kernel: int | str | None = None, config: Config | str | None = None) -> Any:
    """C = activation(alpha scale_a scale_b A B + bias) + residual, sums in float32.

    CuPy arrays and CUDA tensors run on their GPU, NumPy arrays on the emulated one. Never
    synchronises; work is ordered on CuPy's current stream of that GPU. Sums are made in an order
    that depends on shapes, types and layouts alone: the same call gives the same bits.

    Fastest: rows of a, b and out at multiples of 16 bytes, in any of the four layouts (transposed
    views are not copied); 8-bit and tf32 operands along K (b as w.T of a [N, K] w). Everything else
    is accepted, after a copy to a workspace. float32 without tf32 is exact, on the FMA units.

    Args:
        a: [..., M, K], float32, float16, bfloat16 or an 8-bit float; any strides.
        b: [..., K, N], the same dtype, or another 8-bit float; leading dimensions are equal, or
            absent from a or b. 4-bit floats (Blackwell) are uint8 arrays [M, K / 2] and [K / 2, N],
            two along K in a byte, the first one in its lower half.
        out: [..., M, N] to write: elements of a row next to each other, rows in order. It must not
            overlap a, b or bias; it may be residual itself.
        bias: [N] of out's dtype.
        activation: None, "relu", "gelu", "gelu_tanh" or "silu".
        residual: [..., M, N] of out's dtype, elements of a row next to each other.
        alpha: a number.
        scale_a: a number, one float32 on the device, or a float32 for each row: a.shape[:-1].
        scale_b: a number, one float32 on the device, or a float32 for each column: [..., N].
            For 8-bit operands of two dimensions also one per block: of 1 x 128 elements of a,
            [M, K / 128], and of 128 x 128 of b, [K / 128, N / 128], rounded up (Hopper); or, as
            uint8, a power of two (ue8m0) per 32 elements of K, [M, K / 32] and [K / 32, N]: mxfp8
            (Blackwell). 4-bit operands take a ue4m3 per 16 elements, [M, K / 16] and [K / 16, N]:
            nvfp4. A tuple of such bytes and one factor, a number or on the device, has both.
        out_dtype: float32, float16 or bfloat16, where out is not given; by default a's dtype, and
            bfloat16 for 8- and 4-bit operands.
        tf32: multiply float32 operands as tf32 where the GPU can: 10 bits of mantissa.
        dtype_a, dtype_b: "e4m3", "e5m2" or "e2m1": what uint8 arrays hold (CuPy has no dtype for
            them). NumPy arrays of ml_dtypes and torch's float8 tensors say so themselves.
        fast_accum: let Hopper's tensor cores add up 8-bit products alone, with about 14 bits;
            otherwise their sums of 128 products are added up in float32.
        kernel: a rung of the ladder of kernels that teach, by number (the one for this GPU) or by
            a name of `gpukit list`. Rungs take two dimensions, no epilogue, and ask more of types
            and layout. By default the library chooses among its own kernels.
        config: how to run the library's kernel: "gemm:bm=128,bn=256" on Hopper,
            "tcgen05:bn=256,ctas=2" on Blackwell, see its `configs`.

    Returns:
        [..., M, N]; the epilogue of zeros where K = 0.

    Raises:
        ArgumentError: names the argument, what was given and what is accepted.
        UnknownKernelError: no such rung.
        UnsupportedError: the GPU has no such kernel.
    """
    given = (a, b, out, bias, activation, residual, alpha, scale_a, scale_b, out_dtype, tf32,
             dtype_a, dtype_b, fast_accum)
    if kernel is not None:
        return _rung(given, kernel, config)
    done = warm.call(*given, config)
    if done is not None:
        return done
    forced = None if config is None else parse(config)
    call = arguments.check(*given)
    launch = run.run(call, forced)
    if launch is not None and not call.device.emulated:
        warm.keep((*given, config), call, launch)
    return call.out


def _rung(given: tuple[Any, ...], kernel: int | str, config: Config | str | None) -> Any:
    if not isinstance(kernel, int | str):
        raise ArgumentError(f"matmul: kernel is {kernel!r:.60}; accepted: a rung's number, or its "
                            "name in `gpukit list`")
    ladder.rungs(kernel)
    call = arguments.check(*given)
    _check_rung(call, kernel, config)
    ladder.run(call, kernel)
    return call.out


def _check_rung(call: arguments.Call, kernel: int | str, config: Config | str | None) -> None:
    """Rungs have no epilogue, and are no configuration."""
    if config is not None:
        raise ArgumentError(f"matmul: config is given with kernel={kernel!r}; accepted: one of "
                            "them")
    if not call.plain:
        raise ArgumentError(f"matmul: kernel={kernel!r} has no epilogue; accepted with it: no bias,"
                            " activation, residual, alpha, scale_a and scale_b")
