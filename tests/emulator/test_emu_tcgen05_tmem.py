"""Tensor Memory: alloc, dealloc and relinquish_alloc_permit, of one CTA and of a pair."""

from __future__ import annotations

import numpy as np
import pytest
from tcgen05_wrappers import tensor_source

from gpukit import emulator
from gpukit.emulator import errors

POLICIES = ("random", "early", "late", "starved")
MEMORY = errors.TensorMemoryError
FRAME = r"""
extern "C" __global__ void k(u32* out) {
  __shared__ u32 slot[8];
  const int t = threadIdx.x, warp = t / 32;
  BODY
}"""


def run(body, threads=128, ctas=1, group=1, policy="random", words=8, **options):
    """Returns the words that the kernel wrote."""
    out = np.zeros(words, np.uint32)
    source = tensor_source(FRAME.replace("BODY", body), group)
    emulator.run(
        source, ctas, threads, [out], arch="sm_100a", cluster=ctas if ctas > 1 else None,
        policy=policy, **options,
    )  # fmt: skip
    return out


def alloc_and_free(*sizes):
    """Allocate one after the other, write down the addresses, free in the same order."""
    allocs = "".join(f"alloc<{n}>(&slot[{i}]);" for i, n in enumerate(sizes))
    tell = f"if (t < {len(sizes)}) out[t] = slot[t];"
    frees = "".join(f"dealloc<{n}>(slot[{i}]);" for i, n in enumerate(sizes))
    return f"if (warp == 0) {{ {allocs} __syncwarp(); {tell} {frees} relinquish(); }}"


# One CTA


@pytest.mark.parametrize("columns", [32, 64, 128, 256, 512])
def test_first_allocation_begins_at_zero(columns):
    assert run(alloc_and_free(columns))[0] == 0


@pytest.mark.parametrize(
    ("sizes", "addresses"),
    [
        ((256, 128, 64, 32, 32), (0, 256, 384, 448, 480)),
        ((256, 256), (0, 256)),
        ((32, 32, 32), (0, 32, 64)),
    ],
)
def test_allocations_do_not_overlap(sizes, addresses):
    assert tuple(run(alloc_and_free(*sizes))[: len(sizes)]) == addresses


def test_freed_columns_are_allocated_again():
    out = run(
        "if (warp == 0) { alloc<256>(&slot[0]); alloc<256>(&slot[1]); dealloc<256>(slot[0]);"
        "alloc<256>(&slot[0]); out[0] = slot[0]; dealloc<256>(slot[0]); dealloc<256>(slot[1]); }"
    )
    assert out[0] == 0


@pytest.mark.parametrize("policy", POLICIES)
def test_alloc_waits_until_there_is_room(policy):
    """Two warps want all columns: the second gets them when the first has freed them."""
    out = run(
        "if (warp < 2) { alloc<512>(&slot[warp]); __syncwarp(); if (t % 32 == 0)"
        " out[warp] = slot[warp] + 1; dealloc<512>(slot[warp]); }",
        policy=policy,
    )
    assert tuple(out[:2]) == (1, 1)


def test_alloc_that_never_finds_room():
    with pytest.raises(errors.DeadlockError, match=r"256 columns of Tensor Memory.*holds 512"):
        run("if (warp == 0) { alloc<512>(&slot[0]); alloc<256>(&slot[1]); }")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("alloc<48>(&slot[0]);", "48 columns; the number must be a power of two from 32 to 512"),
        ("alloc<16>(&slot[0]);", "16 columns"),
        ("alloc<1024>(&slot[0]);", "1024 columns"),
        ("alloc<0>(&slot[0]);", "0 columns"),
        ("alloc<64>(&slot[0]); alloc<128>(&slot[1]);", "allocates 128 columns after 64"),
        ("relinquish(); alloc<64>(&slot[0]);", "after tcgen05.relinquish_alloc_permit"),
        ("alloc<64>(&slot[0]);", "exits without tcgen05.dealloc of columns 0 to 63"),
        ("alloc<64>(&slot[0]); dealloc<64>(32);", "no address that tcgen05.alloc gave"),
        ("alloc<64>(&slot[0]); dealloc<64>(1 << 16);", "no address that tcgen05.alloc gave"),
        ("alloc<64>(&slot[0]); dealloc<32>(slot[0]);", "frees 32 columns of an allocation of 64"),
        ("alloc<64>(&slot[0]); dealloc<64>(slot[0]); dealloc<64>(slot[0]);", "no address"),
        ("alloc<64>(&slot[0]); dealloc<64>(slot[0]); alloc<128>(&slot[0]);", "must not grow"),
    ],
)
def test_misuse(body, message):
    with pytest.raises(MEMORY, match=message):
        run(f"if (warp == 0) {{ {body} }}")


def test_relinquish_is_for_the_whole_cta():
    with pytest.raises(MEMORY, match="relinquish"):
        run("if (warp == 1) relinquish(); __syncthreads(); if (warp == 0) alloc<32>(&slot[0]);")


def test_address_goes_to_the_own_shared_memory():
    with pytest.raises(errors.KernelFault):
        run('if (warp == 0) asm volatile("tcgen05.alloc.cta_group::1.sync.aligned.b32 [%0], 32;"'
            ' :: "l"(out));')  # fmt: skip


def test_address_must_be_aligned():
    with pytest.raises(errors.MisalignedError):
        run("if (warp == 0) alloc<32>((u32*)((char*)slot + 2));")


def test_alloc_needs_a_whole_warp():
    with pytest.raises(errors.CollectiveError):
        run("alloc<32>(&slot[0]);", threads=16)


def test_number_of_columns_must_agree():
    with pytest.raises(errors.CollectiveError, match="number of columns"):
        run('if (warp == 0) asm volatile("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32'
            ' [%0], %1;" :: "r"(smem(slot)), "r"(32 << t % 2));')  # fmt: skip


def test_both_groups_in_one_kernel():
    with pytest.raises(errors.UnsupportedInstructionError, match="all must use the same"):
        run("if (warp == 0) { alloc<32>(&slot[0]); asm volatile("
            '"tcgen05.relinquish_alloc_permit.cta_group::2.sync.aligned;"); }')  # fmt: skip


def test_address_is_an_ordinary_store():
    """Another warp that reads it without a barrier races."""
    with pytest.raises((errors.DataRaceError, errors.UninitializedReadError)):
        run("if (warp == 0) alloc<32>(&slot[0]); if (warp == 1) out[0] = slot[0];"
            "__syncthreads(); if (warp == 0) dealloc<32>(slot[0]);")  # fmt: skip


def test_targets():
    source = tensor_source(FRAME.replace("BODY", "if (warp == 0) { alloc<32>(slot); }"))
    with pytest.raises(emulator.EmulatorError):
        emulator.run(source, 1, 128, [np.zeros(1, np.uint32)], arch="sm_90a")


def test_contents_are_undefined_after_alloc():
    body = (
        "if (warp == 0) {{ float v[4] = {{1, 2, 3, 4}}; alloc<32>(slot); {} ld(slot[0], v);"
        " wait_ld(); out[0] = v[3]; dealloc<32>(slot[0]); }}"
    )
    assert run(body.format("st(slot[0], v); wait_st();"))[0] == 4
    again = "st(slot[0], v); wait_st(); dealloc<32>(slot[0]); alloc<32>(slot);"
    for before in ("", again):
        with pytest.raises(errors.UninitializedReadError, match="lane 0, column 0"):
            run(body.format(before))


# A pair

PAIR = "cluster_sync(); const u32 rank = cluster_rank();"
FREE = "cluster_sync(); if (warp == 0) { relinquish(); dealloc<64>(slot[0]); }"


@pytest.mark.parametrize("policy", POLICIES)
def test_pair(policy):
    """Both get the same address."""
    body = f"{PAIR} if (warp == 0) {{ alloc<64>(slot); alloc<64>(slot); }} __syncthreads();"
    out = run(
        f"{body} if (t == 0) out[rank] = slot[0]; cluster_sync();"
        "if (warp == 0) { dealloc<64>(64); dealloc<64>(0); }",
        ctas=2, group=2, policy=policy,
    )  # fmt: skip
    assert tuple(out[:2]) == (64, 64)


def test_pair_of_a_larger_cluster():
    out = run(
        f"{PAIR} if (warp == 0) alloc<64>(slot); __syncthreads();"
        "if (t == 0) out[rank] = slot[0] + 1;" + FREE, ctas=4, group=2,
    )  # fmt: skip
    assert tuple(out[:4]) == (1, 1, 1, 1)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(
    ("body", "error"),
    [
        (f"{PAIR} if (warp == 0 && rank == 0) alloc<64>(slot); cluster_sync();",
         errors.DeadlockError),
        (f"{PAIR} if (warp == 0) {{ if (rank) alloc<32>(slot); else alloc<64>(slot); }}", MEMORY),
        # trap 1: dealloc when the peer's alloc need not have completed
        (f"{PAIR} if (warp == 0) {{ alloc<64>(slot); dealloc<64>(slot[0]); }}", MEMORY),
        # dealloc blocks in one CTA, the cluster barrier in the other
        (f"{PAIR} if (warp == 0) alloc<64>(slot); cluster_sync(); if (rank) cluster_sync();"
         "if (warp == 0) dealloc<64>(slot[0]); if (rank == 0) cluster_sync();",
         errors.DeadlockError),
        (f"{PAIR} if (warp == 0) alloc<64>(slot); cluster_sync();"
         "if (warp == 0 && rank == 1) dealloc<64>(slot[0]);",
         (errors.DeadlockError, MEMORY)),
        # trap 2
        (f"{PAIR} if (warp == 0) alloc<64>(slot); cluster_sync();", MEMORY),
        (f"{PAIR} if (warp == 0) {{ relinquish(); alloc<64>(slot); }}", MEMORY),
    ],
)  # fmt: skip
def test_misuse_in_a_pair(body, error, policy):
    with pytest.raises(error):
        run(body, ctas=2, group=2, policy=policy)


@pytest.mark.parametrize("ctas", [1, 3])
def test_no_peer(ctas):
    body = "if (warp == 0) alloc<64>(slot);" if ctas == 1 else (
        f"{PAIR} if (warp == 0 && rank == 2) alloc<64>(slot); cluster_sync();"
    )  # fmt: skip
    with pytest.raises(MEMORY, match="it has no peer"):
        run(body, ctas=ctas, group=2)
