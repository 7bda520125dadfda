"""Peers of `gpukit bench attention`: sliding windows off by one key, and what cuDNN is asked."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

from gpukit.bench.families import attention_cudnn, attention_peers, load_family
from gpukit.bench.runner import select_cases
from gpukit.devices import emulated
from gpukit.errors import UnsupportedError
from gpukit.reference import attention as reference
from gpukit.reference.attention import Rules


def peer(offset):
    """One whose window is so many keys too wide."""
    def make(problem):
        rules = Rules(problem.rules.mask, window=problem.rules.window + offset)
        last = []

        def launch(slot):
            out = reference.oracle(*problem.inputs[slot], rules).out
            last[:] = [out.astype(problem.inputs[0][0].dtype)]

        return launch, lambda: last[0]

    return make


@pytest.mark.parametrize("offset", [-1, 0, 1])
def test_a_window_off_by_one_is_noticed(monkeypatch, offset):
    monkeypatch.setitem(attention_peers.PEERS, "cudnn", peer(offset))
    family = load_family("attention")
    texts = {"mask": "sliding_causal", "window": "7", "length": "33", "tokens": "33"}
    parse = {axis.name: axis.parse for axis in family.axes}
    (case,) = select_cases(family, {n: parse[n](t) for n, t in texts.items()}, emulated=True)
    prepared = family.prepare(case, emulated.get("h100"), ("cudnn",))
    reasons = [note.reason for note in prepared.notes]
    assert reasons == (["its window is not 7 keys wide"] if offset else [])
    assert len(prepared.peers) == (not offset)


class Tensor(np.ndarray):
    """What is called of torch's tensors."""

    device = "cuda"

    def transpose(self, *axes):
        return self.swapaxes(*axes)

    def stride(self):
        return tuple(step // self.itemsize for step in self.strides)


class Graph:
    """cudnn.pygraph: sdpa as documented, computed by the oracle when it is executed."""

    def __init__(self, **words):
        assert words["handle"] == "handle" and words["io_data_type"] == "half"

    def tensor(self, dim, stride, data_type):
        return Node()

    def sdpa(self, q, k, v, attn_scale, generate_stats, diagonal_alignment,
             diagonal_band_left_bound, diagonal_band_right_bound):
        assert not generate_stats and diagonal_alignment == "top left"
        assert diagonal_band_right_bound == 0
        self.operands, self.window = (q, k, v), diagonal_band_left_bound
        self.scale = attn_scale
        self.result = Node()
        return self.result, None

    def build(self, modes):
        self.modes = modes

    def get_workspace_size(self):
        return 0

    def execute(self, memory, scratch, handle):
        q, k, v = (np.asarray(memory[node]).swapaxes(1, 2) for node in self.operands)
        rules = Rules("sliding_causal", window=self.window, scale=self.scale)
        memory[self.result][:] = reference.oracle(q, k, v, rules).out.swapaxes(1, 2)


class Node:
    def set_output(self, yes):
        return self

    set_dim = set_stride = set_data_type = set_output


def fakes(monkeypatch):
    torch = ModuleType("torch")
    torch.bfloat16, torch.float16, torch.uint8 = "b", np.dtype("f2"), np.uint8
    torch.empty = lambda shape, dtype, device: np.empty(shape, dtype).view(Tensor)
    torch.cuda = SimpleNamespace(current_stream=lambda: SimpleNamespace(cuda_stream=5))
    cudnn = ModuleType("cudnn")
    cudnn.data_type = SimpleNamespace(HALF="half", FLOAT="float")
    cudnn.diagonal_alignment = SimpleNamespace(TOP_LEFT="top left")
    cudnn.heur_mode = SimpleNamespace(A="a")
    cudnn.cudnnGraphNotSupportedError = ArithmeticError
    cudnn.create_handle, cudnn.pygraph = (lambda: "handle"), Graph
    cudnn.streams = []
    cudnn.set_stream = lambda handle, stream: cudnn.streams.append((handle, stream))
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setitem(sys.modules, "cudnn", cudnn)
    return cudnn


def operands():
    rng = np.random.default_rng(0)
    return [rng.standard_normal((2, 20, h, 8)).astype("f2").view(Tensor) for h in (4, 2, 2)]


def test_cudnn_is_asked_for_our_window(monkeypatch):
    cudnn = fakes(monkeypatch)
    q, k, v = operands()
    out = attention_cudnn.windowed(q, k, v, 3)()
    want = reference.oracle(*map(np.asarray, (q, k, v)), Rules("sliding_causal", window=3)).out
    assert np.abs(out - want).max() < 1e-3
    assert cudnn.streams == [("handle", 5)]


def test_what_cudnn_refuses_is_unsupported(monkeypatch):
    def refuse(self, modes):
        raise ArithmeticError("No valid engine configs for ____\nReason: old")

    fakes(monkeypatch)
    monkeypatch.setattr(Graph, "build", refuse)
    with pytest.raises(UnsupportedError, match=r"^cuDNN: No valid engine .* Reason: old$"):
        attention_cudnn.windowed(*operands(), 3)


def test_no_frontend(monkeypatch):
    monkeypatch.setitem(sys.modules, "cudnn", None)
    with pytest.raises(UnsupportedError, match="nvidia-cudnn-frontend is not installed"):
        attention_cudnn.Graph("HALF")
