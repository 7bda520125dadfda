"""Uses of tcgen05.mma that break one rule, the report each gets, and the good twin of each."""

from __future__ import annotations

import numpy as np
import pytest
from tcgen05_kernels import Call, Form, run
from tcgen05_matrices import image_of, place, small_matrix
from tcgen05_multiply import small_problem
from tcgen05_words import idesc

from gpukit.emulator.errors import (
    CollectiveError,
    KernelFault,
    OutOfBoundsError,
    UninitializedReadError,
    UnsupportedInstructionError,
)
from gpukit.emulator.mma.descriptors import DescriptorError
from gpukit.emulator.tcgen05.idesc import InstructionDescriptorError

GOOD = idesc("f16", 128, 32, "f16")


@pytest.mark.parametrize(("changes", "error", "why"), [
    ({"idesc": GOOD | 1 << 6}, InstructionDescriptorError,
     r"tcgen05\.mma\.cta_group::1.*: instruction descriptor 0x08080050 \(kind::f16: M 128, N 32, "
     r"A f16 K-major, B f16 K-major, D f32\): reserved bits 0x40 are set"),
    ({"idesc": idesc("f16", 256, 32, "f16")}, InstructionDescriptorError, "M = 256; accepted"),
    ({"a": 1 << 62 | 64}, DescriptorError, "bits 46-48 are 0b000"),
    ({"b": 1 << 62 | 1 << 46 | 64 << 32 | 0x3000}, DescriptorError, "takes offsets 0x30000 to"),
    ({"d": 16 << 16}, KernelFault, "D begins at lane 16 of tensor memory; accepted with M = 128"),
    ({"d": 496}, OutOfBoundsError, "there are 128 lanes and 512 columns"),
])  # fmt: skip
def test_wrong_words_are_refused_where_they_are_issued(rng, changes, error, why):
    run(Form("f16"), *small_problem(rng))
    with pytest.raises(error, match=why):
        run(Form("f16"), *small_problem(rng, **changes))


def test_lanes_that_issue_the_same(rng):
    """Without an election every lane of a warp would start a multiplication."""
    with pytest.raises(CollectiveError, match=r"lanes 0 and 1 issue the same tcgen05\.mma"):
        run(Form("f16"), *small_problem(rng), issuers="lane < 2")
    run(Form("f16"), *small_problem(rng), issuers="lane == 77")


def test_d_that_nothing_has_written(rng):
    calls, images, cells = small_problem(rng, d=64)
    with pytest.raises(UninitializedReadError, match="lane 0, column 64"):
        run(Form("f16"), calls, images, cells)
    calls[0].add = False
    run(Form("f16"), calls, images, cells)


ISSUE = Form("f16").text


@pytest.mark.parametrize(("issue", "why"), [
    (ISSUE.replace("mma.", "mma.sp.").replace("%2, ", "%2, [%5], "), "sparse A is not emulated"),
    (ISSUE.replace("[%0], %1", "[%0], [%5]").replace("kind::f16", "kind::f16.ashift"),
     "ashift is not emulated"),
])  # fmt: skip
def test_forms_that_are_refused_before_anything_runs(rng, issue, why):
    with pytest.raises(UnsupportedInstructionError, match=why):
        run(Form("f16"), *small_problem(rng), issue=issue)


def test_a_in_tensor_memory_begins_where_d_does(rng):
    b = place(small_matrix(rng, (32, 16), "f16"), "f16", "f16")
    form = Form("f16", a_in_tensor_memory=True)
    call = Call(16 << 16, 32, b.tile.descriptor(), idesc("f16", 64, 32, "f16"))
    with pytest.raises(KernelFault, match="A begins at lane 0 of tensor memory, D at 16"):
        run(form, [call], [image_of(b)], np.zeros((1, 128, 64), np.uint32))


def test_a_in_the_columns_of_d(rng):
    """The next mma may read as A what this one wrote; this one may not."""
    b = place(small_matrix(rng, (32, 16), "f16"), "f16", "f16")
    form = Form("f16", a_in_tensor_memory=True)
    cells = np.zeros((1, 128, 64), np.uint32)
    for column in (24, 31, 0):
        call = Call(0, column, b.tile.descriptor(), idesc("f16", 128, 32, "f16"))
        with pytest.raises(KernelFault, match=f"A in columns {column} to {column + 7} of tensor"):
            run(form, [call], [image_of(b)], cells)
    run(form, [Call(0, 32, call.b, call.idesc)], [image_of(b)], cells)


# Collector buffers


def chain(rng, *uses, other=None):
    """The mmas of ``small_problem``, one per use of the collector buffer; A of one may differ."""
    calls, images, cells = small_problem(rng)
    (call,) = calls
    forms = [Form("f16", collector=use and f"collector::a::{use}") for use in uses]
    again = [Call(call.d, call.a + (2 if i == other else 0), call.b, call.idesc)
             for i in range(len(uses))]  # fmt: skip
    issue = " ".join(f"setp.eq.u64 q, %7, {i}; @q {form.text}" for i, form in enumerate(forms))
    for i, each in enumerate(again):
        each.zeros = i
    return run(forms[0], again, images, cells, issue=f".reg .pred q; {issue}")


@pytest.mark.parametrize("uses", [
    ("fill", "use", "lastuse"), ("fill", "use", "use", "discard"), ("", "fill", "lastuse", ""),
])  # fmt: skip
def test_a_kept_in_the_collector_buffer(rng, uses):
    once, _ = chain(rng, "")
    cells, _ = chain(np.random.default_rng(20240607), *uses)
    assert (cells.view("f4") == len(uses) * once.view("f4")).all()


@pytest.mark.parametrize(("uses", "other", "holds"), [
    (("use",), None, "nothing"), (("fill", "", "use"), None, "nothing"),
    (("fill", "lastuse", "lastuse"), None, "nothing"), (("fill", "use"), 1, "another matrix"),
    (("discard", "lastuse"), None, "nothing"),
])  # fmt: skip
def test_what_the_collector_buffer_does_not_hold(rng, uses, other, holds):
    with pytest.raises(KernelFault, match=f"the collector buffer does not hold; it holds {holds}"):
        chain(rng, *uses, other=other)
