"""One tcgen05.mma of one CTA on whole matrices."""

from __future__ import annotations

import numpy as np
from tcgen05_kernels import Call, Form, run
from tcgen05_matrices import codes, exact, image_of, place, small_matrix
from tcgen05_words import idesc

from gpukit.layout import tmem


def accumulator_type(kind):
    return "s32" if kind == "i8" else "f32"


def cells_of(matrix, ws=False, lane=0, columns=None):
    """uint32 [1, lane, column]: D as the layout algebra places it; elsewhere a pattern."""
    m, n = matrix.shape
    at = tmem.accumulator(m, n, ws=ws).table()
    width = columns or -(-n // 32) * 32
    cells = np.full(128 * width, 0x5A5A5A5A, np.uint32)
    lanes, column = at % 128 + lane, at // 128
    cells[lanes * width + column] = codes(matrix)
    return cells.reshape(1, 128, width)


def d_of(cells, m, n, dtype, ws=False, lane=0):
    """D [m, n] from cells."""
    at = tmem.accumulator(m, n, ws=ws).table()
    values = np.ascontiguousarray(cells[0][at % 128 + lane, at // 128])
    if dtype.itemsize == 2:
        assert not (values >> 16).any()
        return values.astype(np.uint16).view(dtype)
    return values.view(dtype)


def multiply(kind, a, b, c, ws=False, lane=0, a_mode="128", b_mode="128", majors=(True, True),
             form=None, word=None, call=None, **options):  # fmt: skip
    """D of one mma on matrices ``a`` [M, K] and ``b`` [N, K], as (values, name); and counters."""
    (left, a_name), (right, b_name) = a, b
    pa = place(left, a_name, kind, a_mode, majors[0])
    pb = place(right, b_name, kind, b_mode, majors[1], start=pa.tile.end)
    m, n = left.shape[0], right.shape[0]
    d = {"float16": "f16", "int32": "s32"}.get(c.dtype.name, "f32")
    word = word or idesc(kind, m, n, a_name, b_name, d,
                         transpose=[int(not major) for major in majors])  # fmt: skip
    issued = Call(lane << 16, pa.tile.descriptor(), pb.tile.descriptor(), word, **(call or {}))
    cells, counters = run(form or Form(kind, ws=ws), [issued], [image_of(pa, pb)],
                          cells_of(c, ws, lane), **options)  # fmt: skip
    return d_of(cells, m, n, c.dtype, ws, lane), counters


def product(a, b):
    return exact(a) @ exact(b).T


def old(rng, shape, dtype=np.float32):
    return rng.integers(-9, 9, shape).astype(dtype)


def small_problem(rng, **changes):
    """A good mma of 128 x 32 x 16 on cells of 64 columns, with some arguments changed."""
    a, b = small_matrix(rng, (128, 16), "f16"), small_matrix(rng, (32, 16), "f16")
    pa = place(a, "f16", "f16")
    pb = place(b, "f16", "f16", start=pa.tile.end)
    call = {"d": 0, "a": pa.tile.descriptor(), "b": pb.tile.descriptor(),
            "idesc": idesc("f16", 128, 32, "f16"), **changes}  # fmt: skip
    return [Call(**call)], [image_of(pa, pb)], np.zeros((1, 128, 64), np.uint32)
