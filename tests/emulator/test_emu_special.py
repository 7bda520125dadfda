"""Every special register: of threads, CTAs, clusters, shared memory, time and the driver."""

from __future__ import annotations

import numpy as np
import pytest
from emulator_kernels import ptx_kernel

from gpukit import emulator
from gpukit.emulator.errors import UnsupportedInstructionError

GRID, BLOCK, CLUSTER = (4, 2, 3), (12, 3, 2), (2, 1, 3)
THREADS, CTAS = 72, 24
STATIC, DYNAMIC = 200, 1000


def read(name, bits=32, type_=None, **options):
    """The register's value in each thread, as an array [cta, thread]."""
    move = f"mov.{type_ or f'u{bits}'} %v, %{name};"
    if type_ == "pred":
        move = f"mov.pred %q, %{name}; selp.u32 %v, 1, 0, %q;"
    body = f""".reg .b32 %r<9>; .reg .b64 %a; .reg .b{bits} %v; .reg .pred %q;
    .shared .b8 space[{STATIC}];
    mov.u32 %r1, %ctaid.z; mov.u32 %r2, %ctaid.y; mad.lo.u32 %r1, %r1, {GRID[1]}, %r2;
    mov.u32 %r2, %ctaid.x; mad.lo.u32 %r1, %r1, {GRID[0]}, %r2;
    mov.u32 %r2, %tid.z; mad.lo.u32 %r1, %r1, {BLOCK[2]}, %r2;
    mov.u32 %r2, %tid.y; mad.lo.u32 %r1, %r1, {BLOCK[1]}, %r2;
    mov.u32 %r2, %tid.x; mad.lo.u32 %r1, %r1, {BLOCK[0]}, %r2;
    ld.param.u64 %a, [p0]; mad.wide.u32 %a, %r1, {bits // 8}, %a;
    {move} st.global.u{bits} [%a], %v; ret;"""
    y = np.zeros((CTAS, THREADS), f"u{bits // 8}")
    options = {"cluster": CLUSTER, "shared_bytes": DYNAMIC, **options}
    emulator.run(ptx_kernel(body, ".param .u64 p0"), GRID, BLOCK, [y], **options)
    return y


def position(count, shape, axis):
    """Coordinate ``axis`` (x first) of each of ``count`` consecutive things."""
    return np.unravel_index(np.arange(count), shape[::-1])[2 - axis]


def cta(axis):
    return position(CTAS, GRID, axis)[:, None]


THREAD, LANE = np.arange(THREADS), np.arange(THREADS) % 32
RANK = sum(cta(a) % CLUSTER[a] * int(np.prod(CLUSTER[:a])) for a in range(3))
EXPECTED = {
    "laneid": LANE,
    "warpid": THREAD // 32,
    "nwarpid": 3,
    "lanemask_eq": 1 << LANE,
    "lanemask_lt": (1 << LANE) - 1,
    "lanemask_le": (2 << LANE) - 1,
    "lanemask_gt": 0x1_0000_0000 - (2 << LANE),
    "lanemask_ge": 0x1_0000_0000 - (1 << LANE),
    "cluster_ctarank": RANK,
    "cluster_nctarank": 6,
    "dynamic_smem_size": DYNAMIC,
    "total_smem_size": 1280,  # 1200 in units of 128
    "aggr_smem_size": 1280 + 1024,
    "reserved_smem_offset_begin": 0,
    "reserved_smem_offset_end": 1024,
    "reserved_smem_offset_cap": 1024,
    "tid.w": 0,
    "nctaid.w": 0,
    "envreg0": 0,
    "envreg1": 0,  # the grid barrier's address, in cooperative launches
    "envreg2": 0,
    "envreg31": 0,
    **{f"tid.{c}": position(THREADS, BLOCK, a) for a, c in enumerate("xyz")},
    **{f"ntid.{c}": BLOCK[a] for a, c in enumerate("xyz")},
    **{f"ctaid.{c}": cta(a) for a, c in enumerate("xyz")},
    **{f"nctaid.{c}": GRID[a] for a, c in enumerate("xyz")},
    **{f"clusterid.{c}": cta(a) // CLUSTER[a] for a, c in enumerate("xyz")},
    **{f"nclusterid.{c}": GRID[a] // CLUSTER[a] for a, c in enumerate("xyz")},
    **{f"cluster_ctaid.{c}": cta(a) % CLUSTER[a] for a, c in enumerate("xyz")},
    **{f"cluster_nctaid.{c}": CLUSTER[a] for a, c in enumerate("xyz")},
}


@pytest.mark.parametrize("name", EXPECTED)
def test_value(name):
    assert (read(name) == EXPECTED[name]).all()


@pytest.mark.parametrize("policy", ["random", "starved"])
def test_multiprocessors_are_within_their_number(policy):
    smid, count = read("smid", policy=policy), read("nsmid", policy=policy)
    assert (smid < count).all()
    assert (smid == smid[:, :1]).all()
    assert (count == count[0, 0]).all()


def test_one_grid_has_one_number():
    numbers = read("gridid", 64)
    assert (numbers == numbers[0, 0]).all()
    assert (read("current_graph_exec", 64) == 0).all()


@pytest.mark.parametrize(("cluster", "explicit"), [(CLUSTER, 1), (None, 0)])
def test_whether_the_launch_has_clusters(cluster, explicit):
    assert (read("is_explicit_cluster", type_="pred", cluster=cluster) == explicit).all()
    assert (read("cluster_nctarank", cluster=cluster) == (6 if explicit else 1)).all()


def test_a_cooperative_launch_has_a_workspace_for_its_grid_barrier():
    high, low = (read(f"envreg{k}", cooperative=True).astype("u8") for k in (1, 2))
    addresses = high << 32 | low
    assert addresses[0, 0] > 0
    assert (addresses == addresses[0, 0]).all()


CLOCKS = {"clock": 32, "clock64": 64, "globaltimer": 64, "globaltimer_lo": 32}


@pytest.mark.parametrize("policy", ["random", "starved"])
@pytest.mark.parametrize("name", CLOCKS)
def test_a_later_read_of_a_clock_is_later(name, policy):
    bits = CLOCKS[name]
    body = f""".reg .b{bits} %t<4>; .reg .b64 %a; .reg .b32 %r;
    mov.u{bits} %t1, %{name}; mov.u{bits} %t2, %{name}; sub.u{bits} %t1, %t2, %t1;
    ld.param.u64 %a, [p0]; mov.u32 %r, %tid.x; mad.wide.u32 %a, %r, {bits // 8}, %a;
    st.global.u{bits} [%a], %t1; ret;"""
    y = np.zeros(96, f"u{bits // 8}")
    emulator.run(ptx_kernel(body, ".param .u64 p0"), 1, 96, [y], policy=policy)
    assert ((y > 0) & (y < 1000)).all()


def test_high_words_of_short_runs_are_zero():
    assert (read("clock_hi") == 0).all()
    assert (read("globaltimer_hi") == 0).all()


def test_a_wait_by_the_clock_ends():
    source = """extern "C" __global__ void k(int* y) {
      long long start = clock64();
      while (clock64() - start < 100000) {}
      y[threadIdx.x] = 1; }"""
    y = np.zeros(64, "i4")
    emulator.run(source, 1, 64, [y])
    assert (y == 1).all()


@pytest.mark.parametrize("text", ["mov.u32 %v, %pm0;", "add.u32 %v, %v, %clock;"])
def test_registers_that_cannot_be_read_are_named(text):
    body = f".reg .b32 %v; {text} ret;"
    with pytest.raises(UnsupportedInstructionError, match=r"special register %(pm0|clock)"):
        emulator.run(ptx_kernel(body), 1, 32, [])
