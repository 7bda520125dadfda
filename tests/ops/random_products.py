"""Calls of gpukit.matmul of every kind, for hypothesis to choose among."""

from __future__ import annotations

from hypothesis import strategies as st
from products import Product

LAYOUTS = ("nt", "nn", "tn", "tt")


@st.composite
def products(draw: st.DrawFn) -> Product:
    dtype = draw(st.sampled_from(["bf16", "f16", "f32", "e4m3", "e5m2"]))
    size = st.integers(1, 140)
    small = st.integers(0, 9)
    scale = st.sampled_from([None, "number", "one", "each"])
    batch = draw(st.sampled_from([(), (), (2,), (2, 2)]))
    return Product(
        draw(size), draw(size), draw(st.integers(0, 200)), draw(st.sampled_from(LAYOUTS)), dtype,
        draw(st.sampled_from([None, "bf16", "f16", "f32"])), batch,
        draw(st.sampled_from([(), batch])), (draw(small), draw(small), draw(small)),
        (draw(small), draw(small), draw(small)), draw(st.booleans()), draw(st.booleans()),
        draw(st.sampled_from([None, "relu", "gelu", "gelu_tanh", "silu"])),
        draw(st.sampled_from([1.0, -0.25])), (draw(scale), draw(scale)), draw(st.booleans()),
        draw(st.booleans()))
