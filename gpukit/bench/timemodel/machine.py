"""How fast GPUs do what matmul kernels are made of, and who says so."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Machine:
    """Rates and latencies of one GPU. Rates are per clock and SM; latencies are in ns.

    Attributes:
        sms: SMs.
        ghz: SM clock under this load, in GHz.
        mma_flops: dense bf16 FLOP of the tensor cores, at their widest instruction.
        mma_share: the share of it that real data leave, as power and operand reads allow.
        issue: warp instructions.
        lines: 128-byte lines that L1 looks up for loads and stores of threads.
        l2_bytes: bytes from L2 to shared memory, while all SMs ask.
        tma_rows: rows of boxes that TMA asks for.
        store_bytes: bytes of C that one SM writes out.
        load_ns: from a TMA request until a waiting thread goes on, caches included.
        mma_ns: from an MMA's issue until a waiting thread goes on, above its own time.
        cluster_ns: what agreeing with the other CTA costs in each step that does so.
        start_ns: from the start of a CTA until its first request (barriers, TMEM, tensor maps).
    """

    name: str
    sms: int
    ghz: float
    mma_flops: float
    mma_share: float
    issue: float
    lines: float
    l2_bytes: float
    tma_rows: float
    store_bytes: float
    load_ns: float
    mma_ns: float
    cluster_ns: float
    start_ns: float


#: Where the figures come from; those named "fitted" come from `fit` on the measured Hopper ladder.
SOURCES = {
    "sms": "data sheet",
    "ghz": "H200: SM clock in the rows of the ladder; B200: peak / (SMs x FLOP per clock)",
    "mma_flops": "architecture whitepapers: 4096 (Hopper), 8192 (Blackwell) per clock and SM",
    "mma_share": "fitted",
    "issue": "four schedulers, one warp instruction each per clock",
    "lines": "one tag lookup of L1 per clock, as in all GPUs since Volta",
    "l2_bytes": "fitted",
    "tma_rows": "fitted",
    "store_bytes": "fitted",
    "load_ns": "fitted",
    "mma_ns": "fitted",
    "cluster_ns": "fitted",
    "start_ns": "fitted",
}
FITTED = tuple(name for name, source in SOURCES.items() if source == "fitted")

#: Fitted figures are a first guess here: `fit` replaces them.
H200 = Machine("H200", sms=132, ghz=1.98, mma_flops=4096, mma_share=0.87, issue=4, lines=1,
               l2_bytes=46, tma_rows=0.5, store_bytes=40, load_ns=800, mma_ns=60, cluster_ns=300,
               start_ns=1500)

#: Whatever is not known of a B200 is as on the H200, per clock or in ns.
B200 = replace(H200, name="B200", sms=148, ghz=1.856, mma_flops=8192)

MACHINES = {"sm_90a": H200, "sm_100a": B200}
